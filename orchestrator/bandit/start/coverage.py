"""Picks for the sake of coverage: the most promising arm of the level of a choice that lacks
evaluations.

The model gives up a level after a few poor evaluations, also when its best configurations are in a
small region. So in a space with choices some of the picks go to levels that lack evaluations
(`levels.Levels`): few while the best mean reward rises, and half of them while it does not.
"""

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.bandit.arrays import Indices
from orchestrator.bandit.sparse.conditioning import ConditionedPosterior
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.start.levels import Levels

ON_PLATEAU = 0.5  # share of the picks while the best mean reward does not rise
PLATEAU = 16  # results without a rise of the best mean reward, or twice as many as pulls are open
MOST_ARMS = 8192  # whose levels are looked at, besides those that were evaluated
MOST_COMPARED = 512  # arms of a level


def is_coverage_due(state: SparseState, open_pulls: int, share: float) -> bool:
    """Return whether the next pick with so many pulls open is for the sake of coverage: a `share`
    of the picks is, or `ON_PLATEAU` if that is more and the best mean reward does not rise."""
    if not share:
        return False
    is_plateau = state.pulls.total - state.peak.results >= max(PLATEAU, 2 * open_pulls)
    due = max(share, ON_PLATEAU) if is_plateau else share
    number = state.pulls.total + len(state.failed) + open_pulls
    return math.floor((number + 1) * due) > math.floor(number * due)


def lacking_arm(state: SparseState, open_pulls: Sequence[int], width: float) -> int | None:
    """Return the arm with the largest upper bound μ̃ + `width` · σ̃ of the level that lacks
    evaluations most, `open_pulls` included; None without choices, or where no level lacks any."""
    layout = state.layout
    if layout is None or layout.parameter_count == len(layout.parameters):
        return None
    pulls = np.array(open_pulls, np.intp)
    evaluated = np.concatenate((np.repeat(state.pulls.arms, state.pulls.counts[state.pulls.arms]), state.failed, pulls))
    arms = np.union1d(_thin(np.arange(len(state.model.arms)), MOST_ARMS), evaluated)
    eligible = np.flatnonzero(~np.isin(arms, np.union1d(evaluated, state.set_aside)))
    levels = Levels.of(state.model.all_arms.look_up(arms), layout)
    lacking = levels.lacking(np.searchsorted(arms, evaluated), np.searchsorted(arms, state.failed), eligible)
    return best_bound(state, _thin(arms[lacking], MOST_COMPARED), open_pulls, width) if len(lacking) else None


def best_bound(state: SparseState, arms: Indices, open_pulls: Sequence[int], width: float) -> int:
    """Of `arms` (n,), n ≥ 1, the one with the largest upper bound when `open_pulls` are pending."""
    posterior = ConditionedPosterior(state.posterior)
    posterior.extend(open_pulls)
    posterior.enter(np.setdiff1d(arms, posterior.arms))
    at = posterior.positions(arms)
    posterior.refresh(at)
    bounds = posterior.mean[at] + width * np.sqrt(posterior.variance[at])
    return int(arms[np.argmax(bounds)])


def _thin(arms: Indices, most: int) -> Indices:
    """Return at most `most` of `arms`, spread evenly; the last one, which is near the best, is
    always among them."""
    step = max(-(-len(arms) // most), 1)
    return arms[::-1][::step][::-1]
