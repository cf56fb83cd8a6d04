"""Stop conditions for evaluations that are not worth their cost: the best value has not improved,
or the model expects little gain.

`budget.stop_when` has two rules. `{no_gain_of: 0.001, in: 64}` stops if the best value has improved
by less than 0.001 in 64 evaluations. `{expected_gain_below: noise, patience: 2}` stops if the
model's largest upper bound exceeded the best value by less than the noise in all choices of the
last two rounds. A round has a choice for each worker, and at least `LEAST_ROUND`.
"""

from dataclasses import dataclass, replace
from typing import Self

from bbkb.orchestrator.campaign.endings import StopReason
from bbkb.orchestrator.campaign.settings import StopWhen

LEAST_ROUND = 8  # the least number of choices in a round


@dataclass(frozen=True, slots=True)
class Gains:
    """Past gains, and the model's estimate of further gains."""

    best: float | None = None  # the best reward; None before the first one
    risen_at: int = 0  # the number of results at its last rise
    anchor: float | None = None  # the best reward after its last rise by `no_gain_of`
    anchored_at: int = 0  # the number of ended trials at that time
    # the difference between the model's largest upper bound and the best value at the last choice;
    # None if unknown
    possible: float | None = None
    noise: float | None = None  # the standard deviation of a value's noise
    calm: int = 0  # the number of choices in a row with a possible gain that was too small

    def after_result(self, reward: float, results: int, ended: int, rule: StopWhen | None) -> Self:
        """Return a copy after the `results`-th result, which ended the `ended`-th trial."""
        if self.best is not None and reward <= self.best:
            return self
        least = 0.0 if rule is None or rule.no_gain_of is None else rule.no_gain_of
        if self.anchor is not None and reward - self.anchor < least:
            return replace(self, best=reward, risen_at=results)
        return replace(self, best=reward, risen_at=results, anchor=reward, anchored_at=ended)

    def after_choice(self, picks: int, possible: float | None, noise: float | None, rule: StopWhen | None) -> "Gains":
        """Return a copy after a choice of `picks` trials.

        `possible` and `noise` are None if the strategy does not know them.
        """
        if possible is None:
            return replace(self, calm=0) if self.calm and picks else self
        threshold = None if rule is None else rule.expected_gain_below
        least = noise if threshold == "noise" else threshold
        is_calm = isinstance(least, float | int) and possible < least
        return replace(self, possible=possible, noise=noise, calm=self.calm + picks if is_calm else 0)

    def stop_reason(self, rule: StopWhen | None, ended: int, workers: int) -> StopReason | None:
        """Return why no trial starts after `ended` trials have ended; None if trials may start."""
        if rule is None or self.anchor is None:
            return None
        if rule.within is not None and ended - self.anchored_at >= rule.within:
            return StopReason.NO_GAIN
        if rule.expected_gain_below is not None and self.calm >= rule.patience * max(workers, LEAST_ROUND):
            return StopReason.LITTLE_LEFT
        return None
