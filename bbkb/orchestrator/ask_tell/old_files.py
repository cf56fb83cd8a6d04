"""Saved files and pickles of version 0.2.0: the recorded calls, and the old names of modules."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from bbkb.orchestrator.ask_tell.memory import ArmResult
from bbkb.orchestrator.ask_tell.search import Search, existing_event
from bbkb.orchestrator.candidates.pool import Appended

_TO_PAPERS = (
    "exact.compressed",
    "regions.boxes",
    "regions.shrinking",
    "strategies.adaptive_discretization",
    "strategies.compressed_ei",
    "strategies.compressed_mpi",
    "strategies.compressed_ucb",
    "strategies.epsilon_greedy",
    "strategies.gp_threds",
    "strategies.igp_ucb",
    "strategies.regularized_evolution",
)
_MOVED = {  # old name of a module → new name
    f"bbkb.orchestrator.bandit.{old}": f"{room}.{old.partition('.')[2]}"
    for room, modules in (
        ("bbkb.orchestrator.bandit.papers", _TO_PAPERS),
        ("bbkb.orchestrator.interop", ("strategies.optuna_coding", "strategies.optuna_sampler")),
    )
    for old in modules
}


class _MovedModule(ModuleType):
    """A module under its old name, which has the names of the new module."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(_MOVED[self.__name__]), name)


def find_old_names() -> None:
    """Make the old names, to which pickled optimizers refer, importable."""
    for name in _MOVED:
        sys.modules.setdefault(name, _MovedModule(name))


def repeat_calls(search: Search, entries: Sequence[Mapping[str, Any]]) -> None:
    """Repeat the calls that version 0.2.0 recorded. Nothing is drawn, fitted or decided again."""
    for entry in entries:
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


def _stopped(search: Search, arm: int, entry: Mapping[str, Any]) -> None:
    trial = search.campaign.running_trial(arm)
    if entry["continues"] and trial is not None:
        search.campaign.stop(trial, "")
    else:
        search.stop(arm)


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
    "reported": lambda search, report, _: search.record(int(report[0]), int(report[1]), float(report[2]), {}),
    "stopped": _stopped,
    "record": _learned,
}
