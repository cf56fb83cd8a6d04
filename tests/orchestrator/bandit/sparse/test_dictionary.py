import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bandit.exact.exact import effective_dimension, exact_posterior
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.pulls import Pulls
from orchestrator.bandit.sparse.dictionary import Resampling, inclusion_probabilities, resparsify
from orchestrator.bandit.sparse.posterior import SparseModel

PULLS = Pulls.none(5).add([0] * 3 + [2] + [4] * 10, np.zeros(14))
VARIANCE = np.array([0.1, 0.7, 0.01])  # of the pulled arms


def test_pulls_enter_one_by_one() -> None:
    expected = [1 - 0.8**3, 1.0, 1 - 0.98**10]
    np.testing.assert_allclose(inclusion_probabilities(PULLS, VARIANCE, 2.0, "pulls"), expected, rtol=1e-12)


def test_arms_enter_as_a_whole() -> None:
    np.testing.assert_allclose(inclusion_probabilities(PULLS, VARIANCE, 2.0, "arms"), [0.6, 1.0, 0.2], rtol=1e-12)


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_the_dictionary_is_drawn_of_pulled_arms_only_and_a_certain_one_is_in_it(resampling: Resampling) -> None:
    pulls = Pulls.none(9).add([8, 2, 5, 5], np.zeros(4))
    for seed in range(20):
        drawn = resparsify(pulls, np.array([1e-3, 1.0, 1e-3]), 2.0, resampling, np.random.default_rng(seed))
        assert 5 in drawn
        assert set(drawn.tolist()) <= {2, 5, 8}


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 3)), min_size=1), st.floats(1, 10))
def test_an_arm_as_a_whole_is_at_least_as_likely_and_within_the_expected_size(
    rows: list[tuple[int, float]], oversampling: float
) -> None:
    pulls = Pulls(np.array([count for count, _ in rows]), np.zeros(len(rows)))
    variance = np.array([value for _, value in rows])
    single = inclusion_probabilities(pulls, variance, oversampling, "pulls")
    whole = inclusion_probabilities(pulls, variance, oversampling, "arms")
    assert (single <= whole + 1e-12).all()
    assert ((single >= 0) & (whole <= 1)).all()
    assert whole.sum() <= oversampling * (pulls.counts @ variance) * (1 + 1e-12)


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_arms_are_drawn_as_often_as_their_probability_says(resampling: Resampling) -> None:
    rng = np.random.default_rng(0)
    draws = [resparsify(PULLS, VARIANCE, 2.0, resampling, rng) for _ in range(4000)]
    frequency = np.bincount(np.concatenate(draws), minlength=5)[PULLS.arms] / 4000
    # five standard deviations of a mean of 4000 draws are below 0.04
    np.testing.assert_allclose(frequency, inclusion_probabilities(PULLS, VARIANCE, 2.0, resampling), atol=0.04)


def test_an_empty_draw_keeps_the_likeliest_arm() -> None:
    tiny = 1e-12 * np.array([1, 1, 5])
    assert resparsify(PULLS, tiny, 1.0, "pulls", np.random.default_rng(0)).tolist() == [4]


def test_a_dictionary_needs_a_pull() -> None:
    with pytest.raises(ValueError, match="needs at least one pull"):
        resparsify(Pulls.none(3), np.empty(0), 2.0, "pulls", np.random.default_rng(0))


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_the_theory_s_oversampling_keeps_the_variance_within_a_factor_of_three(resampling: Resampling) -> None:
    rng, delta, regularization = np.random.default_rng(4), 0.1, 0.1
    arms = np.sort(rng.random((900, 1)), axis=0)
    pulls = Pulls.none(900).add(np.arange(900), np.zeros(900))
    kernel = RBF(0.3)
    _, exact = exact_posterior(kernel, arms, pulls, regularization)
    oversampling = 8 * np.log(4 * pulls.total / delta)
    dictionary = resparsify(pulls, exact, oversampling, resampling, rng)
    assert len(dictionary) < 0.9 * len(arms)  # or there would be nothing to check
    ratio = SparseModel(kernel, arms, regularization).fit(pulls, dictionary).variance / exact
    assert ratio.min() >= 1 / 3
    assert ratio.max() <= 3
    # Theorem 1, with C̃ = 1
    bound = 9 * (1 + 1 / regularization) * oversampling * effective_dimension(kernel, arms, pulls, regularization)
    assert len(dictionary) <= bound
