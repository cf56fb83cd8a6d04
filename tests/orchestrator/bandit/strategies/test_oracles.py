"""Equalities and bounds between strategies, and between a strategy and its theory."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import initial_state
from bbkb.orchestrator.bandit.sparse.strategy import Resampling
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.gp_bucb import GPBUCB
from tests.orchestrator.bandit.sequential_runs import choice, play

ARMS = np.random.default_rng(0).random((40, 2))
COMMON: dict[str, Any] = {"kernel": Matern52(0.5), "regularization": 0.1, "noise_variance": 0.01}


def dense_drift_budget(rule: str, fb: np.ndarray, covariance: np.ndarray, batch: list[int]) -> float:
    """1 + Σ σ²_fb(x_s), or max_x 1 + Σ k_fb(x, x_s)²/σ²_fb(x): both with the exact posterior
    (Lemmas 1 and 3)."""
    if rule == "global":
        return 1.0 + float(fb[batch].sum())
    return float((1.0 + (covariance[:, batch] ** 2).sum(axis=1) / fb).max())


@pytest.mark.parametrize("rule", ["global", "global_then_local"])
@given(seed=st.integers(0, 10**6))
def test_bbkb_with_every_pulled_arm_in_its_dictionary_is_gp_bucb_with_the_better_rule(
    rule: Termination, seed: int
) -> None:
    everything = BBKB(
        **COMMON, norm_bound=0.2, oversampling=1e12, ratio_threshold=2.0, termination=rule, warm_start=RandomStart(40)
    )
    # every arm is pulled before the first batch: a batch's own new arms would not be in the
    # dictionary
    for state, decision in list(play(ARMS, everything, 3, seed=seed))[1:]:
        assert state.dictionary.tolist() == state.pulls.arms.tolist()
        mean, fb = exact_posterior(Matern52(0.5), ARMS, state.pulls, 0.1)
        pulled = np.repeat(np.arange(40), state.pulls.counts)
        cross, gram = Matern52(0.5).cross(ARMS, ARMS[pulled]), Matern52(0.5).cross(ARMS, ARMS)
        covariance = (gram - cross @ np.linalg.solve(cross[pulled] + 0.1 * np.eye(len(pulled)), cross.T)) / 0.1
        width = 0.1 * math.sqrt(2 * state.information_gain + math.log(100)) + math.sqrt(0.1) * 0.2
        batch: list[int] = []
        for pick in decision.picks:
            assert dense_drift_budget(rule, fb, covariance, batch) <= 2 * (1 + 1e-9)
            counts = state.pulls.counts + np.bincount(batch, minlength=40)
            _, variance = exact_posterior(Matern52(0.5), ARMS, Pulls.of(counts, np.zeros(40)), 0.1)
            ucb = mean + width * np.sqrt(variance)
            assert ucb[pick.arm] >= ucb.max() - 1e-7
            batch.append(pick.arm)
        assert dense_drift_budget("global", fb, covariance, batch) > 2
        assert dense_drift_budget(rule, fb, covariance, batch) > 2 * (1 - 1e-9)


def test_batch_of_gp_bucb_is_the_beginning_of_that_of_the_better_rule() -> None:
    # without noise BBKB's practical width is √λ F, GP-BUCB's C times that
    options = COMMON | {"noise_variance": 0.0}
    product = GPBUCB(**options, norm_bound=0.25, ratio_threshold=2.0, warm_start=RandomStart(12))
    better, model, longer = (
        BBKB(**options, norm_bound=0.5, ratio_threshold=2.0),
        SparseModel(Matern52(0.5), ARMS, 0.1),
        0,
    )
    for state, decision in list(play(ARMS, product, 11))[1:]:
        full = replace(initial_state(model, ()), pulls=state.pulls, dictionary=np.arange(40))
        other = choice(better.ask(full, (), 10_000))
        short, long = ([pick.arm for pick in picks] for picks in (decision.picks, other.picks))
        assert long[: len(short)] == short
        longer += len(long) > len(short)
    assert longer > 0


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_theoretical_oversampling_keeps_variances_within_a_factor_of_three_during_a_run(
    resampling: Resampling,
) -> None:
    arms, delta, most = np.random.default_rng(1).random((800, 1)), 0.1, 1200
    strategy = BBKB(
        kernel=RBF(0.5),
        regularization=1.0,
        noise_variance=0.01,
        delta=delta,
        oversampling=8 * math.log(4 * most / delta),  # q̄ of Lemma 2
        ratio_threshold=1.3,
        warm_start=RandomStart(800),
        resampling=resampling,
    )
    smallest = 1.0
    for state, _ in list(play(arms, strategy, 6))[1:]:
        assert state.pulls.total <= most
        _, exact = exact_posterior(strategy.kernel, arms, state.pulls, 1.0)
        ratio = state.posterior.variance / exact
        assert ratio.min() >= 1 / 3
        assert ratio.max() <= 3
        smallest = min(smallest, len(state.dictionary) / len(state.pulls.arms))
    assert state.round > 4
    assert smallest < 0.9, "a dictionary of everything would show nothing"
