"""Pulls for workers that would idle during warm-up: uncertainty sampling given everything that is pending.

The arm of largest σ̃²_{D∪P} again and again, while it is above a target, as BBKB's Algorithm 3 does before any pull. The
dictionary does not know pending pulls yet, so that far from it their variance would not fall; here they are inducing
points as well.
"""

from collections.abc import Sequence

import numpy as np

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.strategy import Pick


def most_uncertain(state: SparseState, pending: Sequence[int], target: float, limit: int) -> tuple[Pick, ...]:
    """At most `limit` arms of largest variance after `state`'s pulls and those `pending`, while it exceeds `target`.

    Variances are on the 1/λ scale. O((m + p)³ + A (m + p)) with m inducing points and p arms pending, and O(A (m + p))
    more for each further pick.
    """
    arms = np.array(sorted(set(pending)), np.intp)
    pulls = state.pulls.add(pending, np.zeros(len(pending)))  # rewards do not matter to a variance
    posterior = state.model.fit(pulls, np.union1d(state.dictionary, arms))
    variance = posterior.variance.copy()
    variance[state.set_aside] = -np.inf
    picks: list[Pick] = []
    columns: list[Floats] = []
    while len(picks) < limit:
        arm = int(variance.argmax())
        if variance[arm] <= target:
            break
        picks.append(Pick(arm, variance=float(variance[arm])))
        column = posterior.covariances_with(arm)
        for earlier in columns:
            column -= earlier[arm] * earlier
        column /= np.sqrt(1.0 + variance[arm])
        variance -= column**2
        columns.append(column)
    return tuple(picks)
