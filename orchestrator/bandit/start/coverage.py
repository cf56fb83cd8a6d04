"""Picks for coverage: arms of the level that lacks most evaluations.

The model abandons a level (a value of a choice) after a few poor evaluations, even if its best
configurations are in a small region. In a space with choices, a share of the picks therefore goes
to levels that lack evaluations (`levels.Levels`): a small share while the best mean reward rises,
and half of the picks otherwise.

Within a level, the arm with the largest upper bound and the arm with the largest variance take
turns. The mean of a level with few evaluations comes from other levels, so the largest bounds all
belong to a region that is good there.
"""

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.bandit.arms import Layout
from orchestrator.bandit.arrays import Indices
from orchestrator.bandit.sparse.conditioning import ConditionedPosterior
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.start.levels import Levels

ON_PLATEAU = 0.5  # the share of the picks while the best mean reward does not rise
# a plateau is this number of results without a rise of the best mean reward, and at least twice the
# number of open pulls
PLATEAU = 16
MOST_ARMS = 8192  # the number of arms whose levels are computed, in addition to the evaluated ones
MOST_COMPARED = 512  # the largest number of arms to compare within a level


def is_coverage_due(state: SparseState, open_pulls: int, share: float) -> bool:
    """Return whether the next pick is for coverage, given the number of open pulls. The share of
    these picks is `share`, or `ON_PLATEAU` if that is larger and the best mean reward does not
    rise."""
    if not share:
        return False
    is_plateau = state.pulls.total - state.milestones.peak.results >= max(PLATEAU, 2 * open_pulls)
    due = max(share, ON_PLATEAU) if is_plateau else share
    number = state.pulls.total + len(state.failed) + open_pulls
    return math.floor((number + 1) * due) > math.floor(number * due)


class LevelPicker:
    """Scratch data for one or more `ask`s at a `state`: bounds μ̃ + `width` · σ̃ of arms in levels
    that lack evaluations. Only pulls opened since its last call are conditioned on again."""

    def __init__(self, state: SparseState, width: float) -> None:
        self._state = state
        self._width = width
        self._posterior = ConditionedPosterior(state.posterior)
        self._conditioned = 0  # the arms of the open pulls, in order
        self._arms: Indices = np.empty(0, np.intp)  # the arms whose levels are known, ascending
        self._levels: Levels | None = None

    def lacking_arm(self, open_pulls: Sequence[int]) -> int | None:
        """Return an arm of the level that lacks most evaluations: the one with the largest bound
        after an even number of evaluations of the level, otherwise the one with the largest
        variance. `open_pulls` count as evaluations, and begin with those of the last call. None if
        there is no choice parameter, or if no level lacks evaluations."""
        state = self._state
        layout = self._state.layout
        if layout is None or layout.parameter_count == len(layout.parameters):
            return None
        pulled = np.repeat(state.pulls.arms, state.pulls.counts[state.pulls.arms])
        evaluated = np.concatenate((pulled, state.failed, np.array(open_pulls, np.intp)))
        levels = self._levels_of(evaluated, layout)
        arms = self._arms
        eligible = np.flatnonzero(~np.isin(arms, np.union1d(evaluated, state.set_aside)))
        failed = np.searchsorted(arms, state.failed)
        lacking, count = levels.lacking(np.searchsorted(arms, evaluated), failed, eligible)
        if not len(lacking):
            return None
        return self.best_arm(_thin(arms[lacking], MOST_COMPARED), open_pulls, by_bound=count % 2 == 0)

    def _levels_of(self, evaluated: Indices, layout: Layout) -> Levels:
        """Return the levels of `_arms`, which include all `evaluated` arms."""
        if self._levels is None or not np.isin(evaluated, self._arms).all():
            self._arms = np.union1d(_thin(np.arange(len(self._state.model.arms)), MOST_ARMS), evaluated)
            self._levels = Levels.of(self._state.model.all_arms.look_up(self._arms), layout)
        return self._levels

    def best_arm(self, arms: Indices, open_pulls: Sequence[int], *, by_bound: bool) -> int:
        """Return the arm with the largest bound, or else with the largest variance, among `arms`
        (n,), n ≥ 1, given the pending `open_pulls`."""
        posterior = self._posterior
        posterior.extend(open_pulls[self._conditioned :])
        self._conditioned = len(open_pulls)
        posterior.enter(np.setdiff1d(arms, posterior.arms))
        at = posterior.positions(arms)
        posterior.refresh(at)
        scores = posterior.variance[at]
        if by_bound:
            scores = posterior.mean[at] + self._width * np.sqrt(scores)
        return int(arms[np.argmax(scores)])


def _thin(arms: Indices, most: int) -> Indices:
    """Return at most `most` of `arms`, evenly spaced, including the last one, which is near the
    best arm."""
    step = max(-(-len(arms) // most), 1)
    return arms[::-1][::step][::-1]
