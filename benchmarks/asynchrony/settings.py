"""The settings of the comparison: problems × durations × workers, and the methods, which share
their options; only the default of this project differs.

The options: λ, ξ², F and the others have the project's defaults for published settings, which
assume rewards that vary by about 1. The lengthscale of the Gaussian kernel is the power of two with
the largest likelihood on 1000 random arms of the table, given λ and the kernel's variance of 1.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.asynchrony.problems import TABLES, Standardised
from benchmarks.asynchrony.rivals import Barrier, Liar
from benchmarks.papers.campaigns import Comparison, Method
from objectives.reference import did_you_mean
from orchestrator.errors import UserError

RECORDED = "recorded"  # durations recorded in the table

DURATIONS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "constant": {},
        "lognormal-0.5": {"sigma": 0.5},
        "lognormal-1.0": {"sigma": 1.0},
        "bimodal": {"straggler_share": 0.01, "straggler_factor": 20.0},
        RECORDED: {},
    }
)
TIMED = ("cells",)  # problems with recorded durations

LENGTHSCALES: Mapping[str, float] = MappingProxyType({"fcnet": 4.0, "cadata": 4.0, "cells": 8.0})

CALIBRATED = "default"

LABELS: Mapping[str, str] = MappingProxyType(
    {
        CALIBRATED: "calibrated default",
        "async": "asynchronous",
        "global": "asynchronous, global rule",
        "batch": "batch mode",
        "barrier": "fixed batches, barrier",
        "liar": "constant liar",
    }
)


@dataclass(frozen=True)
class Setting:
    """One combination of problem, durations and workers."""

    problem: str
    durations: str
    workers: int
    evaluations: int

    def __str__(self) -> str:
        return f"{self.problem}, {self.durations}, {self.workers} workers"

    @property
    def name(self) -> str:
        """The name of its folders and files."""
        return f"{self.problem}-{self.durations}-{self.workers}"

    def comparison(self, methods: Sequence[str]) -> Comparison:
        """The campaigns of all methods."""
        options = {"table": self.problem, "has_seconds": self.durations == RECORDED}
        simulation = dict(DURATIONS[self.durations])
        workers = {"executor": "simulated", "count": self.workers, "simulation": simulation}
        problem = {"objective": {"name": _reference(Standardised), "options": options}, "workers": workers}
        return Comparison(self.name, problem, [self._method(name) for name in methods])

    def _method(self, name: str) -> Method:
        kernel = {"name": "rbf", "lengthscale": LENGTHSCALES[self.problem]}
        model = {} if name == CALIBRATED else {"kernel": kernel}  # it does not use the published settings
        return Method(name, LABELS[name], {**model, **_STRATEGIES[name](self.workers)})


def _reference(named: type) -> str:
    return f"{named.__module__}:{named.__qualname__}"


_STRATEGIES: Mapping[str, Callable[[int], Mapping[str, object]]] = {
    CALIBRATED: lambda workers: {"name": "bbkb", "mode": "async"},  # the methods of the papers run in batch mode
    "async": lambda workers: {"name": "bbkb", "mode": "async"},
    "global": lambda workers: {"name": "bbkb", "mode": "async", "termination": "global"},
    "batch": lambda workers: {"name": "bbkb", "mode": "batch", "termination": "global"},
    "barrier": lambda workers: {"name": _reference(Barrier), "batch_size": workers},
    "liar": lambda workers: {"name": _reference(Liar)},
}


def horizon(workers: int) -> int:
    """The number of evaluations: 24 for each worker, at least 1000."""
    return max(1000, 24 * workers)


def settings(
    problems: Sequence[str], durations: Sequence[str], workers: Sequence[int], evaluations: int | None = None
) -> list[Setting]:
    """All combinations, the cheapest first: recorded durations for problems that have them, drawn
    ones for the others.

    Raises UserError on unknown names.
    """
    check_known("--problems", problems, tuple(TABLES))
    check_known("--durations", durations, tuple(DURATIONS))
    return [
        Setting(problem, duration, count, evaluations or horizon(count))
        for count in sorted(workers)
        for problem in problems
        for duration in durations
        if (duration == RECORDED) == (problem in TIMED)
    ]


def check_known(option: str, names: Sequence[str], choices: Sequence[str]) -> None:
    """Raise UserError when one of `names` is not in `choices`."""
    for name in names:
        if name not in choices:
            raise UserError(f"{option} must be some of {','.join(choices)}, got {name!r}{did_you_mean(name, choices)}")
