"""The exact posterior, against dense algebra, and the strategies that choose by it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as oracle

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.posterior import ExactPosterior, downdate, exact_posterior
from bbkb.orchestrator.bandit.exact.strategy import ExactState, Improvement
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB, ExpectedImprovement, ProbabilityOfImprovement
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick
from tests.orchestrator.bandit.conftest import Problem
from tests.orchestrator.bandit.sequential_runs import run_sequentially


@given(seed=st.integers(0, 10**6))
def test_counts_and_sums_give_the_posterior_of_the_list_of_pulls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms, pulled = rng.normal(size=(15, 2)), rng.integers(15, size=25)
    rewards = rng.normal(size=25)
    mean, variance = exact_posterior(RBF(0.8), arms, Pulls.none(15).add(pulled, rewards), 0.1)
    reference = GaussianProcessRegressor(oracle.RBF(0.8), alpha=0.1, optimizer=None).fit(arms[pulled], rewards)
    expected, deviation = reference.predict(arms, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-9)
    np.testing.assert_allclose(variance, deviation**2 / 0.1, atol=1e-9)


def test_posterior_without_pulls_is_the_prior() -> None:
    mean, variance = exact_posterior(RBF(1.0, 2.0), np.zeros((3, 1)), Pulls.none(3), 0.5)
    assert mean.tolist() == [0.0] * 3
    assert variance.tolist() == [4.0] * 3


def posterior_after(model: SparseModel, arms: ArrayLike, rewards: ArrayLike) -> ExactPosterior:
    belief = ExactPosterior.prior(model)
    for arm, reward in zip(np.asarray(arms), np.asarray(rewards), strict=True):
        belief = belief.pull(int(arm), float(reward))
    return belief


@given(seed=st.integers(0, 10**6))
def test_incremental_posterior_equals_the_refitted_one(make_problem: Callable[..., Problem], seed: int) -> None:
    problem = make_problem(seed)
    rng = np.random.default_rng(seed)
    arms = rng.integers(len(problem.model.arms), size=60)  # most arms are pulled again and again
    rewards = rng.normal(size=60)
    belief = posterior_after(problem.model, arms, rewards)
    pulls = Pulls.none(len(problem.model.arms)).add(arms, rewards)
    mean, variance = exact_posterior(problem.model.kernel, problem.model.arms, pulls, problem.model.regularization)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-8)
    np.testing.assert_allclose(belief.variance, variance, atol=1e-8)


def test_incremental_posterior_equals_the_refitted_one_after_hundreds_of_near_duplicates() -> None:
    rng = np.random.default_rng(0)
    arms = rng.random((60, 2))
    arms[30:] = arms[:30] + 1e-9
    model = SparseModel(RBF(0.5), arms, 1e-4)
    pulled, rewards = np.minimum(rng.geometric(0.08, size=600) - 1, 59), rng.normal(size=600)
    belief = posterior_after(model, pulled, rewards)
    mean, variance = exact_posterior(model.kernel, arms, Pulls.none(60).add(pulled, rewards), 1e-4)
    np.testing.assert_allclose(belief.mean, mean, atol=1e-6)
    np.testing.assert_allclose(belief.variance, variance, atol=1e-6)


@given(seed=st.integers(0, 10**6))
def test_factor_is_that_of_the_pulled_arms_with_lambda_shared_among_their_pulls(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    model = make_problem(seed).model
    arms = np.random.default_rng(seed).integers(len(model.arms), size=40)
    belief = posterior_after(model, arms, np.zeros(40))
    assert sorted(belief.order) == sorted(set(arms.tolist()))
    assert belief.counts.tolist() == [int((arms == arm).sum()) for arm in belief.order]
    points = model.arms[belief.order]
    expected = model.kernel.cross(points, points) + np.diag(model.regularization / belief.counts)
    np.testing.assert_allclose(belief.factor.T @ belief.factor, expected, atol=1e-10)


@given(seed=st.integers(0, 10**6))
def test_information_gain_is_the_log_determinant_over_the_multiset_of_pulls(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    model = make_problem(seed).model
    arms = np.random.default_rng(seed).integers(len(model.arms), size=25)
    gram = model.kernel.cross(model.arms[arms], model.arms[arms]) / model.regularization
    expected = np.linalg.slogdet(np.eye(25) + gram)[1]
    assert posterior_after(model, arms, np.zeros(25)).information_gain == pytest.approx(expected, abs=1e-7)


def test_pull_without_reward_shrinks_the_variance_and_keeps_the_mean_bit_for_bit() -> None:
    model = SparseModel(Matern52(0.4), np.random.default_rng(1).random((20, 2)), 0.01)
    before = posterior_after(model, [3, 8, 3], [1.0, -0.5, 0.7])
    for arm in (3, 11):
        after, with_reward = before.pull_without_reward(arm), before.pull(arm, 9.0)
        assert after.mean.tolist() == before.mean.tolist()
        assert after.variance[arm] < before.variance[arm]
        assert after.variance.tolist() == with_reward.variance.tolist()
        assert with_reward.mean[arm] > before.mean[arm]


def test_pull_does_not_change_the_earlier_belief() -> None:
    model = SparseModel(RBF(0.3), np.linspace(0, 1, 9)[:, None], 0.1)
    before, again = posterior_after(model, [2, 5, 2], [1, 2, 3]), posterior_after(model, [2, 5, 2], [1, 2, 3])
    before.pull(2, 4.0).pull(7, 1.0)
    assert before == again
    for part in (before.order, before.counts, before.factor, before.mean, before.variance):
        assert not part.flags.writeable


def test_downdate_that_rounding_made_singular_stays_above_its_floors() -> None:
    factor = np.eye(2)
    downdate(factor, np.array([1.0 + 1e-15, 0.0]), np.array([1e-4, 1e-4]))
    assert factor.diagonal().tolist() == [0.01, 1.0]


def observed_at_once(model: SparseModel, arms: list[int], rewards: list[float]) -> ExactPosterior:
    """The belief after more pulls than are added one by one."""
    return ExactState.begin(initial_state(model, ())).observe(list(map(Observation, arms, rewards))).belief


@given(seed=st.integers(0, 10**6))
def test_first_pulls_at_once_give_the_belief_of_pulls_one_by_one(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    model, rng = make_problem(seed).model, np.random.default_rng(seed)
    arms, rewards = rng.integers(len(model.arms), size=100).tolist(), rng.normal(size=100).tolist()
    at_once = observed_at_once(model, arms, rewards)
    one_by_one = posterior_after(model, arms, rewards)
    assert at_once.order.tolist() == one_by_one.order.tolist()
    assert at_once.counts.tolist() == one_by_one.counts.tolist()
    np.testing.assert_allclose(at_once.mean, one_by_one.mean, atol=1e-7)
    np.testing.assert_allclose(at_once.variance, one_by_one.variance, atol=1e-7)
    np.testing.assert_allclose(at_once.factor, one_by_one.factor, atol=1e-7)
    assert at_once.information_gain == pytest.approx(one_by_one.information_gain, abs=1e-6)


def test_pulls_at_once_survive_duplicates_without_noise() -> None:
    model = SparseModel(RBF(1.0), np.zeros((70, 1)), 1e-18)  # λ is lost beside 1
    belief = observed_at_once(model, list(range(70)), [0.5] * 70)
    np.testing.assert_allclose(belief.mean, 0.5, rtol=1e-6)
    assert np.isfinite(belief.variance).all()


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
