"""`bbkb.orchestrator.bandit.sparse.picking`: The posterior within a batch: pulls without rewards as rank-
one updates (BBKB Algorithm 1, line 8).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.picking import FOLD, BatchPosterior
from bbkb.orchestrator.bandit.sparse.posterior import SparsePosterior
from tests.orchestrator.bandit.conftest import Problem, batch_with_all_arms

SEEDS = st.integers(0, 10**6)


def expected_variance(posterior: SparsePosterior, pulled: Sequence[int]) -> np.ndarray:
    """With the inverse after the whole batch, from scratch."""
    rows = posterior.moments(np.arange(len(posterior.mean)))[2]
    after = np.linalg.inv(np.eye(rows.shape[1]) + rows[pulled].T @ rows[pulled])
    residual = posterior.variance - np.einsum("ij,ij->i", rows, rows)
    result: np.ndarray = np.maximum(residual + np.einsum("ij,jk,ik->i", rows, after, rows), 0)
    return result


@given(seed=SEEDS, repeats=st.sampled_from([1, 20]))
def test_rank_one_updates_equal_the_inverse_after_the_batch(
    make_problem: Callable[..., Problem], seed: int, repeats: int
) -> None:
    problem = make_problem(seed)
    updated = batch_with_all_arms(problem.posterior)
    for arm in problem.batch * repeats:
        updated.append(arm)
    np.testing.assert_allclose(
        updated.variance, expected_variance(problem.posterior, problem.batch * repeats), atol=1e-7
    )


@given(seed=SEEDS)
def test_removed_arms_return_with_the_same_numbers_and_pulled_arms_stay(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    problem, rng = make_problem(seed), np.random.default_rng(seed)
    staying, leaving = batch_with_all_arms(problem.posterior), batch_with_all_arms(problem.posterior)
    for number, arm in enumerate(problem.batch):
        staying.append(arm)
        leaving.append(arm)
        arms = leaving.arms
        removed = arms[leaving.leave(np.flatnonzero(rng.random(len(arms)) < 0.5))]
        assert sorted(removed) == np.setdiff1d(arms, leaving.arms).tolist()
        assert np.isin(problem.batch[: number + 1], leaving.arms).all()
        leaving.enter(removed[rng.random(len(removed)) < 0.5])
    leaving.enter(np.setdiff1d(staying.arms, leaving.arms))
    for moment in ("arms", "mean", "start_variance", "variance", "rows"):
        np.testing.assert_array_equal(getattr(leaving, moment), getattr(staying, moment))


@given(seed=SEEDS)
def test_deferred_variances_equal_immediate_ones_bit_for_bit_and_never_rise(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    problem = make_problem(seed)
    posterior, rng = problem.posterior, np.random.default_rng(seed)
    count = len(problem.model.arms)
    prompt, late = batch_with_all_arms(posterior), BatchPosterior(posterior)
    waiting = rng.permutation(count).tolist()
    pulled = rng.integers(count, size=2 * FOLD + 8).tolist()  # the directions are folded twice
    before = prompt.variance.copy()
    rows = posterior.moments(np.arange(count))[2]
    # a pull changes nothing outside the span of the dictionary, and almost nothing near its complement
    explained = np.einsum("ij,ij->i", rows, rows)
    for arm in pulled:
        prompt.append(arm)
        late.append(arm)
        waiting = [other for other in waiting if other not in late.arms]
        now = prompt.variance.copy()
        assert (now <= before).all()
        assert now[arm] < before[arm] or explained[arm] < 1e-4
        before = now
        coming, waiting = (waiting[:2], waiting[2:]) if rng.random() < 0.1 else ([], waiting)
        late.enter(np.array(coming, np.intp))
        np.testing.assert_array_equal(late.variance, now[late.arms])
    late.enter(np.array(waiting, np.intp))
    assert sorted(late.arms.tolist()) == list(range(count))
    for moment in ("mean", "start_variance", "variance", "rows"):
        np.testing.assert_array_equal(getattr(late, moment), getattr(prompt, moment)[late.arms])


@given(seed=SEEDS)
def test_arms_are_in_ascending_order_with_their_moments(make_problem: Callable[..., Problem], seed: int) -> None:
    problem = make_problem(seed)
    posterior, rng = problem.posterior, np.random.default_rng(seed)
    batch = BatchPosterior(posterior)
    order = rng.permutation(len(problem.model.arms))
    batch.enter(order[:3])
    batch.position(int(order[3]))  # included because it was requested
    arms = np.sort(order[:4])
    assert [batch.position(int(arm)) for arm in arms] == [0, 1, 2, 3]
    np.testing.assert_array_equal(batch.positions(arms[::-1]), [3, 2, 1, 0])
    np.testing.assert_array_equal(batch.arms, arms)
    mean, variance, rows = posterior.moments(arms)
    np.testing.assert_array_equal(batch.mean, mean)
    np.testing.assert_array_equal(batch.start_variance, variance)
    np.testing.assert_array_equal(batch.rows, rows)
    batch.append(int(arms[0]))
    np.testing.assert_array_equal(batch.start_variance, variance)  # frozen, unlike `variance`
    assert batch.variance[0] < variance[0] or variance[0] < 1e-9


def test_batch_on_the_prior_learns_nothing(make_problem: Callable[..., Problem]) -> None:
    # no dictionary, no embedding: pulls do not change the variances
    model = make_problem(2).model
    updated = batch_with_all_arms(model.fit(Pulls.none(len(model.arms)), np.empty(0, np.intp)))
    for arm in [0, 1, 0]:
        updated.append(arm)
    assert updated.variance == pytest.approx(model.diagonal / model.regularization)
