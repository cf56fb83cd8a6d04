"""The state of strategies with an exact posterior, and their next pull."""

from dataclasses import dataclass, replace

import numpy as np

from bbkb.orchestrator.bandit.exact.posterior import ExactPosterior
from bbkb.orchestrator.bandit.exact.strategy import ExactState, next_pull
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick


@dataclass(frozen=True, eq=False, kw_only=True)
class Remembering(ExactState):
    """A state with a further field beside pulls and belief."""

    number: int


def test_state_with_failures_learns_from_the_others_and_masks_the_failed() -> None:
    model = SparseModel(RBF(0.3), np.linspace(0, 1, 5)[:, None], 0.1)
    start = ExactState.begin(initial_state(model, (1,)))
    state = start.observe([Observation(1, 0.5), Observation(4, None), Observation(1, 0.7)])
    assert state.belief == ExactPosterior.prior(model).pull(1, 0.5).pull(1, 0.7)
    assert state.pulls.counts.tolist() == [0, 2, 0, 0, 0]
    assert (state.round, state.set_aside.tolist(), state.dictionary.tolist()) == (1, [4], [])
    assert state.available.tolist() == [0, 1, 2, 3]
    assert state != start


def test_state_with_more_fields_keeps_and_compares_them() -> None:
    base = initial_state(SparseModel(RBF(0.3), np.linspace(0, 1, 5)[:, None], 0.1), (1,))
    state = Remembering.begin(base, number=7)
    after = state.observe([Observation(1, 0.5)])
    assert (after.number, after.round) == (7, 1)
    assert state.restore([Observation(1, 0.5)], None, after.record()) == after
    assert after != replace(after, number=8)
    assert after != ExactState.begin(base).observe([Observation(1, 0.5)])


MODEL = SparseModel(RBF(0.3), np.linspace(0, 1, 6)[:, None], 0.1)
STATE = ExactState.begin(initial_state(MODEL, (2,))).observe([Observation(2, 0.5), Observation(5, None)])


def test_warm_start_comes_first_without_a_score() -> None:
    def refuse_to_score(state: ExactState) -> np.ndarray:
        raise AssertionError("nothing is known to score with")

    start = ExactState.begin(initial_state(MODEL, (4, 1)))
    assert next_pull(start, (), 3, refuse_to_score, 1.0) == Choose((Pick(4),), "warm start")


def test_pick_has_the_largest_score_the_lowest_index_among_equals_and_is_not_set_aside() -> None:
    scores = np.array([0.0, 2.0, 1.0, 2.0, -np.inf, 9.0])
    decision = next_pull(STATE, (), 3, lambda _: scores, 0.7)
    belief = STATE.belief
    assert decision == Choose((Pick(1, belief.mean[1], 0.7, belief.variance[1]),), "one pull at a time")
    assert scores[5] == 9.0, "the scores are the caller's"
