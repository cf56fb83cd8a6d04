"""The campaign's events as lines of the operator's log."""

import logging

from orchestrator.campaign.events import (
    BatchChosen,
    CandidatesGrown,
    CheckpointsRemoved,
    Event,
    ExistingTaken,
    ModelRefreshed,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialStopped,
    TrialSucceeded,
)
from orchestrator.campaign.training import stop_words
from orchestrator.wording import duration, noun_and_numbers, plural

_LOGGER = logging.getLogger("bbkb.session")
_ENDS = {  # why a choice had no more trials, in the words of an operator
    "limit": "as many as were asked for",
    "batch size": "a full batch",
    "drift budget": "the next ones wait for results",
    "warm start": "first points",
    "one pull at a time": "one at a time",
}


def log_event(event: Event) -> None:
    """Write the line of an event; events that say nothing to an operator have none."""
    if isinstance(event, TrialsDispatched):
        for trial, attempt in event.attempts:
            _of_attempt(logging.DEBUG, trial, attempt, "dispatched")
    elif isinstance(event, TrialSucceeded | TrialFailed | TrialStopped):
        _log_end(event)
    elif isinstance(event, SessionClosed):
        level = logging.ERROR if event.outcome == "failed" else logging.INFO
        _LOGGER.log(level, "session closed, %s: %s", event.outcome, event.reason)
    elif text := _text(event):
        _LOGGER.info("%s", text)


def _log_end(event: TrialSucceeded | TrialFailed | TrialStopped) -> None:
    """Log the line of an attempt that has ended."""
    took = f"after {duration(max(0.0, event.finished - event.started))} on {event.worker or 'an unknown worker'}"
    if isinstance(event, TrialSucceeded):
        _of_attempt(logging.INFO, event.trial, event.attempt, f"succeeded {took}: {event.value:.6g}")
        if event.remark:
            _of_attempt(logging.WARNING, event.trial, event.attempt, event.remark)
    elif isinstance(event, TrialStopped):
        word, why = stop_words(event.cause)
        _of_attempt(logging.INFO, event.trial, event.attempt, f"{word} {took}, at step {event.step}{why}")
    else:
        then = "the trial has ended" if event.is_final else "it will be tried again"
        text = f"failed ({event.failure}) {took}, {then}: {event.message}"
        _of_attempt(logging.WARNING, event.trial, event.attempt, text)


def _of_attempt(level: int, trial: int, attempt: int, text: str) -> None:
    _LOGGER.log(level, "%s", text, extra={"trial": trial, "attempt": attempt})


def _text(event: Event) -> str:
    match event:
        case SessionOpened():
            adopted = f", {len(event.adopted)} running evaluations adopted" if event.adopted else ""
            return f"session {event.epoch} opened: {event.executor}, {plural(event.slots, 'worker')}{adopted}"
        case ExistingTaken():
            return f"existing data: {event}"
        case BatchChosen(picks=picks):
            chose = f"chose {plural(len(picks), 'trial')} in {duration(event.seconds)}"
            return f"{chose} after {plural(event.round, 'refit')}, {_ENDS.get(event.reason, event.reason)}"
        case ModelRefreshed():
            points = f", {plural(event.dictionary_size, 'inducing point')}" if event.dictionary_size else ""
            learned = f"{plural(len(event.trials), 'result')}{points}"
            return f"refit {event.round} in {duration(event.seconds)}: {learned}"
        case CandidatesGrown():
            return f"appended {event.size} candidates, retired {len(event.retired)}, in {duration(event.seconds)}"
        case TrialsContinued():
            why = "to complete the best ones" if event.reason == "finish" else "the model expects much of them"
            return f"continued {noun_and_numbers('trial', [again.trial for again in event.trials])}: {why}"
        case CheckpointsRemoved():
            return f"removed the checkpoints of stopped {noun_and_numbers('trial', event.trials)}"
        case StopRequested():
            return f"stop requested: {event.reason}; running evaluations are drained"
        case _:
            return ""
