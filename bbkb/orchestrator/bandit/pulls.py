"""The sufficient statistics of a bandit: each arm's number of pulls, their sum of rewards, and the
spread of the rewards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bbkb.orchestrator.bandit.arrays import D, Floats, Indices, freeze, read_only, same
from bbkb.orchestrator.bandit.results import LARGEST_REWARD

# the largest probability with which noisy rewards may pass for deterministic ones
CHANCE = 0.01
ROUNDING = 1e-12  # the relative rounding error of the mean of equal rewards


@dataclass(frozen=True, eq=False)
class Tally:
    """Statistics of some of the pulls of each arm. All arrays are read-only."""

    counts: Indices  # (A,), the number of these pulls
    sums: Floats  # (A,), the sum of their rewards
    # (A,), the sum of the squared deviations of their rewards from their mean; 0 or infinite if the
    # square of a reward exceeds the range of floats
    squares: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", read_only(self.counts, np.intp))
        object.__setattr__(self, "sums", read_only(self.sums, np.float64))
        object.__setattr__(self, "squares", read_only(self.squares, np.float64))

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def none(arms: int) -> "Tally":
        """Return the statistics of `arms` arms without pulls."""
        return Tally(freeze(np.zeros(arms, np.intp)), freeze(np.zeros(arms)), freeze(np.zeros(arms)))

    def add(self, arms: Indices, rewards: Floats) -> "Tally":
        """Return the statistics after one more pull of each of `arms` (n,) with its reward."""
        if not len(arms):
            return self
        counts = self.counts.copy()
        np.add.at(counts, arms, 1)
        # one by one in order, so any grouping of the pulls gives the same squares, bit for bit (Welford 1962)
        again = np.flatnonzero(counts[arms] > 1)
        squares = self.squares.copy() if len(again) else self.squares
        sums: dict[int, tuple[int, float]] = {}
        for arm, reward in zip(arms[again].tolist(), rewards[again].tolist(), strict=True):
            count, total = sums.get(arm) or (self.counts.item(arm), self.sums.item(arm))
            if count:
                deviation = reward - total / count
                squares[arm] += deviation * deviation * (count / (count + 1))
            sums[arm] = count + 1, total + reward
        return Tally(freeze(counts), _add(self.sums, arms, rewards), freeze(squares))

    def without(self, arms: Indices) -> "Tally":
        """Return the statistics without the pulls of `arms`."""
        return Tally(_zero(self.counts, arms), _zero(self.sums, arms), _zero(self.squares, arms))

    def extend(self, arms: int) -> "Tally":
        """Return the statistics with `arms` additional arms without pulls."""
        return Tally(
            freeze(np.append(self.counts, np.zeros(arms, np.intp))),
            freeze(np.append(self.sums, np.zeros(arms))),
            freeze(np.append(self.squares, np.zeros(arms))),
        )


EXACT = 1e-150  # deviations below it count as 0: their squares would underflow
LARGEST_DEVIATION = 1e150


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """Statistics of the pulls whose noise has a known standard deviation. All arrays are read-only.

    A mean is weighted by precisions, 1/deviation². Exact pulls outweigh all others of their arm.
    """

    precisions: Floats  # (A,), the sum of the precisions of the pulls that are not exact
    means: Floats  # (A,), the mean reward of the exact pulls, or else of the others
    exact: Indices  # (A,), the number of exact pulls
    others: Tally  # the finished pulls without a known deviation
    logarithms: float = 0.0  # the sum of the logarithms of the deviations above 0
    count: int = 0  # their number

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def beside(others: Tally) -> "KnownNoise":
        """Return the statistics of no pulls, beside these others."""
        zeros = freeze(np.zeros(len(others.counts)))
        return KnownNoise(zeros, zeros, freeze(np.zeros(len(zeros), np.intp)), others)

    def add(self, arms: Indices, rewards: Floats, deviations: Sequence[float | None]) -> "KnownNoise":
        """Return the statistics after finished pulls of `arms` (n,), in order; `deviations` (n,)."""
        precisions, means, exact = self.precisions.copy(), self.means.copy(), self.exact.copy()
        logarithms, count = self.logarithms, self.count
        for arm, reward, deviation in zip(arms.tolist(), rewards.tolist(), deviations, strict=True):
            if deviation is None:
                continue
            if deviation < EXACT:
                exact[arm] += 1
                means[arm] = reward if exact[arm] == 1 else means[arm] + (reward - means[arm]) / exact[arm]
                continue
            bounded_deviation = min(deviation, LARGEST_DEVIATION)
            logarithms += math.log(bounded_deviation)
            count += 1
            if not exact[arm]:
                precision = bounded_deviation**-2
                precisions[arm] += precision
                means[arm] += (reward - means[arm]) * (precision / precisions[arm])
        unknown = np.array([deviation is None for deviation in deviations], np.bool_)
        others = self.others.add(arms[unknown], rewards[unknown])
        return KnownNoise(freeze(precisions), freeze(means), freeze(exact), others, logarithms, count)

    def extend(self, arms: int) -> "KnownNoise":
        """Return the statistics with `arms` additional arms without pulls."""
        zeros = np.zeros(arms)
        return replace(
            self,
            precisions=freeze(np.append(self.precisions, zeros)),
            means=freeze(np.append(self.means, zeros)),
            exact=freeze(np.append(self.exact, zeros.astype(np.intp))),
            others=self.others.extend(arms),
        )

    @cached_property
    def typical(self) -> float:
        """The geometric mean of the deviations above 0, which other pulls are assumed to have; 0 if there are
        none."""
        return math.exp(self.logarithms / self.count) if self.count else 0.0

    @cached_property
    def combined(self) -> tuple[Floats, Floats]:
        """The mean reward of all pulls of each arm (A,), weighted, and its variance (A,); of arms without
        finished pulls, 0 and infinity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            added = self.others.counts / self.typical**2 if self.typical else np.zeros(len(self.means))
            other_means = np.nan_to_num(self.others.sums / self.others.counts)
            total = self.precisions + added
            # shares, because the product of a mean and a precision could overflow
            means = self.means * (self.precisions / total) + other_means * (added / total)
            means = np.where(total > 0, means, other_means)
            variances = np.where(total > 0, 1.0 / total, np.where(self.others.counts > 0, 0.0, np.inf))
        is_exact = self.exact > 0
        return freeze(np.where(is_exact, self.means, means)), freeze(np.where(is_exact, 0.0, variances))


@dataclass(frozen=True, eq=False)
class Pulls:
    """The pulls of each arm and their rewards. Pulls without a reward are not included.

    As soon as one pull of an arm has finished, the arm's early-stopped pulls count with the mean
    reward of its finished pulls. Rewards of finished and stopped pulls differ even without noise,
    so arms with stopped pulls affect neither `varies` nor `repeats`. All arrays are read-only.
    """

    finished: Tally  # the pulls that were not stopped early
    stopped: Tally  # the pulls that were stopped early
    # (K, A), sums of the rewards for further objectives and constraints, if there are any; pulls
    # that were stopped early have none
    further_sums: Floats
    varies: bool = False  # whether two pulls of one arm had different rewards, of any output
    # the number of repeated evaluations of an arm, without rows of existing data
    repeats: int = 0
    noise: KnownNoise | None = None  # of the finished pulls; None if no deviation is known

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def of(counts: Indices, reward_sums: Floats) -> "Pulls":
        """Return pulls without early stops, from the number of pulls (A,) and the sum of rewards
        (A,) of each arm. All rewards of an arm are assumed to be equal."""
        return Pulls(
            Tally(counts, reward_sums, freeze(np.zeros(len(counts)))),
            Tally.none(len(counts)),
            np.empty((0, len(counts))),
        )

    @staticmethod
    def none(arms: int, further: int = 0) -> "Pulls":
        """Return the statistics of `arms` arms without pulls, with `further` rewards per pull."""
        return Pulls(Tally.none(arms), Tally.none(arms), freeze(np.zeros((further, arms))))

    @cached_property
    def counts(self) -> Indices:
        """The number of pulls of each arm (A,)."""
        return freeze(self.finished.counts + self.stopped.counts) if self._is_any_stopped else self.finished.counts

    @cached_property
    def reward_sums(self) -> Floats:
        """The sum of the rewards of each arm's pulls (A,). Stopped pulls count with the mean of the
        finished ones, if there are any; all count with the weighted mean if deviations are known."""
        if self.noise is not None:
            finished = self.finished.counts > 0
            return freeze(np.where(finished, self.noise.combined[0] * self.counts, self.stopped.sums))
        if not self._is_any_stopped:
            return self.finished.sums
        sums = self.finished.sums + self.stopped.sums
        mixed = np.flatnonzero((self.finished.counts > 0) & (self.stopped.counts > 0))
        sums[mixed] = self.finished.sums[mixed] / self.finished.counts[mixed] * self.counts[mixed]
        return freeze(sums)

    @cached_property
    def variances(self) -> Floats | None:
        """The known variance of each arm's mean reward (A,); None if no deviation is known. Stopped pulls have
        the typical deviation."""
        if self.noise is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            stopped = self.noise.typical**2 / self.stopped.counts
        return freeze(np.where(self.finished.counts > 0, self.noise.combined[1], stopped))

    @cached_property
    def _is_any_stopped(self) -> bool:
        return bool(self.stopped.counts.any())

    @cached_property
    def arms(self) -> Indices:
        """Indices (p,) of the arms pulled at least once, ascending."""
        return np.flatnonzero(self.counts)

    @cached_property
    def finished_arms(self) -> Indices:
        """Indices (p,) of the arms with a pull that was not stopped early, ascending."""
        return np.flatnonzero(self.finished.counts)

    @cached_property
    def total(self) -> int:
        """The number of pulls."""
        return int(self.counts.sum())

    @cached_property
    def looks_deterministic(self) -> bool:
        """Whether evaluations repeated arms, and so many of them returned the arm's reward again, and none
        another one, that noise is unlikely. False if a deviation above 0 is known.

        If the arms differed by noise, a repeat would agree with its arm as often as two arms do: with the
        probability q = (equal pairs + 1)/(pairs + 2), by the rule of succession. k repeats agree by chance with
        the probability qᵏ, which must be at most `CHANCE`. Existing data are no repeats, because rows of a table
        may be copies.
        """
        if self.varies or not self.repeats or (self.noise is not None and self.noise.count):
            return False
        arms = self.finished_arms
        _, sizes = np.unique(self.finished.sums[arms] / self.finished.counts[arms], return_counts=True)
        equal, pairs = int((sizes * (sizes - 1) // 2).sum()), math.comb(len(arms), 2)
        return ((equal + 1) / (pairs + 2)) ** self.repeats <= CHANCE

    @cached_property
    def outputs(self) -> tuple["Pulls", ...]:
        """These pulls, once for each reward of a pull, starting with the first objective."""
        if not len(self.further_sums):
            return (self,)
        first = Pulls.of(self.counts, self.reward_sums)
        return (first, *(Pulls.of(self.finished.counts, sums) for sums in self.further_sums))

    def add(
        self,
        arms: Sequence[int] | Indices,
        rewards: Sequence[float] | Floats,
        further: Sequence[Sequence[float]] | Floats = (),
        existing: Sequence[bool] | None = None,
        stopped: Sequence[bool] | None = None,
        deviations: Sequence[float | None] | None = None,
    ) -> "Pulls":
        """Return these pulls and one more pull of each of `arms` (n,), with its reward and its
        `further` rewards (n, K), which a pull that was stopped early does not have.

        A reward beyond ±`LARGEST_REWARD` is clipped. `existing` (n,): the mask of existing data.
        `stopped` (n,): the mask of pulls that were stopped early. None: there are no such pulls.
        `deviations` (n,): the known standard deviations of the rewards' noise.
        Raises ValueError if the sum of an arm's rewards exceeds the range of floats.
        """
        pulled = np.asarray(arms, np.intp)
        values = bounded(rewards)
        is_stopped = np.zeros(len(pulled), np.bool_) if stopped is None else np.asarray(stopped, np.bool_)
        finished = self.finished.add(pulled[~is_stopped], values[~is_stopped])
        cut = self.stopped.add(pulled[is_stopped], values[is_stopped])
        is_comparable = cut.counts[pulled] == 0  # no pull of the arm was stopped early
        is_counted = is_comparable if existing is None else is_comparable & ~np.asarray(existing, np.bool_)
        sums = self.further_sums
        outputs = np.zeros((len(pulled), 1 + len(sums)))
        outputs[:, 0] = values
        if len(sums):
            ended = np.flatnonzero(~is_stopped)
            outputs[ended, 1:] = bounded([further[at] for at in ended.tolist()]).reshape(len(ended), len(sums))
            sums = _add(sums, pulled[ended], outputs[ended, 1:])
        varies = self.varies
        repeats = self.repeats
        means: dict[int, list[float]] = {}  # of an arm so far, or its first rewards, with which rewards are compared
        columns = (pulled, outputs, is_comparable, is_counted, self.counts[pulled])
        before = (self.finished.counts[pulled], np.vstack((self.finished.sums[pulled], self.further_sums[:, pulled])).T)
        for arm, rewards_of_pull, comparable, counted, earlier, count, totals in zip(
            *(each.tolist() for each in (*columns, *before)), strict=True
        ):
            repeats += counted and (earlier > 0 or arm in means)
            known = means.setdefault(arm, [total / count for total in totals] if count else rewards_of_pull)
            pairs = zip(rewards_of_pull, known, strict=True)
            varies = varies or (comparable and any(abs(one - mean) > ROUNDING * abs(mean) for one, mean in pairs))
        given = [None] * len(pulled) if deviations is None else deviations
        noise = self.noise
        if noise is not None or any(deviation is not None for deviation in given):
            of_finished = [deviation for deviation, is_cut in zip(given, is_stopped, strict=True) if not is_cut]
            noise = noise or KnownNoise.beside(self.finished)
            noise = noise.add(pulled[~is_stopped], values[~is_stopped], of_finished)
        return Pulls(finished, cut, sums, varies, repeats, noise)

    def without(self, arms: Indices) -> "Pulls":
        """Return these pulls without those of `arms`."""
        finished, stopped = self.finished.without(arms), self.stopped.without(arms)
        return replace(self, finished=finished, stopped=stopped, further_sums=_zero(self.further_sums, arms))

    def extend(self, arms: int) -> "Pulls":
        """Return these pulls with `arms` additional arms without pulls."""
        further = freeze(np.hstack((self.further_sums, np.zeros((len(self.further_sums), arms)))))
        return replace(
            self,
            finished=self.finished.extend(arms),
            stopped=self.stopped.extend(arms),
            further_sums=further,
            noise=None if self.noise is None else self.noise.extend(arms),
        )


def bounded(rewards: float | Sequence[float] | Sequence[Sequence[float]] | Floats) -> Floats:
    """Return clipped rewards, whose differences and sums cannot overflow."""
    bounded: Floats = np.clip(np.asarray(rewards, np.float64), -LARGEST_REWARD, LARGEST_REWARD)
    return bounded


def _zero(numbers: NDArray[D], arms: Indices) -> NDArray[D]:
    """Return a copy of `numbers` (…, A) with 0 for `arms`."""
    after = numbers.copy()
    after[..., arms] = 0
    return freeze(after)


def _add(sums: Floats, arms: Indices, rewards: Floats) -> Floats:
    """Return `sums` (…, A) plus rewards (n, …) of `arms` (n,). Raises ValueError if not finite."""
    after = sums.copy()
    with np.errstate(over="ignore"):
        for row, values in zip(np.atleast_2d(after), np.atleast_2d(rewards.T), strict=True):  # views
            np.add.at(row, arms, values)
    if not np.isfinite(after).all():
        arm = int(np.argwhere(~np.isfinite(after))[0, -1])
        raise ValueError(
            f"the rewards of arm {arm} have a sum beyond the range of floats; divide all rewards by a constant"
        )
    return freeze(after)
