"""One pull at a time under an exact belief: the common step of strategies that rank the arms."""

from collections.abc import Callable, Sequence

import numpy as np

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.checks import sequential_refusal
from orchestrator.bandit.exact.state import ExactState
from orchestrator.bandit.sparse.state import no_arm_left
from orchestrator.bandit.strategy import Choose, Decision, Pick

Score = Callable[[ExactState], Floats]


def next_pull(state: ExactState, pending: Sequence[int], limit: int, score: Score, width: float) -> Decision:
    """Return the warm start's next arm, then the arm of largest `score`; nothing while a reward is
    not in yet.

    `score` gives (A,), −∞ for arms that may not be chosen; those set aside are left out anyway.
    Ties go to the lowest index. `width`: what the pick reports, a factor on σ of the 1/λ scale, NaN
    for none. Raises ValueError when `limit` is below 1.
    """
    wait = sequential_refusal(state, pending, limit) or no_arm_left(state.base, pending)
    if wait:
        return wait
    start = state.base.remaining_start()
    if start:
        return Choose((Pick(start[0]),), "warm start")
    belief, arm = state.belief, int(np.argmax(state.without_set_aside(score(state))))
    return Choose((Pick(arm, float(belief.mean[arm]), width, float(belief.variance[arm])),), "one pull at a time")
