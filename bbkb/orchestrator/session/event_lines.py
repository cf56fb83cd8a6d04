"""Events of the campaign, and warnings about its workers and trainings, as lines of the operator's
log."""

import logging

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.health import warnings
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.stops import stop_words
from bbkb.orchestrator.wording import duration, noun_and_numbers, plural

_LOGGER = logging.getLogger("bbkb.session")
_ENDS = {  # the reason for the end of a batch, in words for an operator
    "limit": "as many as were requested",
    "batch size": "a full batch",
    "drift budget": "further ones wait for results",
    "warm start": "first points",
    "one pull at a time": "one at a time",
}
_CHECK_SECONDS = 30.0  # between two checks for warnings, on the executor's clock
_CONTINUED = {"finish": "to complete the best ones", "promising": "the strategy chose them"}


def log_event(event: events.Event) -> None:
    """Write the line of an event, if the event concerns an operator."""
    if isinstance(event, events.TrialsDispatched):
        for trial, attempt in event.attempts:
            _of_attempt(logging.DEBUG, trial, attempt, "dispatched")
    elif isinstance(event, events.TrialSucceeded | events.TrialFailed | events.TrialStopped):
        _log_end(event)
    elif isinstance(event, events.SessionClosed):
        level = logging.ERROR if event.outcome == "failed" else logging.INFO
        _LOGGER.log(level, "session closed, %s: %s", event.outcome, event.reason)
    elif text := _text(event):
        _LOGGER.info("%s", text)


def _log_end(event: events.TrialSucceeded | events.TrialFailed | events.TrialStopped) -> None:
    took = f"after {duration(max(0.0, event.finished - event.started))} on {event.worker or 'an unknown worker'}"
    if isinstance(event, events.TrialSucceeded):
        _of_attempt(logging.INFO, event.trial, event.attempt, f"succeeded {took}: {event.value:.6g}")
        if event.remark:
            _of_attempt(logging.WARNING, event.trial, event.attempt, event.remark)
    elif isinstance(event, events.TrialStopped):
        word, why = stop_words(event.cause)
        _of_attempt(logging.INFO, event.trial, event.attempt, f"{word} {took}, at step {event.step}{why}")
    else:
        then = "the trial has ended" if event.is_final else "it will be retried"
        text = f"failed ({event.failure}) {took}, {then}: {event.message}"
        _of_attempt(logging.WARNING, event.trial, event.attempt, text)


def _of_attempt(level: int, trial: int, attempt: int, text: str) -> None:
    _LOGGER.log(level, "%s", text, extra={"trial": trial, "attempt": attempt})


def _text(event: events.Event) -> str:
    """Return the line of an event; empty for an event without one."""
    match event:
        case events.SessionOpened():
            adopted = f", {len(event.adopted)} running evaluations adopted" * bool(event.adopted)
            return f"session {event.epoch} opened: {event.executor}, {plural(event.slots, 'worker')}{adopted}"
        case events.ExistingTaken():
            return f"known results: {event}"
        case events.BatchChosen():
            chosen = f"chose {plural(len(event.picks), 'trial')} in {duration(event.seconds)}"
            origins = [(pick.trial, *pick.starts_from) for pick in event.picks if pick.starts_from is not None]
            copies = "".join(f"; trial {trial} starts from trial {of} at step {step}" for trial, of, step in origins)
            return f"{chosen} after {plural(event.round, 'refit')}, {_ENDS.get(event.reason, event.reason)}{copies}"
        case events.ModelRefreshed():
            points = f", {plural(event.dictionary_size, 'inducing point')}" if event.dictionary_size else ""
            learned = f"{plural(len(event.trials), 'result')}{points}"
            return f"refit {event.round} in {duration(event.seconds)}: {learned}"
        case events.CandidatesGrown():
            return f"appended {event.size} candidates, retired {len(event.retired)}, in {duration(event.seconds)}"
        case events.TrialsContinued():
            trials = noun_and_numbers("trial", list(event.trials))
            return f"continued {trials}: {_CONTINUED[event.reason]}"
        case events.CheckpointsRemoved():
            return f"removed the checkpoints of stopped {noun_and_numbers('trial', event.trials)}"
        case events.StopRequested():
            return f"stop requested: {event.reason}; running evaluations are drained"
    return ""


class HealthLog:
    """Writes each warning about the workers and the trainings once while it applies."""

    def __init__(self) -> None:
        self._next_check = 0.0
        self._kinds: set[str] = set()  # the warnings that were written and still apply

    def update(self, campaign: CampaignState, now: float) -> None:
        """Write the warnings that apply at the time `now` and are new, if a check is due."""
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        texts = warnings(campaign, max(0.0, now - campaign.clock.last_time))
        for kind, text in texts.items():
            if kind not in self._kinds:
                _LOGGER.warning("%s", text)
        self._kinds = set(texts)
