"""The calls in saved files of version 0.2.0."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.ask_tell.memory import ArmResult
from orchestrator.ask_tell.search import Search, existing_event
from orchestrator.candidates.pool import Appended


def repeat_calls(search: Search, entries: Sequence[Mapping[str, Any]]) -> None:
    """Repeat the calls that version 0.2.0 recorded. Nothing is drawn, fitted or decided again."""
    for entry in entries:
        if entry.keys().isdisjoint(_CALLS):
            raise ValueError(f"its log has the unknown calls {', '.join(entry)}")
        for key, repeat in _CALLS.items():
            if key in entry:
                repeat(search, entry[key], entry)


def _asked(search: Search, arms: Sequence[Any], _: object) -> None:
    enqueued = search.campaign.state.backlog[: len(arms)]
    if enqueued:
        search.campaign.dispatch(each.trial for each in enqueued)
    else:
        search.mark_pending([int(arm) for arm in arms])


def _told(search: Search, results: Sequence[Sequence[Any]], _: object) -> None:
    metric = search.campaign.rules.goals.objectives[0].metric
    search.tell([_result(int(arm), value, metric) for arm, value in results])


def _result(arm: int, value: Any, metric: str) -> ArmResult:
    if isinstance(value, Mapping):
        metrics = {str(name): float(number) for name, number in value.items()}
        return ArmResult(arm, metrics.pop(metric), metrics)
    return ArmResult(arm, None if value is None else float(value))


def _learned(search: Search, record: Mapping[str, Any], _: object) -> None:
    search.learner.restore(record)
    search.take(search.learner.refreshed(record))


_CALLS: Mapping[str, Callable[[Search, Any, Mapping[str, Any]], object]] = {
    "existing": lambda search, pairs, _: search.take(
        existing_event([ArmResult(int(arm), float(reward)) for arm, reward in pairs])
    ),
    "asked": _asked,
    "expected": lambda search, arms, _: search.mark_pending([int(arm) for arm in arms]),
    "appended": lambda search, columns, entry: search.append(
        Appended(columns, tuple(int(arm) for arm in entry["retired"]))
    ),
    "told": _told,
    "record": _learned,
}
