"""Events of the campaign as lines of the operator's log."""

import logging
from functools import singledispatch

from orchestrator.campaign import events
from orchestrator.campaign.trainings.rule import stop_words
from orchestrator.wording import duration, noun_and_numbers, plural

_LOGGER = logging.getLogger("bbkb.session")
_ENDS = {  # the reason for the end of a batch, in words for an operator
    "limit": "as many as were requested",
    "batch size": "a full batch",
    "drift budget": "further ones wait for results",
    "warm start": "first points",
    "one pull at a time": "one at a time",
}


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
    """Log the end of an attempt."""
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


@singledispatch
def _text(event: events.Event) -> str:
    """Return the line of an event; empty for an event without one."""
    return ""


@_text.register
def _(event: events.SessionOpened) -> str:
    adopted = f", {len(event.adopted)} running evaluations adopted" if event.adopted else ""
    return f"session {event.epoch} opened: {event.executor}, {plural(event.slots, 'worker')}{adopted}"


@_text.register
def _(event: events.ExistingTaken) -> str:
    return f"existing data: {event}"


@_text.register
def _(event: events.BatchChosen) -> str:
    chosen = f"chose {plural(len(event.picks), 'trial')} in {duration(event.seconds)}"
    copies = "".join(f"; trial {pick.trial} {pick.copied}" for pick in event.picks if pick.copied)
    return f"{chosen} after {plural(event.round, 'refit')}, {_ENDS.get(event.reason, event.reason)}{copies}"


@_text.register
def _(event: events.ModelRefreshed) -> str:
    points = f", {plural(event.dictionary_size, 'inducing point')}" if event.dictionary_size else ""
    learned = f"{plural(len(event.trials), 'result')}{points}"
    return f"refit {event.round} in {duration(event.seconds)}: {learned}"


@_text.register
def _(event: events.CandidatesGrown) -> str:
    retired = len(event.retired)
    return f"appended {event.size} candidates, retired {retired}, in {duration(event.seconds)}"


@_text.register
def _(event: events.TrialsContinued) -> str:
    trials = noun_and_numbers("trial", [again.trial for again in event.trials])
    why = "to complete the best ones" if event.reason == "finish" else "the strategy chose them"
    return f"continued {trials}: {why}"


@_text.register
def _(event: events.CheckpointsRemoved) -> str:
    return f"removed the checkpoints of stopped {noun_and_numbers('trial', event.trials)}"


@_text.register
def _(event: events.StopRequested) -> str:
    return f"stop requested: {event.reason}; running evaluations are drained"
