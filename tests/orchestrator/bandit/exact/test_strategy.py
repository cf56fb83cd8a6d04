"""`orchestrator.bandit.exact.strategy`: One pull at a time under an exact belief: the common step
of strategies that rank the arms.
"""

import numpy as np

from orchestrator.bandit.exact.state import ExactState
from orchestrator.bandit.exact.strategy import next_pull
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.sparse.posterior import SparseModel
from orchestrator.bandit.sparse.state import initial_state
from orchestrator.bandit.strategy import Choose, Observation, Pick

MODEL = SparseModel(RBF(0.3), np.linspace(0, 1, 6)[:, None], 0.1)
STATE = ExactState.begin(initial_state(MODEL, (2,))).observe([Observation(2, 0.5), Observation(5, None)])


def test_warm_start_comes_first_without_a_score() -> None:
    def refuse_to_score(state: ExactState) -> np.ndarray:
        raise AssertionError("nothing is known to score with")

    start = ExactState.begin(initial_state(MODEL, (4, 1)))
    assert next_pull(start, (), 3, refuse_to_score, 1.0) == Choose((Pick(4),), "warm start")


def test_largest_score_wins_the_lowest_index_among_equals_and_never_an_arm_set_aside() -> None:
    scores = np.array([0.0, 2.0, 1.0, 2.0, -np.inf, 9.0])
    decision = next_pull(STATE, (), 3, lambda _: scores, 0.7)
    belief = STATE.belief
    assert decision == Choose((Pick(1, belief.mean[1], 0.7, belief.variance[1]),), "one pull at a time")
    assert scores[5] == 9.0, "the scores are the caller's"
