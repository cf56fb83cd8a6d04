"""`bbkb.orchestrator.bandit.sparse.picking`: The posterior within a batch: pulls without rewards as rank-
one updates (BBKB Algorithm 1, line 8).

`bbkb.orchestrator.bandit.sparse.picking`: The exact posterior variances given pulls without
rewards: every pull is an inducing point.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.kernels import Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.picking import FOLD, BatchPosterior, ConditionedPosterior
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
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


seeds = st.integers(0, 1000)


@pytest.mark.parametrize(("is_together", "repeats"), [(False, 1), (False, 12), (True, 1)])  # 48 pulls need more room
def test_pulls_without_rewards_condition_the_exact_process(is_together: bool, repeats: int) -> None:
    rng = np.random.default_rng(0)
    features = rng.random((30, 2))
    model = SparseModel(Matern52(0.3), features, 0.05)
    rewarded, pending = np.arange(10), [25, 12, 25, 3] * repeats
    batch = ConditionedPosterior(model.fit(Pulls.none(30).add(rewarded, rng.normal(size=10)), rewarded))
    if is_together:
        batch.extend(pending)  # two of them are of one arm
    else:
        for arm in pending:
            batch.append(arm)
    batch.enter(np.setdiff1d(np.arange(30), batch.arms))
    pulled = [*rewarded.tolist(), *pending]
    gram, cross = model.kernel.cross(features[pulled], features[pulled]), model.kernel.cross(features, features[pulled])
    explained = np.einsum("ap,pa->a", cross, np.linalg.solve(gram + 0.05 * np.eye(len(pulled)), cross.T))
    at = batch.positions(np.arange(30))
    batch.refresh(at)
    np.testing.assert_allclose(batch.variance[at], (1.0 - explained) / 0.05, atol=1e-8)


@given(seed=seeds)
def test_variance_of_an_arm_does_not_depend_on_the_time_of_its_computation(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    problem = make_problem(seed)
    late, early = ConditionedPosterior(problem.posterior), ConditionedPosterior(problem.posterior)
    every = np.arange(len(problem.model.arms))
    early.enter(every)
    for number, arm in enumerate(problem.batch):
        before = early.variance.copy()
        early.append(arm)
        late.append(arm)
        if number % 2:
            early.refresh(np.arange(0, len(every), 1 + number))  # some more often than others
        assert (early.variance <= before).all()
    for arm in np.setdiff1d(every, late.arms):
        late.enter(np.array([arm]))
    at_once = ConditionedPosterior(problem.posterior)
    at_once.extend(problem.batch)
    at_once.enter(np.setdiff1d(every, at_once.arms))
    early.refresh(every)
    for other in (at_once, late):
        at = other.positions(early.arms)
        other.refresh(at)
        np.testing.assert_allclose(other.variance[at], early.variance, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(other.mean[at], early.mean, rtol=1e-7, atol=1e-9)


@given(seed=seeds)
def test_removed_arms_return_with_the_same_variance_and_pulled_arms_stay(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    problem, rng = make_problem(seed), np.random.default_rng(seed)
    every = np.arange(len(problem.model.arms))
    staying, leaving = ConditionedPosterior(problem.posterior), ConditionedPosterior(problem.posterior)
    for posterior in (staying, leaving):
        posterior.enter(every)
    for number, arm in enumerate(problem.batch):
        staying.append(arm)
        leaving.append(arm)
        arms = leaving.arms.copy()
        removed = arms[leaving.leave(np.flatnonzero(rng.random(len(arms)) < 0.5))]
        assert sorted(removed) == np.setdiff1d(arms, leaving.arms).tolist()
        assert np.isin(problem.batch[: number + 1], leaving.arms).all()
        leaving.enter(removed[rng.random(len(removed)) < 0.5])
    leaving.enter(np.setdiff1d(every, leaving.arms))
    for posterior in (staying, leaving):
        posterior.refresh(every)
    at = leaving.positions(staying.arms)
    np.testing.assert_allclose(leaving.variance[at], staying.variance, rtol=1e-7, atol=1e-9)
