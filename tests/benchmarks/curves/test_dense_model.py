"""The dense model: its gradient, its posterior against the direct formula, and what pending trials
change."""

import numpy as np
import pytest

from benchmarks.curves.dense_model import Dense, Observations, Posterior, _Loss

ROWS, TRIALS, FEATURES = 30, 9, 3


@pytest.fixture
def seen() -> Observations:
    rng = np.random.default_rng(1)
    trial = np.sort(rng.integers(0, TRIALS, ROWS))
    return Observations(rng.random((TRIALS, FEATURES)), trial, rng.random(ROWS), rng.standard_normal(ROWS))


@pytest.mark.parametrize("terms", ["ghmr", "gr", "hm"])
def test_gradient_is_that_of_the_loss(seen: Observations, terms: str) -> None:
    loss = _Loss(seen, np.arange(FEATURES), terms)
    theta = np.random.default_rng(2).standard_normal(FEATURES + 7) * 0.3 - 0.5
    gradient = loss.value(theta)[1]
    for place, step in enumerate(1e-5 * np.eye(len(theta))):
        difference = (loss.value(theta + step)[0] - loss.value(theta - step)[0]) / 2e-5
        assert gradient[place] == pytest.approx(difference, rel=1e-4, abs=1e-5)


def test_a_fit_raises_the_posterior_density(seen: Observations) -> None:
    prior = Dense.prior(np.arange(FEATURES))
    fitted, loss = prior.fit(seen), _Loss(seen, np.arange(FEATURES), "ghmr")
    before = loss.value(np.concatenate((prior.log_scales, prior.log_other)))[0]
    assert loss.value(np.concatenate((fitted.log_scales, fitted.log_other)))[0] < before


def test_posterior_is_that_of_the_kernel_written_out(seen: Observations) -> None:
    model = Dense.prior(np.arange(FEATURES))
    g, h, m, r = model.shares
    scale_t, scale_q, noise = np.exp(model.log_other[4:])

    def kernel(one: tuple[int, float], other: tuple[int, float]) -> float:
        gaps = (seen.features[one[0]] - seen.features[other[0]]) / np.exp(model.log_scales)
        distance = np.sqrt(5.0 * np.sum(gaps**2))
        kx = (1 + distance + distance**2 / 3) * np.exp(-distance)
        kt, kq = (np.exp(-0.5 * ((one[1] - other[1]) / scale) ** 2) for scale in (scale_t, scale_q))
        own = r * (0.5 + 0.5 * kq) if one[0] == other[0] else 0.0
        return float(g * kx + h * kx * kt + m * kt + own)

    points = list(zip(seen.trial.tolist(), seen.time.tolist(), strict=True))
    matrix = np.array([[kernel(one, other) for other in points] for one in points])
    inverse = np.linalg.inv(matrix + (noise + 1e-6) * np.eye(ROWS))
    mean, deviation = Posterior(model, seen).of_trials(np.array([0, 4]))
    for place, trial in enumerate((0, 4)):
        across = np.array([kernel((trial, 1.0), other) for other in points])
        assert mean[place] == pytest.approx(across @ inverse @ seen.score)
        variance = kernel((trial, 1.0), (trial, 1.0)) - across @ inverse @ across
        assert deviation[place] == pytest.approx(np.sqrt(variance))


def test_pending_trials_narrow_the_bounds_and_keep_the_means(seen: Observations) -> None:
    model = Dense.prior(np.arange(FEATURES))
    at = np.random.default_rng(3).random((5, FEATURES))
    mean, deviation = Posterior(model, seen).of_features(at)
    pending_mean, pending_deviation = Posterior(model, seen, [0, 3]).of_features(at)
    assert pending_mean == pytest.approx(mean, abs=1e-6)
    assert np.all(pending_deviation < deviation)
