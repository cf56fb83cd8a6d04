"""A problem: a space, and for each point its reward, its regret and the duration of its evaluation.

Regret is in units of (best − median) of the problem, so that problems can be averaged: 0 is the
regret of the best point, and 1 that of the median.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Scalar, Space

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


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    # passed to the method; maximized, in the problem's own units; None if the evaluation failed
    reward: float | None
    expected: float  # the reward without its noise
    regret: float  # the difference from the best reward, in units of (best − median)
    # relative, with a mean of 1 over the problem; None if the problem has no recorded durations
    duration: float | None = None


class Problem(Protocol):
    """A problem with a seed. `arms`: the points that can be evaluated; None: the whole space."""

    @property
    def space(self) -> Space: ...
    @property
    def arms(self) -> Candidates | None: ...
    @property
    def is_deterministic(self) -> bool: ...

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate `point` of the space, with noise from `rng`."""
        ...


class WholeSpace:
    """A base of problems without noise whose whole space can be evaluated."""

    @property
    def is_deterministic(self) -> bool:
        return True

    @property
    def arms(self) -> Candidates | None:
        """None: each point of the space can be evaluated."""
        return None
