"""The sufficient statistics of a bandit: how often each arm was pulled, and the sum of its
rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from orchestrator.bandit.arrays import Flags, Floats, Indices, freeze, read_only, same

ENOUGH = 3  # repeated pulls with equal rewards, after which rewards count as deterministic
LARGEST_REWARD = 1e300  # a larger one, up to the largest float, counts as this
ROUNDING = 1e-12  # of a mean of equal rewards, relative


@dataclass(frozen=True, eq=False)
class Pulls:
    """The pulls of each arm and the sums of their rewards. Pulls without a reward are not included.

    As soon as a pull of an arm has finished, its pulls that were stopped early count with the mean
    reward of those that finished. Rewards of finished and stopped pulls differ without noise, so
    arms with stopped pulls count neither for `varies` nor for `repeats`. All arrays are read-only.

    Attributes:
        counts: (A,), the number of pulls.
        reward_sums: (A,), the sum of the rewards.
        further_sums: (K, A), sums of the rewards of further objectives and constraints, where there
            are any.
        varies: whether two pulls of one arm gave different rewards.
        repeats: how many evaluations were of an arm pulled before; rows of existing data do not
            count.
        stopped: (s,), arms of which a pull was stopped early, ascending.
        stopped_counts: (s,), how many of their pulls were stopped.
    """

    counts: Indices
    reward_sums: Floats
    further_sums: Floats = field(default_factory=lambda: np.empty((0, 0)))
    varies: bool = False
    repeats: int = 0
    stopped: Indices = field(default_factory=lambda: read_only((), np.intp))
    stopped_counts: Indices = field(default_factory=lambda: read_only((), np.intp))

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", read_only(self.counts, np.intp))
        object.__setattr__(self, "reward_sums", read_only(self.reward_sums, np.float64))
        further = self.further_sums if len(self.further_sums) else np.empty((0, len(self.counts)))
        object.__setattr__(self, "further_sums", read_only(further, np.float64))

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def none(arms: int, further: int = 0) -> "Pulls":
        """Return no pull of `arms` arms yet; a pull will have `further` rewards beyond the
        first."""
        return Pulls(freeze(np.zeros(arms, np.intp)), freeze(np.zeros(arms)), freeze(np.zeros((further, arms))))

    @cached_property
    def arms(self) -> Indices:
        """Indices (p,) of the arms pulled at least once, ascending."""
        return np.flatnonzero(self.counts)

    @cached_property
    def finished_counts(self) -> Indices:
        """How many pulls (A,) of each arm were not stopped early."""
        finished = self.counts.copy()
        finished[self.stopped] -= self.stopped_counts
        return freeze(finished)

    @cached_property
    def finished_arms(self) -> Indices:
        """Indices (p,) of the arms of which a pull was not stopped early, ascending."""
        return np.flatnonzero(self.finished_counts)

    @cached_property
    def total(self) -> int:
        """How many pulls there were."""
        return int(self.counts.sum())

    @property
    def looks_deterministic(self) -> bool:
        """Whether `ENOUGH` evaluations or more were of an arm pulled before, and each gave the
        arm's reward again.

        Existing data do not show it: rows of a table may have been copied.
        """
        return not self.varies and self.repeats >= ENOUGH

    @cached_property
    def outputs(self) -> tuple["Pulls", ...]:
        """These pulls with one reward each, once for every reward that a pull has: the first
        objective's first."""
        return (
            self if not len(self.further_sums) else Pulls(self.counts, self.reward_sums),
            *(Pulls(self.counts, sums) for sums in self.further_sums),
        )

    def add(
        self,
        arms: Sequence[int] | Indices,
        rewards: Sequence[float] | Floats,
        further: Sequence[Sequence[float]] | Floats = (),
        existing: Sequence[bool] | None = None,
        stopped: Sequence[bool] | None = None,
    ) -> "Pulls":
        """Return these pulls and one more of each of `arms` (n,) with its reward, and its `further`
        ones (n, K).

        A reward beyond ±`LARGEST_REWARD` counts as that. `existing` (n,): which of them are
        existing data; `stopped` (n,): which were stopped early; None: none of them.

        Raises ValueError when the rewards of an arm add up to more than a float can hold.
        """
        counts = self.counts.copy()
        chosen = np.asarray(arms, np.intp)
        np.add.at(counts, chosen, 1)
        values = bounded(rewards)
        more = bounded(further).reshape(len(chosen), len(self.further_sums))
        was_cut = np.zeros(len(chosen), np.bool_) if stopped is None else np.asarray(stopped, np.bool_)
        cut, cut_counts = self._stopped_with(chosen[was_cut])
        is_whole = ~np.isin(chosen, cut)
        evaluated = is_whole if existing is None else is_whole & ~np.asarray(existing, np.bool_)
        return Pulls(
            freeze(counts),
            self._finished_sums(
                _add(self.reward_sums, chosen, values), counts, chosen, np.where(was_cut, 0.0, values), cut, cut_counts
            ),
            np.array([_add(sums, chosen, one) for sums, one in zip(self.further_sums, more.T, strict=True)]),
            self.varies or self._varies_with(chosen[is_whole], values[is_whole]),
            self.repeats + self._count_repeats(chosen, evaluated),
            read_only(cut, np.intp),
            read_only(cut_counts, np.intp),
        )

    def _stopped_with(self, arms: Indices) -> tuple[Indices, Indices]:
        """Return `stopped` and `stopped_counts` after further stopped pulls of `arms` (n,)."""
        if not len(arms):
            return self.stopped, self.stopped_counts
        cut = np.union1d(self.stopped, arms)
        counts = np.zeros(len(cut), np.intp)
        counts[np.searchsorted(cut, self.stopped)] = self.stopped_counts
        np.add.at(counts, np.searchsorted(cut, arms), 1)
        return cut, counts

    def _finished_sums(
        self, sums: Floats, counts: Indices, arms: Indices, finished: Floats, cut: Indices, cut_counts: Indices
    ) -> Floats:
        """Return `sums` (A,) of `counts` (A,) pulls, where the stopped pulls have the mean of the
        finished ones of their arm.

        `arms` (n,): those of the new pulls; `finished` (n,): their rewards, 0 of the stopped ones;
        `cut`, `cut_counts`: `stopped` and `stopped_counts` with the new ones.
        """
        is_mixed = (counts[cut] > cut_counts) & np.isin(cut, arms)
        if not is_mixed.any():
            return sums
        mixed, stopped = cut[is_mixed], cut_counts[is_mixed]
        before = np.zeros(len(counts), np.intp)
        before[self.stopped] = self.stopped_counts
        known = self.reward_sums[mixed] / np.maximum(self.counts[mixed], 1) * (self.counts[mixed] - before[mixed])
        further = np.zeros(len(counts))
        np.add.at(further, arms, finished)
        after = sums.copy()
        with np.errstate(over="ignore"):
            after[mixed] = (known + further[mixed]) / (counts[mixed] - stopped) * counts[mixed]
        return _checked(after)

    def _varies_with(self, arms: Indices, rewards: Floats) -> bool:
        """Return whether pulls of `arms` (n,) with `rewards` (n,) give an arm another reward than
        before, or two different ones; until now each arm's rewards were equal."""
        distinct, first, at = np.unique(arms, return_index=True, return_inverse=True)
        known = self.counts[distinct]
        expected = np.where(known > 0, self.reward_sums[distinct] / np.maximum(known, 1), rewards[first])[at]
        return bool(np.any(np.abs(rewards - expected) > ROUNDING * np.abs(expected)))

    def _count_repeats(self, arms: Indices, is_counted: Flags) -> int:
        """Return how many of `arms` (n,), in their order, were pulled before, of those that
        `is_counted` (n,) names."""
        was_pulled = self.counts[arms] > 0
        later = np.setdiff1d(np.arange(len(arms)), np.unique(arms, return_index=True)[1], assume_unique=True)
        was_pulled[later] = True
        return int(np.count_nonzero(was_pulled & is_counted))

    def extend(self, arms: int) -> "Pulls":
        """Return these pulls, with `arms` further arms that were not pulled."""
        return Pulls(
            freeze(np.concatenate((self.counts, np.zeros(arms, np.intp)))),
            freeze(np.concatenate((self.reward_sums, np.zeros(arms)))),
            np.hstack((self.further_sums, np.zeros((len(self.further_sums), arms)))),
            self.varies,
            self.repeats,
            self.stopped,
            self.stopped_counts,
        )


def bounded(rewards: float | Sequence[float] | Sequence[Sequence[float]] | Floats) -> Floats:
    """Return rewards that differences and sums of many of them do not overflow."""
    bounded: Floats = np.clip(np.asarray(rewards, np.float64), -LARGEST_REWARD, LARGEST_REWARD)
    return bounded


def _add(sums: Floats, arms: Indices, rewards: Floats) -> Floats:
    """Return `sums` (A,) with the rewards (n,) of `arms` (n,) added."""
    after = sums.copy()
    with np.errstate(over="ignore"):
        np.add.at(after, arms, rewards)
    return _checked(after)


def _checked(sums: Floats) -> Floats:
    """Return `sums` (A,), read-only. Raises ValueError when one is not finite."""
    if not np.isfinite(sums).all():
        arm = int(np.flatnonzero(~np.isfinite(sums))[0])
        raise ValueError(f"the rewards of arm {arm} add up to more than a float can hold; divide all by a constant")
    return freeze(sums)
