"""The state of strategies with an exact posterior, and their next pull.

Expected improvement and probability of improvement over the best belief, exact (Salgia, Vakili,
Zhao 2021, Appendix D.1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.posterior import ExactPosterior, exact_posterior
from bbkb.orchestrator.bandit.exact.strategy import ExactState, Improvement
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB, ExpectedImprovement, ProbabilityOfImprovement
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick
from tests.orchestrator.bandit.sequential_runs import run_sequentially


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
    def refuse_to_score() -> Floats:
        raise AssertionError("nothing is known to score with")

    start = ExactState.begin(initial_state(MODEL, (4, 1)))
    assert GPUCB().next_pull(start, (), 3, refuse_to_score) == Choose((Pick(4),), "warm start")


def test_pick_has_the_largest_score_the_lowest_index_among_equals_and_is_not_set_aside() -> None:
    scores = np.array([0.0, 2.0, 1.0, 2.0, -np.inf, 9.0])
    strategy = GPUCB(width=0.7)
    decision = strategy.next_pull(STATE, (), 3, lambda: scores)
    belief = STATE.belief
    assert decision == Choose(
        (Pick(1, belief.mean[1], strategy.width_at(STATE), belief.variance[1]),), "one pull at a time"
    )
    assert scores[5] == 9.0, "the scores are the caller's"


ARMS = np.random.default_rng(0).random((40, 2))
ACQUISITIONS = pytest.mark.parametrize("acquisition", [ExpectedImprovement, ProbabilityOfImprovement])
play = partial(run_sequentially, ARMS, fails=lambda arm: arm % 7 == 3)  # every seventh arm fails


def expected(gain: Floats, deviation: Floats) -> Floats:
    improvement: Floats = gain * norm.cdf(gain / deviation) + deviation * norm.pdf(gain / deviation)
    return improvement


def probability(gain: Floats, deviation: Floats) -> Floats:
    improvement: Floats = norm.cdf(gain / deviation)
    return improvement


@pytest.mark.parametrize(
    ("acquisition", "formula"), [(ExpectedImprovement, expected), (ProbabilityOfImprovement, probability)]
)
@given(seed=st.integers(0, 10**6), margin=st.sampled_from([0.01, 0.3]))
def test_pick_has_the_largest_improvement_of_a_dense_gaussian_process(
    acquisition: type[Improvement], formula: Callable[[Floats, Floats], Floats], seed: int, margin: float
) -> None:
    strategy = acquisition(RBF(0.3), 0.04, margin=margin)
    for state, pick in list(play(strategy, 20, seed))[1:]:
        if np.isnan(pick.mean):  # the warm start
            continue
        mean, variance = exact_posterior(RBF(0.3), ARMS, state.pulls, 0.04)
        gain = mean - np.delete(mean, state.set_aside).max() - margin
        improvement = np.delete(formula(gain, np.sqrt(0.04 * variance)), state.set_aside)
        picked = formula(gain, np.sqrt(0.04 * variance))[pick.arm]
        assert picked >= improvement.max() * (1 - 1e-7)


def test_improvements_that_round_to_zero_are_still_ranked() -> None:
    scores = ExpectedImprovement().improvement(np.array([0.0, 0.1, 0.05]), np.full(3, 1e-3), 1.0)
    assert np.argsort(scores).tolist() == [0, 2, 1]
    assert np.exp(scores).max() == pytest.approx(0.0, abs=0)
    # a certain arm below the target comes last
    scores = ProbabilityOfImprovement().improvement(np.array([0.0, 0.9, 0.5]), np.array([1e-3, 0.0, 1e-3]), 1.0)
    assert np.argsort(scores).tolist() == [1, 0, 2]
    assert norm.cdf(scores).tolist() == [0, 0, 0]


def test_certain_best_arm_improves_with_probability_half_without_a_margin() -> None:
    assert norm.cdf(ProbabilityOfImprovement(margin=0.0).improvement(np.ones(1), np.zeros(1), 1.0)) == 0.5
