import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bandit.batch import BatchVariance

SEEDS = st.integers(0, 10**6)


@given(seed=SEEDS)
def test_rank_one_updates_equal_the_inverse_with_the_batch_in_it(make_problem, seed) -> None:
    problem = make_problem(seed)
    posterior = problem.posterior
    updated = BatchVariance(posterior)
    for arm in problem.batch:
        updated.append(arm)
    everything = np.arange(len(posterior.mean))
    rows = posterior.whiten(everything)
    after = np.linalg.inv(np.eye(rows.shape[1]) + rows[problem.batch].T @ rows[problem.batch])
    residual = posterior.variance - np.einsum("ij,ij->i", rows, rows)
    expected = residual + np.einsum("ij,jk,ik->i", rows, after, rows)
    np.testing.assert_allclose(updated.variance(everything), np.maximum(expected, 0), atol=1e-7)


@given(seed=SEEDS)
def test_late_updates_equal_prompt_ones_bit_for_bit_and_never_rise(make_problem, seed) -> None:
    problem = make_problem(seed)
    posterior, rng = problem.posterior, np.random.default_rng(seed)
    count = len(posterior.mean)
    prompt, late = BatchVariance(posterior), BatchVariance(posterior)
    before = prompt.variance(np.arange(count))
    for arm in problem.batch * 3:
        prompt.append(arm)
        late.append(arm)
        now = prompt.variance(np.arange(count))
        assert (now <= before).all()
        assert now[arm] < before[arm] or before[arm] < 1e-9
        before = now
        some = rng.permutation(count)[: rng.integers(count)]
        np.testing.assert_array_equal(late.variance(some), now[some])


@given(seed=SEEDS)
def test_lemma_1_the_drift_is_below_one_plus_the_sum_of_old_variances(make_problem, seed) -> None:
    problem = make_problem(seed)
    old = problem.posterior.variance
    updated, everything = BatchVariance(problem.posterior), np.arange(len(old))
    known = old > 1e-6  # below that a ratio is one of rounding errors
    bound = 1.0
    for arm in problem.batch:
        updated.append(arm)
        bound += old[arm]
        ratio = old[known] / updated.variance(everything)[known]
        assert (ratio <= bound * (1 + 1e-6)).all()
