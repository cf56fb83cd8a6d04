"""Picks for coverage: arms of the level that lacks most evaluations.

The model abandons a level (a value of a choice) after a few poor evaluations, even if its best
configurations are in a small region. In a space with choices, a share of the picks therefore goes
to levels that lack evaluations: a small share while the best mean reward rises, and half of the
picks otherwise.

Within a level, the arm with the largest upper bound and the arm with the largest variance take
turns. The mean of a level with few evaluations comes from other levels, so the largest bounds all
belong to a region that is good there.

The one-hot columns of a choice are one parameter in the layout of the arms. A parameter that exists
only in one level is covered together with that level.

A choice with so many levels that a single feature names them (see `LEVEL`) needs one evaluation of
each. Results of a few levels say nothing about the others: without this, a search stays with the
best of the first ten.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arms import LEVEL, Layout
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.sparse.picking import ConditionedPosterior
from bbkb.orchestrator.bandit.sparse.state import SparseState

NO_LEVEL = -1  # if the choice does not exist
# the number of evaluations that a level should have, and the increment for each numeric parameter
# in it
EACH = 4
# the number of failed evaluations from which on a level without a success needs no further arm
MOST_FAILED = 3


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of all choices for some arms."""

    # (n, c), the level of each of the c choices; `NO_LEVEL` if the choice does not exist
    of_arms: Indices
    # for each choice, the number of evaluations (L,) that each level should have
    quotas: tuple[Indices, ...]

    @staticmethod
    def of(features: Floats, layout: Layout) -> "Levels":
        """Return the levels of arms with `features` (n, d)."""
        columns = [np.flatnonzero(layout.parameters == number) for number in range(layout.parameter_count)]
        choices = [places for places in columns if len(places) > 1 or features[0, places[0]] <= LEVEL]
        by_choice = [_levels(features[:, places]) for places in choices]
        levels = np.stack(by_choice, axis=1) if choices else np.empty((len(features), 0), np.intp)
        numbers = features[:, [places[0] for places in columns if len(places) == 1 and features[0, places[0]] > LEVEL]]
        quotas = [
            # a level without an arm needs no evaluation
            [
                EACH * (1 + int(np.count_nonzero(np.ptp(numbers[of_level], axis=0)))) if of_level.any() else 0
                for of_level in (column == level for level in range(len(places)))
            ]
            if len(places) > 1
            else [1] * (int(column.max()) + 1)
            for column, places in zip(by_choice, choices, strict=True)
        ]
        return Levels(levels, tuple(np.array(choice, np.intp) for choice in quotas))

    def lacking(self, evaluated: Indices, failed: Indices, eligible: Indices) -> tuple[Indices, int]:
        """Return the `eligible` arms of the level that lacks the largest share of its quota, and
        the number of evaluations of this level; no arms if no level lacks evaluations. If levels of
        a choice need one evaluation each, they are the arms of all levels without one.

        Arms are positions in `of_arms`.

        Args:
            evaluated: arms that were evaluated or are being evaluated, once for each evaluation.
            failed: the arms whose evaluations failed.
            eligible: arms that may be chosen, ascending.
        """
        counted = [
            _count(column, evaluated, len(quotas)) for column, quotas in zip(self.of_arms.T, self.quotas, strict=True)
        ]
        for column, counts in zip(self.of_arms.T, counted, strict=True):
            failures = _count(column, failed, len(counts))
            hopeless = np.flatnonzero((failures >= MOST_FAILED) & (failures == counts))
            eligible = eligible[~np.isin(column[eligible], hopeless)]
        least = 1.0
        candidates = eligible[:0]
        evaluations = 0
        for column, counts, quotas in zip(self.of_arms.T, counted, self.quotas, strict=True):
            if quotas.max() == 1:
                arms = eligible[counts[column[eligible]] == 0]
                if least > 0.0 and len(arms):
                    least = 0.0
                    candidates = arms
                    evaluations = 0
                continue
            for level in np.flatnonzero(quotas).tolist():
                share = counts[level] / quotas[level]
                if share < least and len(arms := eligible[column[eligible] == level]):
                    least = share
                    candidates = arms
                    evaluations = int(counts[level])
        return candidates, evaluations


def _levels(block: Floats) -> Indices:
    """Return the levels (n,) of arms with these features of a choice (n, one-hot columns, or one that names them)."""
    if block.shape[1] == 1:
        return np.unique(block, return_inverse=True)[1].ravel()
    return np.where((block > 0.0).sum(axis=1) == 1, block.argmax(axis=1), NO_LEVEL)


def _count(column: Indices, arms: Indices, levels: int) -> Indices:
    """Return the number of `arms` with each of the `levels` levels in `column` (n,)."""
    return np.bincount(column[arms] + 1, minlength=levels + 1)[1:]


ON_PLATEAU = 0.5  # the share of the picks while the best mean reward does not rise
# a plateau is this number of results without a rise of the best mean reward, and at least twice the
# number of open pulls
PLATEAU = 16
MOST_ARMS = 8192  # the number of arms whose levels are computed, in addition to the evaluated ones
MOST_COMPARED = 512  # the largest number of arms to compare within a level


def is_coverage_due(state: SparseState, open_pulls: int, share: float) -> bool:
    """Return whether the next pick is for coverage, given the number of open pulls. The share of
    these picks is `share`, or `ON_PLATEAU` if that is larger and the best mean reward does not
    rise, or a choice has many levels."""
    if not share:
        return False
    is_plateau = state.pulls.total - state.peak.results >= max(PLATEAU, 2 * open_pulls)
    due = max(share, ON_PLATEAU) if is_plateau or _has_many_levels(state) else share
    number = state.peak.explorations(state.picks_before(open_pulls))
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
        layout = state.layout
        if layout is None:
            return None
        if layout.parameter_count == len(layout.parameters) and not _has_many_levels(state):
            return None
        pulled = np.repeat(state.pulls.arms, state.pulls.counts[state.pulls.arms])
        evaluated = np.concatenate((pulled, state.failed, np.array(open_pulls, np.intp)))
        if self._levels is None or not np.isin(evaluated, self._arms).all():
            self._arms = np.union1d(_thin(np.arange(len(state.model.arms)), MOST_ARMS), evaluated)
            self._levels = Levels.of(state.model.arms[self._arms], layout)
        levels = self._levels
        arms = self._arms
        eligible = np.flatnonzero(~np.isin(arms, np.union1d(evaluated, state.set_aside)))
        failed = np.searchsorted(arms, state.failed)
        lacking, count = levels.lacking(np.searchsorted(arms, evaluated), failed, eligible)
        if not len(lacking):
            return None
        return self.best_arm(_thin(arms[lacking], MOST_COMPARED), open_pulls, by_bound=count % 2 == 0)

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


def _has_many_levels(state: SparseState) -> bool:
    """Return whether a single feature names the levels of a choice."""
    return bool((state.model.arms[0] <= LEVEL).any())


def _thin(arms: Indices, most: int) -> Indices:
    """Return at most `most` evenly spaced `arms`, with the last one, which is near the best."""
    step = max(-(-len(arms) // most), 1)
    return arms[::-1][::step][::-1]
