"""A problem: a space, and for each point its reward, its regret and the duration of its evaluation.

Regret is in units of (best − median) of the problem, so that problems can be averaged: 0 is the
regret of the best point, and 1 that of the median. With several objectives, or constraints, it is
the loss of hypervolume by the feasible results: 0 for the best known results, 1 for none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Parameter, Scalar, Space
from benchmarks.tables import Floats

Point = Mapping[str, Scalar]


class Group(StrEnum):
    """Problems that are averaged together."""

    TABLES = "tables"
    FUNCTIONS = "functions"
    NOISY = "noisy functions"
    BBOB = "bbob functions"
    MIXINT = "mixint functions"
    LCBENCH = "lcbench"
    RBV2 = "learners"
    OLYMPUS = "experiments"
    TRAININGS = "trainings"
    ODD = "odd problems"
    ODD_NOISY = "odd problems with noise"
    ENGINEERING = "engineering"
    MARGINS = "constraints as margins"
    VIOLATIONS = "constraints as violations"
    TOTAL = "constraints as one total"


SEVERAL = (Group.ENGINEERING, Group.MARGINS, Group.VIOLATIONS, Group.TOTAL)  # with several objectives or constraints


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    # one for each objective, passed to the method; maximized, in the problem's own units; None if the evaluation failed
    rewards: tuple[float, ...] | None
    regret: float  # without noise
    # relative, with a mean of 1 over the problem; None if the problem has no recorded durations
    duration: float | None = None
    margins: tuple[float, ...] = ()  # one for each constraint, satisfied if at most 0; passed to the method

    @property
    def is_feasible(self) -> bool:
        """Whether the evaluation succeeded and all constraints are satisfied."""
        return self.rewards is not None and all(margin <= 0.0 for margin in self.margins)


@dataclass(frozen=True)
class Several:
    """Several objectives, or constraints."""

    objectives: int
    constraints: int
    loss: Callable[[Sequence[Evaluation]], float]  # the regret of all these results together


class Problem(Protocol):
    """A problem with a seed. `arms`: the points that can be evaluated; None: the whole space.
    `several`: None for one objective without constraints."""

    @property
    def space(self) -> Space: ...
    @property
    def arms(self) -> Candidates | None: ...
    @property
    def is_deterministic(self) -> bool: ...
    @property
    def several(self) -> Several | None: ...

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate `point` of the space, with noise from `rng`."""
        ...


class WholeSpace:
    """A base of problems without noise, with one objective, whose whole space can be evaluated."""

    @property
    def is_deterministic(self) -> bool:
        return True

    @property
    def arms(self) -> Candidates | None:
        """None: each point of the space can be evaluated."""
        return None

    @property
    def several(self) -> Several | None:
        """None: there is one objective, and no constraint."""
        return None


def numbered(parameters: Sequence[Parameter]) -> Space:
    """The space of the parameters x0, x1, …"""
    return {f"x{place}": parameter for place, parameter in enumerate(parameters)}


def vector(point: Point, dimension: int) -> Floats:
    """The first `dimension` numbers x0, x1, … of a point."""
    return np.array([point[f"x{place}"] for place in range(dimension)], np.float64)
