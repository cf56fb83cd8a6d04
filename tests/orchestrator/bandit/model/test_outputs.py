"""`bbkb.orchestrator.bandit.model.outputs`: Scores, to which the model is fitted instead of the raw
rewards.

Tests of orchestrator/bandit/model/reliability.py.
"""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.curves import Curves
from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale, is_outlier, mean_rewards, score_pulls, scores_of
from bbkb.orchestrator.bandit.model.reliability import (
    TYPICAL_LINK,
    TYPICAL_TRIALS,
    reliability_and_cautious,
)
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import TrialCurve

ROBUST = [Outputs.HALF_RANK, Outputs.RANK, Outputs.STANDARDIZE]
MAPS: Any = [lambda r: 100 * r, lambda r: 0.01 * r, lambda r: r + 1000, lambda r: -1000 + 500 * r]

seeds = st.integers(0, 10_000)


def random_pulls(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    arms = rng.integers(40, size=rng.integers(1, 80))
    return arms, np.where(
        rng.random(len(arms)) < 0.3, np.round(rng.normal(size=len(arms)), 1), rng.normal(size=len(arms))
    )


@pytest.mark.parametrize("outputs", ROBUST)
@given(seed=seeds)
def test_scores_are_the_same_bits_for_rewards_of_another_scale_and_shift(outputs: Outputs, seed: int) -> None:
    arms, rewards = random_pulls(seed)
    scores = score_pulls(Pulls.none(40).add(arms, rewards), outputs)
    for change in MAPS:
        assert score_pulls(Pulls.none(40).add(arms, change(rewards)), outputs) == scores


@given(seed=seeds)
def test_rank_scores_are_the_same_under_every_increasing_map(seed: int) -> None:
    rewards = np.random.default_rng(seed).normal(size=30)
    for increasing in (np.exp, np.cbrt, np.arctan):
        np.testing.assert_array_equal(scores_of(increasing(rewards), Outputs.RANK), scores_of(rewards, Outputs.RANK))


@pytest.mark.parametrize("outputs", ROBUST)
@given(seed=seeds)
def test_scores_keep_the_order_of_the_rewards_and_are_standardized(outputs: Outputs, seed: int) -> None:
    means = np.random.default_rng(seed).standard_t(2, size=25)
    scores = scores_of(means, outputs)
    assert (np.diff(scores[np.argsort(means)]) >= 0).all()
    np.testing.assert_allclose([scores.mean(), scores.std()], [0, 1], atol=1e-12)


def test_arm_counts_once_however_often_it_was_pulled() -> None:
    rewards = np.random.default_rng(1).random(10)
    once = Pulls.none(10).add(np.arange(10), rewards)
    often = once.add([3] * 50, [rewards[3]] * 50)
    many = mean_rewards(score_pulls(often, Outputs.HALF_RANK))
    np.testing.assert_allclose(many, mean_rewards(score_pulls(once, Outputs.HALF_RANK)))


@pytest.mark.parametrize("outputs", ROBUST)
@pytest.mark.parametrize("wild", [1e30, -1e30, 1e300])
def test_outlier_does_not_flatten_the_others(outputs: Outputs, wild: float) -> None:
    means = np.linspace(0, 1, 20)
    with_wild = scores_of(np.append(means, wild), outputs)[:-1]
    assert np.ptp(with_wild[means >= 0.5]) > 0.6 * np.ptp(scores_of(means, outputs)[means >= 0.5])
    assert np.abs(with_wild).max() < 5


def test_high_outlier_has_the_score_of_the_best_other_value() -> None:
    scores = scores_of(np.append(np.linspace(0, 1, 20), 1e30), Outputs.HALF_RANK)
    assert scores[-1] == scores[-2] == scores.max()


def test_outlier_is_a_single_arm_far_above_all_others() -> None:
    means = np.linspace(0, 1, 20)
    assert is_outlier(np.append(means, 1e30)).tolist() == [False] * 20 + [True]
    for others in ([], [10.0], [1e30, 2e30], [-1e30]):
        assert not is_outlier(np.append(means, others)).any()


def test_rare_high_values_keep_their_gap_to_the_others() -> None:
    scores = scores_of(np.append(np.linspace(0, 0.001, 30), [0.5, 0.9]), Outputs.HALF_RANK)
    assert scores[-1] > scores[-2] > scores[:-2].max() + 1


def test_gaps_between_good_arms_are_kept_and_bad_ones_are_ranked() -> None:
    scores = scores_of(np.array([-1e9, -5.0, -1.0, 0.0, 1.0, 2.0, 4.0]), Outputs.HALF_RANK)
    np.testing.assert_allclose((scores[6] - scores[5]) / (scores[5] - scores[4]), 2.0, rtol=1e-5)
    assert scores[1] - scores[0] < 2.0


@pytest.mark.parametrize("outputs", ROBUST)
def test_equal_rewards_have_score_0(outputs: Outputs) -> None:
    assert not scores_of(np.full(5, 0.1), outputs).any()
    assert not scores_of(np.array([3.0]), outputs).any()


def test_raw_scores_are_the_rewards() -> None:
    pulls = Pulls.none(3).add([0, 2, 2], [5.0, 1.0, 2.0])
    assert score_pulls(pulls, Outputs.RAW) is pulls


@pytest.mark.parametrize("outputs", Outputs)
@given(seed=seeds)
def test_scale_maps_rewards_to_the_arms_scores_and_back(outputs: Outputs, seed: int) -> None:
    rewards = np.random.default_rng(seed).normal(size=30)
    scale, scores = Scale(rewards, outputs), scores_of(rewards, outputs)
    np.testing.assert_allclose(scale.scores(rewards), scores)
    upper = rewards > np.quantile(rewards, 0.55)
    upper &= scores < scores.max() if outputs is Outputs.STANDARDIZE else True
    np.testing.assert_allclose(scale.rewards(scores[upper]), rewards[upper], atol=1e-5)
    beyond = scale.scores(np.array([rewards.max(), rewards.max() + 1]))
    assert beyond[0] < beyond[1]


def test_scale_of_rewards_that_barely_differ_gives_finite_scores() -> None:
    rewards = 5e-324 * np.arange(20, dtype=np.float64)
    scores = Scale(rewards, Outputs.HALF_RANK).scores(np.append(rewards, 1.0))
    assert np.isfinite(scores).all()


def test_scores_rank_the_others_if_most_arms_are_equally_good() -> None:
    scores = scores_of(np.array([1.0, 1.0, 1.0, 1.0, 0.5, 0.2]), Outputs.HALF_RANK)
    assert scores[0] > scores[4] > scores[5]


STEPS = (4, 7, 13, 26, 51)


def whole_curves(links: tuple[float, ...], count: int) -> Floats:
    """Return values (count, 5) at STEPS that form a Markov chain with these correlations."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(count)]
    for link in links:
        values.append(link * values[-1] + np.sqrt(1.0 - link**2) * rng.standard_normal(count))
    return np.array(values).T


def seen(values: Floats, share: float, steps: tuple[int, ...] = STEPS) -> Curves:
    """Return the curves of successive halving: this share of the trials at a step continues."""
    reached = np.ones(len(values), np.intp)
    for at in range(1, len(steps)):
        active = np.flatnonzero(reached == at)
        best = active[np.argsort(-values[active, at - 1])][: round(share * len(active))]
        reached[best] += 1
    curves = [
        TrialCurve(trial, trial, steps[:stages], tuple(values[trial, :stages].tolist()), stages == len(steps))
        for trial, stages in enumerate(reached.tolist())
    ]
    return Curves().updated(curves, steps[-1])


def by_step(curves: Curves, is_cautious: bool = False) -> dict[int, float]:
    return {int(step): correlation for step, correlation in reliability_and_cautious(curves)[is_cautious]}


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("links", [(0.95, 0.95, 0.95, 0.95), (0.7, 0.9, 0.9, 0.97)])
def test_reliability_is_the_rank_correlation_of_whole_curves(links: tuple[float, ...], share: float) -> None:
    values = whole_curves(links, 600)
    found = by_step(seen(values, share))
    for at, step in enumerate(STEPS):
        assert found[step] == pytest.approx(
            spearmanr(values[:, at], values[:, -1]).statistic, abs=0.05 if share == 1.0 else 0.18
        )


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_reliability_between_reports_is_that_of_the_last_report(share: float) -> None:
    values = whole_curves((0.7, 0.7, 0.7), 20)
    doubling = by_step(seen(values, share, (2, 4, 8, 16)))
    found = by_step(seen(values, share, (4, 12, 36, 108)))
    assert list(found) == [4, 7, 14, 27, 54, 108]
    assert list(found.values()) == [doubling[step] for step in (2, 2, 4, 4, 8, 16)]


def test_reliability_of_steps_that_no_trial_has_reached_is_that_of_typical_links() -> None:
    curves = [TrialCurve(trial, trial, (4, 16), (0.0, float(trial))) for trial in range(9)]
    found = by_step(Curves().updated(curves, 51))
    assert [found[step] for step in (13, 26)] == pytest.approx([TYPICAL_LINK**2, TYPICAL_LINK], abs=1e-3)


def test_reliability_of_noise_falls_below_that_of_a_pause() -> None:
    values = np.random.default_rng(1).standard_normal((40, len(STEPS)))
    found = by_step(seen(values, 1.0))
    assert all(found[step] < 0.5 for step in STEPS[:-1])


def test_reliability_of_few_trials_is_that_of_typical_links() -> None:
    curves = seen(np.random.default_rng(2).standard_normal((3, len(STEPS))), 1.0)
    typical = [TYPICAL_LINK**links for links in range(len(STEPS) - 1, -1, -1)]
    assert [correlation for _, correlation in reliability_and_cautious(curves)[0]] == pytest.approx(typical, abs=1e-3)


def test_cautious_reliability_is_that_of_links_one_standard_error_smaller() -> None:
    rng = np.random.default_rng(1)
    link = math.tanh(math.atanh(TYPICAL_LINK) - 1.0 / math.sqrt(TYPICAL_TRIALS))
    few = by_step(seen(rng.standard_normal((3, len(STEPS))), 1.0), is_cautious=True)
    typical = [link**links for links in range(len(STEPS) - 1, -1, -1)]
    assert list(few.values()) == pytest.approx(typical, abs=1e-3)
    curves = seen(rng.standard_normal((40, len(STEPS))), 1.0)
    noise = by_step(curves, is_cautious=True)
    assert all(noise[step] < 0.2 for step in STEPS[:-1])


def test_reliability_is_known_for_equal_values_and_ends_before_the_last_step() -> None:
    curves = [TrialCurve(trial, trial, (4, 7), (0.5, 0.5), is_finished=True) for trial in range(9)]
    found, _ = reliability_and_cautious(Curves().updated(curves, 51))
    assert [step for step, _ in found] == list(STEPS)
    assert all(0.0 <= one <= other <= 1.0 for (_, one), (_, other) in itertools.pairwise(found))
