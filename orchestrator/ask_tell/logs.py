"""The log of a search as plain values: its events, or the calls that version 0.2.0 recorded."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.ask_tell.memory import PENDING, ArmResult
from orchestrator.ask_tell.saving import Entry
from orchestrator.ask_tell.search import Search, existing_event
from orchestrator.bandit.strategy import Observation
from orchestrator.campaign.events import Event, ReportsArrived, TrialsDispatched
from orchestrator.campaign.trainings.reports import StepReport
from orchestrator.candidates.pool import Appended


def dump_log(events: Sequence[Event]) -> list[list[Any]]:
    """Return the kind and the fields of each event."""
    # imported here, because only saving needs pydantic
    from orchestrator.campaign.event_json import body_of

    return [[event.kind, json.loads(body_of(event))] for event in events]


def repeat_log(search: Search, saved: Mapping[str, Any]) -> None:
    """Repeat the log of a saved optimizer in `search`. Nothing is drawn, fitted, or decided again."""
    from orchestrator.campaign.event_json import event_of

    if saved.get("format", 1) == 1:
        repeat_calls(search, saved["log"])
    else:
        for kind, body in saved["log"]:
            search.repeat(event_of(kind, json.dumps(body)))


def repeat_calls(search: Search, entries: Sequence[Entry]) -> None:
    """Repeat the calls that version 0.2.0 recorded."""
    for entry in entries:
        for key, repeat in _REPEATS.items():
            if key in entry:
                repeat(search, entry[key], entry)


def _existing(search: Search, pairs: Sequence[Sequence[Any]], _: Entry) -> None:
    search.take(existing_event([Observation(int(arm), float(reward)) for arm, reward in pairs]))


def _asked(search: Search, arms: Sequence[Any], _: Entry) -> None:
    enqueued = search.campaign.state.backlog[: len(arms)]
    if enqueued:
        attempts = tuple((attempt.trial, attempt.attempt) for attempt in enqueued)
        search.take(TrialsDispatched(time=0.0, attempts=attempts))
    else:
        _expected(search, arms, {})


def _expected(search: Search, arms: Sequence[Any], _: Entry) -> None:
    search.mark_pending([int(arm) for arm in arms])


def _appended(search: Search, columns: Mapping[str, Any], entry: Entry) -> None:
    search.append(Appended(columns, tuple(int(arm) for arm in entry["retired"])))


def _told(search: Search, results: Sequence[Sequence[Any]], _: Entry) -> None:
    metric = search.campaign.rules.goals.objectives[0].metric
    search.tell([_result(int(arm), value, metric) for arm, value in results])


def _reported(search: Search, report: Sequence[Any], _: Entry) -> None:
    arm, step, value = int(report[0]), int(report[1]), float(report[2])
    (trial,) = search.campaign.start([arm], PENDING)
    entry = StepReport(trial, search.campaign.attempt(trial), step, value)
    search.take(ReportsArrived(time=0.0, reports=(entry,)))


def _stopped(search: Search, arm: Any, entry: Entry) -> None:
    trial = search.campaign.running_trial(int(arm))
    if entry["continues"] and trial is not None:
        search.campaign.stop(trial, "")
    else:
        search.stop(int(arm))


def _record(search: Search, record: Mapping[str, Any], _: Entry) -> None:
    search.learner.restore(record)
    search.take(search.learner.refreshed(record))


_REPEATS: Mapping[str, Callable[[Search, Any, Entry], None]] = {
    "existing": _existing,
    "asked": _asked,
    "expected": _expected,
    "appended": _appended,
    "told": _told,
    "reported": _reported,
    "stopped": _stopped,
    "record": _record,
}


def _result(arm: int, value: Any, metric: str) -> ArmResult:
    if isinstance(value, Mapping):
        metrics = {str(name): float(number) for name, number in value.items() if name != metric}
        return ArmResult(arm, float(value[metric]), metrics)
    return ArmResult(arm, None if value is None else float(value))
