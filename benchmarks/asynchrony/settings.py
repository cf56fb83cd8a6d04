"""What is compared: problems × durations × workers, and methods that share their options but for the default.

How the options were chosen: λ, ξ², F and the rest are the product's defaults, which are meant for rewards that vary by
about 1. The Gaussian kernel's lengthscale is the power of two at which, given λ, 1000 random arms of the table make a
signal's variance of 1 likeliest, which is the kernel's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.asynchrony.problems import TABLES, Standardised
from benchmarks.asynchrony.rivals import Barrier, Liar
from benchmarks.papers.campaigns import Comparison, Method
from objectives.reference import did_you_mean
from orchestrator.errors import UserError

RECORDED = "recorded"  # durations out of the table

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
    """One cell of the comparison."""

    problem: str
    durations: str
    workers: int
    evaluations: int

    def __str__(self) -> str:
        return f"{self.problem}, {self.durations}, {self.workers} workers"

    @property
    def name(self) -> str:
        """For folders and files."""
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
        given = {} if name == CALIBRATED else {"kernel": kernel}  # which leaves the published settings
        return Method(name, LABELS[name], {**given, **_STRATEGIES[name](self.workers)})


def _reference(named: type) -> str:
    return f"{named.__module__}:{named.__qualname__}"


_STRATEGIES: Mapping[str, Callable[[int], Mapping[str, object]]] = {
    CALIBRATED: lambda workers: {"name": "bbkb", "mode": "async"},  # the papers' methods are in batch mode
    "async": lambda workers: {"name": "bbkb", "mode": "async"},
    "global": lambda workers: {"name": "bbkb", "mode": "async", "termination": "global"},
    "batch": lambda workers: {"name": "bbkb", "mode": "batch", "termination": "global"},
    "barrier": lambda workers: {"name": _reference(Barrier), "batch_size": workers},
    "liar": lambda workers: {"name": _reference(Liar)},
}


def horizon(workers: int) -> int:
    """Evaluations: 24 rounds of all workers, and 1000 at least."""
    return max(1000, 24 * workers)


def settings(
    problems: Sequence[str], durations: Sequence[str], workers: Sequence[int], evaluations: int | None = None
) -> list[Setting]:
    """Every combination there is, the cheapest first: recorded durations for problems that have them, drawn ones for
    the others. Raises UserError on unknown names."""
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
    """Raise UserError when one of `names` is none of `choices`."""
    for name in names:
        if name not in choices:
            raise UserError(f"{option} must be some of {','.join(choices)}, got {name!r}{did_you_mean(name, choices)}")
