"""The sufficient statistics of a bandit: each arm's number of pulls, their sum of rewards, and the
spread of the rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats, Indices, freeze, read_only, same
from bbkb.orchestrator.bandit.results import LARGEST_REWARD

# the number of repeated pulls with equal rewards from which on rewards count as deterministic
ENOUGH = 3
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

    def extend(self, arms: int) -> "Tally":
        """Return the statistics with `arms` additional arms without pulls."""
        return Tally(
            freeze(np.append(self.counts, np.zeros(arms, np.intp))),
            freeze(np.append(self.sums, np.zeros(arms))),
            freeze(np.append(self.squares, np.zeros(arms))),
        )


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
    varies: bool = False  # whether two pulls of one arm had different rewards
    # the number of repeated evaluations of an arm, without rows of existing data
    repeats: int = 0

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
        finished ones, if there are any."""
        if not self._is_any_stopped:
            return self.finished.sums
        sums = self.finished.sums + self.stopped.sums
        mixed = np.flatnonzero((self.finished.counts > 0) & (self.stopped.counts > 0))
        sums[mixed] = self.finished.sums[mixed] / self.finished.counts[mixed] * self.counts[mixed]
        return freeze(sums)

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

    @property
    def looks_deterministic(self) -> bool:
        """Whether at least `ENOUGH` evaluations repeated an arm, and each returned the arm's reward
        again.

        Existing data do not count, because rows of a table may be copies.
        """
        return not self.varies and self.repeats >= ENOUGH

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
    ) -> "Pulls":
        """Return these pulls and one more pull of each of `arms` (n,), with its reward and its
        `further` rewards (n, K), which a pull that was stopped early does not have.

        A reward beyond ±`LARGEST_REWARD` is clipped. `existing` (n,): the mask of existing data.
        `stopped` (n,): the mask of pulls that were stopped early. None: there are no such pulls.
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
        if len(sums):
            ended = np.flatnonzero(~is_stopped)
            known = bounded([further[at] for at in ended.tolist()]).reshape(len(ended), len(sums))
            sums = _add(sums, pulled[ended], known)
        varies = self.varies
        repeats = self.repeats
        means: dict[int, float] = {}  # of an arm so far, or its first reward, with which rewards are compared
        columns = (pulled, values, is_comparable, is_counted, self.counts[pulled])
        before = (self.finished.counts[pulled], self.finished.sums[pulled])
        for arm, reward, comparable, counted, known, count, total in zip(
            *(each.tolist() for each in (*columns, *before)), strict=True
        ):
            repeats += counted and (known > 0 or arm in means)
            mean = means.setdefault(arm, total / count if count else reward)
            varies = varies or (comparable and abs(reward - mean) > ROUNDING * abs(mean))
        return Pulls(finished, cut, sums, varies, repeats)

    def extend(self, arms: int) -> "Pulls":
        """Return these pulls with `arms` additional arms without pulls."""
        further = freeze(np.hstack((self.further_sums, np.zeros((len(self.further_sums), arms)))))
        return replace(
            self, finished=self.finished.extend(arms), stopped=self.stopped.extend(arms), further_sums=further
        )


def bounded(rewards: float | Sequence[float] | Sequence[Sequence[float]] | Floats) -> Floats:
    """Return clipped rewards, whose differences and sums cannot overflow."""
    bounded: Floats = np.clip(np.asarray(rewards, np.float64), -LARGEST_REWARD, LARGEST_REWARD)
    return bounded


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
