"""Learning curves: the values that trials report at steps of a training, thinned to geometric
steps.

A trial contributes the first value in each octave of steps (1, 2–3, 4–7, …) and its latest value.
More values of one curve hardly change a model, and the number of values grows with the logarithm of
the number of steps.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain

import numpy as np

from bbkb.orchestrator.bandit.arrays import Flags, Floats, Indices, same
from bbkb.orchestrator.bandit.results import TrialCurve

# the number of bits for the step in the code of a pair (trial, step); smaller codes are arms
_PAIR_SHIFT = 40
# the least number of trials with a value from `learned_from` on that are learned alone
_LEAST_LEARNED = 4


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of all trials that a strategy knows."""

    # trial → curve; never modified (a plain dictionary, so that a state can be pickled)
    by_trial: Mapping[int, TrialCurve] = field(default_factory=dict)
    last_step: int | None = None  # the step at which a training ends; None if it is not given
    # the first step whose values tell something about final ones; 0 if all do
    learned_from: int = 0

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def updated(
        self, curves: Iterable[TrialCurve], last_step: int | None = None, learned_from: int = 0
    ) -> "Curves":  # fmt: skip
        """Return these curves, with those of some trials replaced by `curves`."""
        changed = {curve.trial: curve for curve in curves if curve.steps}
        if not changed and (last_step, learned_from) == (self.last_step, self.learned_from):
            return self
        return Curves({**self.by_trial, **changed}, last_step, learned_from)

    @cached_property
    def learned(self) -> "Curves":
        """The curves without their values before `learned_from`, or all values if too few trials
        have a later one. Of finished and diverged trials, the latest value is kept in any case.
        """
        if not self.learned_from:
            return self
        later = {trial: _since(curve, self.learned_from) for trial, curve in self.by_trial.items()}
        kept = {trial: curve for trial, curve in later.items() if curve.steps}
        return Curves(kept, self.end) if len(kept) >= _LEAST_LEARNED else self

    @cached_property
    def end(self) -> int:
        """The step whose value is maximized: `last_step` if given, else the largest step of a
        finished trial, else the largest step of all; 1 if there is no step."""
        if self.last_step is not None:
            return self.last_step
        finished = max((curve.step for curve in self.by_trial.values() if curve.is_finished), default=0)
        return finished or max((curve.step for curve in self.by_trial.values()), default=1)

    @cached_property
    def first(self) -> int:
        """The smallest step of all curves; 1 if there is no step."""
        return min((curve.steps[0] for curve in self.by_trial.values()), default=1)

    @cached_property
    def is_informative(self) -> bool:
        """Whether a value was reported before the last step, so that there is a curve to model."""
        return bool(self.by_trial) and self.first < self.end

    def within(self, values: int) -> "Curves":
        """Return these curves with at most this number of `values` in addition to each trial's
        latest value. Older trials keep only their latest value.

        The newest trials are those that a search may stop or continue. The limit bounds the time of
        a fit.
        """
        if sum(len(curve.steps) for curve in self.by_trial.values()) <= values:
            return self
        kept: dict[int, TrialCurve] = {}
        for trial in sorted(self.by_trial, reverse=True):
            curve = self.by_trial[trial]
            values -= len(curve.steps)
            is_whole = values >= 0
            kept[trial] = curve if is_whole else replace(curve, steps=curve.steps[-1:], rewards=curve.rewards[-1:])
        return Curves(kept, self.end)

    @cached_property
    def trials(self) -> tuple[TrialCurve, ...]:
        """The curves in the order of their trials. If a trial has diverged, its latest value is
        replaced by the smallest reward of any trial up to that step."""
        ordered = [self.by_trial[trial] for trial in sorted(self.by_trial)]
        if not any(curve.has_diverged for curve in ordered):
            return tuple(ordered)
        pairs = sorted(pair for curve in ordered for pair in zip(curve.steps, curve.rewards, strict=True))
        steps = [step for step, _ in pairs]
        smallest = list(accumulate((reward for _, reward in pairs), min))
        return tuple(
            replace(curve, rewards=(*curve.rewards[:-1], smallest[bisect_right(steps, curve.step) - 1]))
            if curve.has_diverged
            else curve
            for curve in ordered
        )


def _since(curve: TrialCurve, first: int) -> TrialCurve:
    """Return `curve` without its values before the step `first`, except for its last one if it has
    finished or diverged."""
    at = bisect_left(curve.steps, first)
    if curve.is_finished or curve.has_diverged:
        at = min(at, len(curve.steps) - 1)
    return replace(curve, steps=curve.steps[at:], rewards=curve.rewards[at:])


@dataclass(frozen=True, eq=False)
class CurveValues:
    """All values of some trials as arrays, sorted by trial."""

    sizes: Indices  # (n,), the number of values of each trial, ≥ 1
    arms: Indices  # (n,), each trial's candidate
    # (n,), the number of evaluations behind each trial: 1, except for results without a curve
    weights: Floats
    numbers: Indices  # (N,), the code of each pair (trial, step); see `pair_numbers`
    steps: Floats  # (N,), the steps as floats
    rewards: Floats  # (N,), the rewards
    is_finished: Flags  # (n,), whether a trial's last value is its final value
    trials: Indices  # (n,), the trials' indices

    @staticmethod
    def of(curves: Curves, arms: Indices, rewards: Floats, weights: Floats) -> "CurveValues":
        """Return the values of `curves` and one value at the last step for each of `arms` (p,): the
        mean `rewards` (p,) of `weights` (p,) evaluations without a curve."""
        trials = curves.trials
        sizes = np.fromiter((len(curve.steps) for curve in trials), np.intp, len(trials))
        steps = np.fromiter(chain.from_iterable(curve.steps for curve in trials), np.float64)
        values = np.fromiter(chain.from_iterable(curve.rewards for curve in trials), np.float64)
        numbers = np.fromiter((curve.trial for curve in trials), np.intp, len(trials))
        owners = np.fromiter((curve.arm for curve in trials), np.intp, len(trials))
        finished = np.fromiter((curve.is_finished for curve in trials), np.bool_, len(trials))
        further = np.ones(len(arms))
        return CurveValues(
            sizes=np.concatenate((sizes, further.astype(np.intp))),
            arms=np.concatenate((owners, arms)),
            weights=np.concatenate((np.ones(len(trials)), weights)),
            numbers=np.concatenate((pair_numbers(np.repeat(numbers, sizes), steps), arms)),
            steps=np.concatenate((steps, further * curves.end)),
            rewards=np.concatenate((values, rewards)),
            is_finished=np.concatenate((finished, further.astype(np.bool_))),
            trials=np.concatenate((numbers, np.full(len(arms), -1, np.intp))),
        )

    @cached_property
    def last(self) -> Indices:
        """The positions (n,) of the trials' latest values."""
        return np.cumsum(self.sizes) - 1

    @cached_property
    def owners(self) -> Indices:
        """The position (N,) of each value's trial."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def take(self, trials: Indices) -> "CurveValues":
        """Return the values of the trials at these positions (k,), ascending."""
        is_taken = np.zeros(len(self.sizes), np.bool_)
        is_taken[trials] = True
        values = is_taken[self.owners]
        return CurveValues(
            sizes=self.sizes[trials],
            arms=self.arms[trials],
            weights=self.weights[trials],
            numbers=self.numbers[values],
            steps=self.steps[values],
            rewards=self.rewards[values],
            is_finished=self.is_finished[trials],
            trials=self.trials[trials],
        )


def pair_numbers(trials: Indices, steps: Floats) -> Indices:
    """Return the codes (n,) of pairs (trial, step), (trial + 1) · 2⁴⁰ + step, which differ from all
    indices of arms."""
    numbers: Indices = ((trials + 1) << _PAIR_SHIFT) + steps.astype(np.intp)
    return numbers


def is_pair(numbers: Indices) -> Flags:
    """Return a mask (n,) of the pairs among the codes `numbers` (n,); the other codes are arms."""
    flags: Flags = numbers >= (1 << _PAIR_SHIFT)
    return flags


def trials_and_steps(numbers: Indices) -> tuple[Indices, Floats]:
    """Return the trials (n,) and steps (n,) of the pairs with these codes (n,)."""
    trials: Indices = (numbers >> _PAIR_SHIFT) - 1
    return trials, (numbers & ((1 << _PAIR_SHIFT) - 1)).astype(np.float64)
