"""`bbkb.orchestrator.bandit.sparse.picking`: The exact posterior variances given pulls without
rewards: every pull is an inducing point.
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.kernels import Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.picking import ConditionedPosterior
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from tests.orchestrator.bandit.conftest import Problem

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


def test_pending_arm_far_from_the_dictionary_is_less_uncertain() -> None:
    arms = Arms.of(np.array([[0.0], [1.0], [50.0]]))
    model = SparseModel(Matern52(0.3), arms.features, 0.1)
    batch = ConditionedPosterior(model.fit(Pulls.none(3).add([0], [1.0]), np.array([0])))
    batch.append(2)
    assert batch.variance[batch.position(2)] < 1.0
