"""The sufficient statistics of a bandit: how often each arm was pulled, and the sum of its rewards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices, read_only, same


@dataclass(frozen=True, eq=False)
class Pulls:
    """`counts` (A,) and `reward_sums` (A,), both read-only. Pulls without a reward are not in here."""

    counts: Indices
    reward_sums: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", read_only(self.counts, np.intp))
        object.__setattr__(self, "reward_sums", read_only(self.reward_sums, np.float64))

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @staticmethod
    def none(arms: int) -> "Pulls":
        """No pull of `arms` arms yet."""
        return Pulls(np.zeros(arms, np.intp), np.zeros(arms))

    @cached_property
    def arms(self) -> Indices:
        """Indices (p,) of the arms pulled at least once, ascending."""
        return np.flatnonzero(self.counts)

    @cached_property
    def total(self) -> int:
        """How many pulls there were."""
        return int(self.counts.sum())

    def add(self, arms: Sequence[int] | Indices, rewards: Sequence[float] | Floats) -> "Pulls":
        """These pulls and one more of each of `arms` (n,) with its reward.

        Raises ValueError when the rewards of an arm add up to more than a float can hold.
        """
        counts, sums = self.counts.copy(), self.reward_sums.copy()
        chosen = np.asarray(arms, np.intp)
        np.add.at(counts, chosen, 1)
        with np.errstate(over="ignore"):
            np.add.at(sums, chosen, np.asarray(rewards, np.float64))
        if not np.isfinite(sums).all():
            arm = int(np.flatnonzero(~np.isfinite(sums))[0])
            raise ValueError(f"the rewards of arm {arm} add up to more than a float can hold; divide all by a constant")
        return Pulls(counts, sums)

    def extended(self, arms: int) -> "Pulls":
        """These pulls, and none of that many more arms."""
        counts, sums = np.zeros(arms, np.intp), np.zeros(arms)
        return Pulls(np.concatenate((self.counts, counts)), np.concatenate((self.reward_sums, sums)))
