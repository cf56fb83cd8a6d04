"""The results from which strategies learn: of completed pulls, and of trainings at their steps.

This module does not import numpy, so that commands that only read a log start quickly.
"""

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Self

LARGEST_REWARD = 1e300  # larger magnitudes, up to the largest float, are reduced to this value


@dataclass(frozen=True, slots=True)
class Observation:
    """A pull that has ended.

    Attributes:
        arm: the arm pulled.
        reward: larger is better; None if the arm could not be evaluated and is therefore set aside.
        further: rewards of further objectives, then margins of constraints, if there are any
            (`goals`); empty for a pull that was stopped early.
        is_existing: whether it is from existing data, which may contain copies, rather than from
            this search.
        is_stopped: whether it was stopped early; its reward is then that of an incomplete
            evaluation.
        deviation: the standard deviation of the reward's noise, ≥ 0, if it is known.
    """

    arm: int
    reward: float | None
    further: tuple[float, ...] = ()
    is_existing: bool = False
    is_stopped: bool = False
    deviation: float | None = None


class Turn(IntEnum):
    """Whether a free worker starts a new trial or continues a paused one."""

    NEW_FIRST = 0  # it continues none
    BY_BOUND = 1  # the trial with the largest upper bound comes next
    PAUSED_FIRST = 2  # it continues the paused trial with the largest upper bound


@dataclass(frozen=True, slots=True)
class TrialCurve:
    """The values of a trial that a model learns."""

    trial: int  # the trial's index, ≥ 0
    arm: int  # the candidate that it trains
    steps: tuple[int, ...] = ()  # steps ≥ 1, ascending
    rewards: tuple[float, ...] = ()  # the reward at each of these steps (larger is better)
    is_finished: bool = False  # whether the last reward is the trial's final value
    has_diverged: bool = False  # whether a later report was not finite

    @property
    def step(self) -> int:
        """The latest step; 0 before the first report."""
        return self.steps[-1] if self.steps else 0

    def after(self, step: int, reward: float) -> Self:
        """Return the curve with a further value.

        A step that is not larger than the latest one changes nothing, because a trial that
        continues from a checkpoint repeats steps. A reward that is not finite is not added as a
        value, but is recorded until the next finite one.
        """
        if step <= self.step or step < 1:
            return self
        if not math.isfinite(reward):
            return replace(self, has_diverged=True)
        reward = min(max(reward, -LARGEST_REWARD), LARGEST_REWARD)
        length = len(self.steps)
        if length > 1 and self.steps[-1].bit_length() == self.steps[-2].bit_length():
            length -= 1  # the latest value is not the first value of its octave
        return replace(
            self, steps=(*self.steps[:length], step), rewards=(*self.rewards[:length], reward), has_diverged=False
        )

    def is_continued_at(self, step: int) -> bool:
        """Return whether a training whose first report is at `step` continues this curve, rather
        than restarting. A curve with a single value is assumed to be continued."""
        return bool(self.steps) and (len(self.steps) == 1 or step > self.steps[0])

    def end(self, reward: float, last_step: int | None = None) -> Self:
        """Return the finished curve with its final value. The value belongs to the latest step, or
        to `last_step` if nothing was reported."""
        step = self.step or last_step or 1
        return replace(
            self,
            steps=(*self.steps[:-1], step),
            rewards=(*self.rewards[:-1], min(max(reward, -LARGEST_REWARD), LARGEST_REWARD)),
            is_finished=True,
            has_diverged=False,
        )


@dataclass(frozen=True, slots=True)
class CurveUpdate:
    """The state of the trainings before the next `tell` of a strategy."""

    # the curves of the running, stopped and finished trials that reported since the last update
    curves: tuple[TrialCurve, ...]
    # all trials that were stopped and may be continued; their configurations are not started again
    paused: tuple[int, ...]
    last_step: int | None = None  # the step at which a training ends, if it is given
    # whether `ask` may or must choose paused trials; if it may not, the caller continues them
    compete: Turn = Turn.BY_BOUND
    learned_from: int = 0  # the first step whose values tell something about final ones; 0 if all do
