import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bandit.batch import BatchVariance
from orchestrator.bandit.termination import GlobalDrift, LocalDrift, ProductDrift

SEEDS = st.integers(0, 10**6)


def bounds_along(problem, threshold=1.0):
    """After each pull of the batch: every rule's bound, and the true ratios σ̃²_fb/σ̃²_t."""
    posterior, updated = problem.posterior, BatchVariance(problem.posterior)
    rules = {
        "global": GlobalDrift(posterior, threshold),
        "product": ProductDrift(threshold),
        "local": LocalDrift(posterior, threshold, "embedded", is_lazy=False),
    }
    known = posterior.variance > 1e-6  # below that a ratio is one of rounding errors
    for arm in problem.batch:
        before = float(updated.variance(np.array([arm]))[0])
        updated.append(arm)
        for rule in rules.values():
            rule.append(arm, before)
            rule.is_spent()
        ratios = posterior.variance[known] / updated.variance(np.arange(len(known)))[known]
        yield {name: rule.bound for name, rule in rules.items()}, ratios


@given(seed=SEEDS)
def test_every_rule_bounds_the_drift_and_the_local_one_is_below_the_global_one(make_problem, seed) -> None:
    for bound, ratios in bounds_along(make_problem(seed)):
        assert ratios.max(initial=1.0) <= bound["local"] * (1 + 1e-6)  # Lemma 3 as mended
        assert bound["local"] <= bound["global"] * (1 + 1e-9)
        assert bound["global"] <= bound["product"] * (1 + 1e-9)  # so the product rule's batch is never longer


@given(seed=SEEDS)
def test_the_local_bound_holds_arm_by_arm(make_problem, seed) -> None:
    problem = make_problem(seed)
    posterior, everything = problem.posterior, np.arange(len(problem.model.arms))
    updated = BatchVariance(posterior)
    for arm in problem.batch:
        updated.append(arm)
    full, embedded = posterior.covariances(np.array(problem.batch), everything)
    known = posterior.variance > 1e-6
    bound = 1 + np.maximum(full**2, embedded**2).sum(axis=0)[known] / posterior.variance[known]
    assert (posterior.variance[known] / updated.variance(everything)[known] <= bound * (1 + 1e-6)).all()


@given(seed=SEEDS, covariance=st.sampled_from(["embedded", "paper"]), threshold=st.floats(1.0, 6.0))
def test_the_lazy_local_rule_decides_like_the_eager_one(make_problem, seed, covariance, threshold) -> None:
    problem = make_problem(seed)
    posterior = problem.posterior
    lazy = LocalDrift(posterior, threshold, covariance)
    eager = LocalDrift(posterior, threshold, covariance, is_lazy=False)
    for arm in problem.batch:
        lazy.append(arm, np.nan)
        eager.append(arm, np.nan)
        assert lazy.is_spent() == eager.is_spent()
        assert eager.bound <= lazy.bound * (1 + 1e-9)


def test_the_global_bound_sums_squared_deviations(make_problem) -> None:
    problem = make_problem(3)
    variance = problem.posterior.variance
    arm = int(np.argmax(variance))
    rule = GlobalDrift(problem.posterior, 1 + 2.5 * variance[arm])
    spent = []
    for _ in range(3):
        rule.append(arm, np.nan)
        spent.append(rule.is_spent())
    assert spent == [False, False, True]


def test_the_product_rule_multiplies_variances_within_the_batch() -> None:
    rule = ProductDrift(3.0)
    rule.append(0, 1.0)
    rule.append(0, 0.5)  # 2 · 1.5 = 3 is not above 3
    assert not rule.is_spent()
    rule.append(0, 0.01)
    assert rule.is_spent()


def test_the_local_bound_is_the_printed_sum_and_the_mended_one_is_at_least_as_large(make_problem) -> None:
    differences = []
    for seed in range(60):
        problem = make_problem(seed)
        posterior, batch = problem.posterior, np.array(problem.batch)
        full, embedded = posterior.covariances(batch, np.arange(len(problem.model.arms)))
        squares = {"paper": full**2, "embedded": np.maximum(full**2, embedded**2)}
        bounds = {}
        for name, square in squares.items():
            rule = LocalDrift(posterior, 1.0, name)
            for arm in problem.batch:
                rule.append(arm, np.nan)
            rule.is_spent()
            known = posterior.variance > 0
            expected = 1 + (square.sum(axis=0)[known] / posterior.variance[known]).max()
            assert rule.bound == pytest.approx(expected, rel=1e-9)
            bounds[name] = rule.bound
        assert bounds["paper"] <= bounds["embedded"]
        differences.append(bounds["embedded"] - bounds["paper"])
    assert max(differences) > 1e-6  # or the two would never have been told apart
