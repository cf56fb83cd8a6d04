"""The results of a campaign: a trial as a value for users' code, the Pareto front with its hypervolume, and
past and expected gains.

Hypervolume: the volume of the region between the points of a front and a reference point that is worse
than all of them. Exact up to `MOST_EXACT` objectives. The time grows exponentially with their number, so
that of more is estimated from `SAMPLES` points, always the same ones. Two objectives are swept over. More
are cut into slices along the last objective, so that one objective fewer remains in each slice
(While, Hingston, Barone, Huband 2006, "A faster algorithm for calculating hypervolume"). Each slice
reuses the front of the previous one, so the number of steps for three objectives is quadratic in the
number of points.

Gains: `budget.stop_when` has two rules. `{no_gain_of: 0.001, in: 64}` stops if the best value has improved
by less than 0.001 in 64 evaluations. `{expected_gain_below: noise}` stops if the model's largest upper
bound exceeded the best value by less than the noise in all choices of the last `PATIENCE` rounds. A
round has a choice for each worker, and at least `LEAST_ROUND`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import ge
from typing import Any, Self, TypeAlias

from bbkb.objectives.parameters import Parameters, as_given
from bbkb.orchestrator.campaign.events import StopReason
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.settings import Settings, StopWhen


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """One trial with its result.

    Args:
        trial: its index; None for a result that was known before the campaign.
        parameters: the configuration.
        value: the result, on the user's scale; None if the trial failed. For a recommended
            configuration with several evaluations, it is their mean.
        status: queued, running, succeeded, stopped or failed; existing if the result was known
            before the campaign.
        metrics: the numbers that the objective returned beside its value; with several objectives,
            the values of all of them.
        seconds: the duration of its last finished attempt; None before the first one has finished.
        error: the cause of its failure; empty if a later attempt succeeded.
        is_feasible: whether the result satisfies all constraints; None if there are no constraints
            or there is no result.
        estimate: the model's estimate of the noise-free value; None if the values are not noisy or
            the model is unknown.
        deviation: the standard deviation of `estimate`; None if there is no estimate.
        evaluations: the number of evaluations whose mean is `value`.
    """

    trial: int | None
    parameters: Mapping[str, Any]
    value: float | None
    status: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""
    is_feasible: bool | None = None
    estimate: float | None = None
    deviation: float | None = None
    evaluations: int = 1


Trials: TypeAlias = tuple[TrialResult, ...]


def trial_result(
    settings: Settings,
    trial: int | None,
    parameters: Parameters,
    status: str,
    value: float | None,
    metrics: Mapping[str, float] | None = None,
    seconds: float | None = None,
    error: str = "",
) -> TrialResult:
    """Return a trial for users' code: with the values of parameters that the user gave and, with several
    goals, with the first objective among the metrics."""
    goals, metrics = settings.goals, metrics or {}
    with_first = metrics if value is None or goals.is_single else {goals.objectives[0].metric: value, **metrics}
    return TrialResult(
        trial=trial,
        parameters=as_given(settings.space, parameters),
        value=value,
        status=status,
        metrics=with_first,
        seconds=seconds,
        error=error,
        is_feasible=goals.feasibility(value, metrics) if value is not None and status == "succeeded" else None,
    )


Point = tuple[float, ...]

MOST_EXACT = 4  # objectives
SAMPLES = 5_000  # the relative error of the estimate is about √((1 − s)/s/SAMPLES), with s its share of the box


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the volume of the region that is worse than one of `points` (n, J) and better than
    `reference` (J,).

    All are rewards to maximize; J >= 1. Points that are not better than the reference in every
    objective do not count.
    """
    inside = {
        tuple(value - least for value, least in zip(point, reference, strict=True))
        for point in points
        if all(value > least for value, least in zip(point, reference, strict=True))
    }
    if len(reference) > MOST_EXACT and inside:
        return _estimate(sorted(inside))
    return _volume(sorted(inside, key=lambda point: point[-1], reverse=True))


def _estimate(points: Sequence[Point]) -> float:
    """Return the estimated volume above the origin of at least one point.

    The samples are a Kronecker sequence, whose steps are the powers of the root of x^(J+1) = x + 1.
    """
    size = len(points[0])
    root = 2.0
    for _ in range(50):
        root = (1.0 + root) ** (1.0 / (size + 1))
    box = [max(point[axis] for point in points) for axis in range(size)]
    steps = [root ** -(axis + 1) for axis in range(size)]
    inside = 0
    for number in range(1, SAMPLES + 1):
        sample = [(number * step % 1.0) * length for step, length in zip(steps, box, strict=True)]
        inside += any(all(map(ge, point, sample)) for point in points)
    return math.prod(box) * inside / SAMPLES


def _volume(points: Sequence[Point]) -> float:
    """Return the volume above the origin of points in descending order of their last objective."""
    if not points:
        return 0.0
    if len(points[0]) == 1:
        return points[0][0]
    total = 0.0
    if len(points[0]) == 2:
        widest = 0.0
        for width, height in points:
            if width > widest:
                total += (width - widest) * height
                widest = width
        return total
    front = list[Point]()
    ends = [*(point[-1] for point in points[1:]), 0.0]
    for point, end in zip(points, ends, strict=True):
        front = with_point(front, point[:-1])
        if point[-1] > end:
            total += (point[-1] - end) * _volume(sorted(front, key=lambda member: member[-1], reverse=True))
    return total


def with_point(front: Sequence[Point], point: Point) -> list[Point]:
    """Return the points of `front` that `point` does not dominate, and `point` unless one of them
    is as good in every objective."""
    if any(is_as_good(other, point) for other in front):
        return list(front)
    return [*(other for other in front if not is_as_good(point, other)), point]


def is_as_good(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether `first` is at least as good as `second` in every objective (rewards)."""
    return all(mine >= theirs for mine, theirs in zip(first, second, strict=True))


_hypervolume = lru_cache(64)(hypervolume)  # every status requests the same one


@dataclass(frozen=True, slots=True)
class FrontMember:
    """A result on the front: `values` on the user's scale, and `rewards` to maximize."""

    trial: int
    values: tuple[float, ...]
    rewards: tuple[float, ...]
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Front:
    """The Pareto front of the results so far."""

    members: tuple[FrontMember, ...] = ()  # the results on the front, in the order in which they were found
    # the lowest reward of the feasible results in each objective; empty if there are none
    worst: tuple[float, ...] = ()
    results: int = 0  # the number of all results
    feasible: int = 0  # the number of results that satisfy every constraint

    def after(
        self,
        goals: CampaignGoals,
        trial: int,
        result: tuple[float, Mapping[str, float]],
        parameters: Mapping[str, object],
    ) -> "Front":
        """Return the front after another result (value, metrics) at these `parameters`."""
        values = goals.values(*result)
        if not goals.is_feasible(*result):
            return replace(self, results=self.results + 1)
        rewards = goals.order(*result)
        worst = tuple(map(min, self.worst, rewards)) if self.worst else rewards
        members = self.members
        if not any(is_as_good(member.rewards, rewards) for member in members):
            undominated = [member for member in members if not is_as_good(rewards, member.rewards)]
            members = (*undominated, FrontMember(trial, values, rewards, parameters))
        return Front(members, worst, self.results + 1, self.feasible + 1)

    @property
    def ordered(self) -> list[FrontMember]:
        """The members, sorted by the first objective, the best first."""
        return sorted(self.members, key=lambda member: member.rewards, reverse=True)

    def reference(self, goals: CampaignGoals) -> tuple[float, ...]:
        """Return the reference point of the hypervolume, as rewards: the `reference` of each
        objective, or its worst result if none is given. Empty if no result is feasible yet."""
        pairs = zip(goals.objectives, self.worst, strict=False)
        return tuple(
            worst if objective.reference is None else objective.reward(objective.reference)
            for objective, worst in pairs
        )

    def hypervolume(self, goals: CampaignGoals) -> float | None:
        """Return the front's hypervolume; None if no result is feasible yet."""
        if not self.members:
            return None
        return _hypervolume(tuple(member.rewards for member in self.members), self.reference(goals))


LEAST_ROUND = 8  # the least number of choices in a round
PATIENCE = 2  # rounds in a row without an expected gain


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
        if rule.expected_gain_below is not None and self.calm >= PATIENCE * max(workers, LEAST_ROUND):
            return StopReason.LITTLE_LEFT
        return None
