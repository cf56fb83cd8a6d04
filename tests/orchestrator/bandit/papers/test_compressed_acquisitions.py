"""The acquisitions of the compressed strategies, beside the posterior of the stored pairs."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.papers.compressed import Compressed, CompressedEI, CompressedMPI, CompressedUCB
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice

ARMS = np.random.default_rng(0).random((30, 2))


def upper_bound(mean: Floats, deviation: Floats, largest: float, allowed: Indices, step: int) -> Floats:
    """Corollary 3.3, with δ = 0.2."""
    bound: Floats = mean + math.sqrt(2 * math.log(30 * step**2 * math.pi**2 / (6 * 0.2))) * deviation
    return bound


def improvement(mean: Floats, deviation: Floats, target: float) -> Floats:
    z = (mean - target) / deviation
    expected: Floats = deviation * norm.pdf(z) + (mean - target) * norm.cdf(z)
    return expected


def over_the_best_reward(mean: Floats, deviation: Floats, largest: float, allowed: Indices, step: int) -> Floats:
    return improvement(mean, deviation, largest)


def over_the_best_mean(mean: Floats, deviation: Floats, largest: float, allowed: Indices, step: int) -> Floats:
    return improvement(mean, deviation, float(mean[allowed].max()))


@pytest.mark.parametrize("epsilon", [-math.inf, -0.5])
@pytest.mark.parametrize(
    ("strategy", "acquisition"),
    [
        (CompressedUCB(RBF(0.3), 0.01, delta=0.2), upper_bound),
        (CompressedEI(RBF(0.3), 0.01), over_the_best_reward),
        (CompressedMPI(RBF(0.3), 0.01), over_the_best_mean),
    ],
)
def test_pick_has_the_largest_acquisition_given_the_stored_pairs(
    strategy: Compressed, acquisition: Callable[..., Floats], epsilon: float
) -> None:
    strategy = replace(strategy, epsilon=epsilon)
    state, rng = strategy.init(ARMS, np.random.default_rng(1)), np.random.default_rng(2)
    pairs: list[tuple[int, float]] = []
    dropped = positive = 0
    for t in range(1, 45):
        (pick,) = choice(strategy.ask(state, (), 1)).picks
        assert pick.arm not in state.set_aside
        if t > 4:
            arms, rewards = zip(*pairs, strict=True)
            mean, variance = exact_posterior(RBF(0.3), ARMS, Pulls.none(30).add(arms, rewards), 0.01)
            allowed = np.setdiff1d(np.arange(30), state.set_aside)
            scores = acquisition(mean, np.sqrt(0.01 * variance), max(rewards), allowed, t)
            assert scores[pick.arm] == pytest.approx(scores[allowed].max(), rel=1e-5)
            positive += scores.max() > 1e-6
            bounds = strategy.posterior(state).ucb
            expected = scores if acquisition is upper_bound else np.full(30, np.nan)
            np.testing.assert_allclose(bounds, expected, atol=1e-9)
        reward = float(np.sin(5 * ARMS[pick.arm, 0]) + 0.1 * rng.standard_normal())
        # the arm with the best belief fails in the middle of the run
        failed = [Observation(int(np.argmax(state.belief.mean)), None)] if t == 25 else []
        state = strategy.tell(state, [Observation(pick.arm, reward), *failed], rng)
        pairs += [(pick.arm, reward)] * (0 in state.stored)
        dropped += state.stored == ()
    assert len(state.set_aside) == 1
    assert positive > 20
    assert (dropped > 0) == (epsilon > -math.inf)


def test_improvement_too_small_for_a_float_still_picks_the_likeliest_arm() -> None:
    arms = np.linspace(0, 1, 20)[:, None]
    strategy, rng = CompressedEI(RBF(0.5), 1e-6, -math.inf), np.random.default_rng(0)
    state = strategy.init(arms, rng)
    rows = [Observation(arm, float(arms[arm, 0])) for arm in range(20)] * 4 + [Observation(19, 1.5)]
    state = strategy.tell(state, rows, rng)
    mean, deviation = state.belief.mean, np.sqrt(1e-6 * state.belief.variance)
    assert improvement(mean, deviation, 1.5).max() < 1e-300
    assert choice(strategy.ask(state, (), 1)).picks[0].arm == int(np.argmax((mean - 1.5) / deviation)) != 0


def test_ties_go_to_the_lowest_arm_that_may_be_chosen() -> None:
    strategy, rng = CompressedUCB(), np.random.default_rng(0)
    state = strategy.init(np.zeros((6, 1)), rng)
    rows = [Observation(arm, 0.5) for arm in state.initial] + [Observation(0, None)]
    state = strategy.tell(state, rows, rng)
    assert choice(strategy.ask(state, (), 1)).picks[0].arm == 1


def test_width_of_a_box_is_that_of_theorem_3_2() -> None:
    strategy = CompressedUCB(decision_set="box", gradient_constants=(2.0, 3.0), delta=0.2)
    state = strategy.init(ARMS, np.random.default_rng(0))
    r = float(np.ptp(ARMS, axis=0).max())
    beta = 2 * math.log(2 * 49 * math.pi**2 / 0.6) + 4 * math.log(49 * 2 * 3 * r * math.sqrt(math.log(4 * 2 * 2 / 0.2)))
    assert strategy.width_at(state, 7) == pytest.approx(math.sqrt(beta * state.noise))
