"""The ground truth of a strategy with a sparse posterior; the posterior is derived from it, once, when it is needed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from orchestrator.bandit.arrays import Floats, Indices, read_only, same
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.all_arms import PlacedArms
from orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
from orchestrator.bandit.strategy import Observation


def checked_arms(arms: Any) -> Floats:
    """`arms` (A, d) as a read-only float array. Raises ValueError when it is empty, of another shape or not finite."""
    checked: Floats = read_only(arms, np.float64)
    if checked.ndim != 2 or 0 in checked.shape:
        raise ValueError(f"candidates must be an (A, d) array with A, d >= 1, got shape {checked.shape}")
    if not np.isfinite(checked).all():
        row = int(np.flatnonzero(~np.isfinite(checked).all(axis=1))[0])
        raise ValueError(f"candidates must be finite, row {row} is {checked[row].tolist()}")
    return checked


def rewarded(observations: Sequence[Observation]) -> tuple[list[int], list[float]]:
    """Arms and rewards of the observations that have one. Raises ValueError when a reward is not finite."""
    pairs = [(seen.arm, seen.reward) for seen in observations if seen.reward is not None]
    for arm, reward in pairs:
        if not np.isfinite(reward):
            raise ValueError(f"the reward of arm {arm} must be finite, got {reward}; tell None for a failed evaluation")
    return [arm for arm, _ in pairs], [float(reward) for _, reward in pairs]


def with_set_aside(set_aside: Indices, observations: Sequence[Observation]) -> Indices:
    """`set_aside`, ascending, and the arms that could not be evaluated."""
    failed = [seen.arm for seen in observations if seen.reward is None]
    return read_only(np.union1d(set_aside, np.array(failed, np.intp)), np.intp) if failed else set_aside


@dataclass(frozen=True, eq=False)
class SparseState:
    """State of BBKB and its relatives. All arrays are read-only.

    `pulls`: those with a reward. `dictionary` (m,), ascending. `information_gain`: G of the confidence width. `round`:
    how many `tell`s. `initial`: the warm start's arms, in order. `set_aside`: arms that could not be evaluated,
    ascending.
    """

    model: SparseModel
    pulls: Pulls
    dictionary: Indices
    information_gain: float
    round: int
    initial: tuple[int, ...]
    set_aside: Indices

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def arms(self) -> Floats | PlacedArms:
        """The candidates: an array (A, d), or what stands for one."""
        return self.model.arms

    @cached_property
    def posterior(self) -> SparsePosterior:
        """The fit to `pulls` and `dictionary`; `ask`, `tell` and `posterior` at one state share it."""
        return self.model.fit(self.pulls, self.dictionary)

    @cached_property
    def available(self) -> Indices:
        """Arms that may be chosen, ascending."""
        return np.setdiff1d(np.arange(len(self.model.arms)), self.set_aside, assume_unique=True)

    def remaining_start(self, pending: Sequence[int] = ()) -> list[int]:
        """Arms of the warm start that are neither told, nor pending, nor set aside, in order."""
        over = Counter({arm: int(self.pulls.counts[arm]) for arm in self.initial}) + Counter(pending)
        over.update({arm: len(self.initial) for arm in self.set_aside.tolist()})
        remaining = []
        for arm in self.initial:
            if over[arm]:
                over[arm] -= 1
            else:
                remaining.append(arm)
        return remaining

    def extended(self, features: Floats) -> "SparseState":
        """The state with n more arms, `features` (n, d), after its own; they were not pulled yet.

        Raises ValueError when they are not finite, or when d is another than that of the arms there are.
        """
        model = self.model.extended(checked_arms(features))
        return replace(self, model=model, pulls=self.pulls.extended(len(features)))

    def observe(self, observations: Sequence[Observation]) -> "SparseState":
        """The next round's state with these pulls and set-aside arms in it; what is drawn is left as it was."""
        return replace(
            self,
            pulls=self.pulls.add(*rewarded(observations)),
            round=self.round + 1,
            set_aside=with_set_aside(self.set_aside, observations),
        )


def initial_state(model: SparseModel, initial: tuple[int, ...]) -> SparseState:
    """The state before any pull."""
    nothing = read_only((), np.intp)
    return SparseState(model, Pulls.none(len(model.arms)), nothing, 0.0, 0, initial, nothing)
