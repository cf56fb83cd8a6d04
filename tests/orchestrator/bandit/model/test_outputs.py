"""`bbkb.orchestrator.bandit.model.outputs`: Scores, to which the model is fitted instead of the raw
rewards.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale, is_outlier, mean_rewards, score_pulls, scores_of
from bbkb.orchestrator.bandit.pulls import Pulls

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
