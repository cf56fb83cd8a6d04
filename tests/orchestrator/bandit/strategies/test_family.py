"""Strategies that choose one arm at a time by their belief, on a smooth function with noise.

The table of strategies: names, and classes that are imported when they are looked up.
"""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.exact.strategy import ExactStrategy
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.papers.igp_ucb import IGPUCB
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.bkb import BKB
from bbkb.orchestrator.bandit.strategies.gp_ucb import GPUCB, ExpectedImprovement, ProbabilityOfImprovement
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Observation, Pick
from tests.orchestrator.bandit.sequential_runs import choice, run_sequentially, value

ARMS = np.random.default_rng(0).random((60, 2))
START = UncertaintyStart(max_pulls=3)
BELIEVED: dict[str, Any] = {"kernel": Matern52(0.4), "regularization": 0.01, "warm_start": START}
EXACT: list[ExactStrategy[Any]] = [
    GPUCB(**BELIEVED, noise_variance=0.01, norm_bound=1.0),
    IGPUCB(**BELIEVED, noise_scale=0.1, delta=0.01, initial_points=10, final_points=60),
    ExpectedImprovement(**BELIEVED),
    ProbabilityOfImprovement(**BELIEVED),
]
BKB_ = BKB(kernel=RBF(0.4), regularization=0.01, noise_variance=0.001, norm_bound=0.3, warm_start=START)


def is_broken(arm: int) -> bool:
    """Every seventh arm cannot be evaluated."""
    return arm % 7 == 3


def play(strategy: AnyStrategy, rounds: int, seed: int = 0) -> Iterator[tuple[Any, Pick]]:
    return run_sequentially(ARMS, strategy, rounds, seed, fails=is_broken)


@pytest.mark.parametrize("strategy", EXACT, ids=lambda strategy: type(strategy).__name__)
@given(seed=st.integers(0, 10**6))
def test_belief_at_every_pick_is_that_of_a_dense_gaussian_process(strategy: Any, seed: int) -> None:
    for state, pick in list(play(strategy, 15, seed))[3:]:
        mean, variance = exact_posterior(strategy.kernel, ARMS, state.pulls, 0.01)
        np.testing.assert_allclose(state.belief.mean, mean, atol=1e-8)
        np.testing.assert_allclose(state.belief.variance, variance, atol=1e-8)
        assert (pick.mean, pick.variance) == pytest.approx((mean[pick.arm], variance[pick.arm]))
        assert np.isnan(pick.width) == np.isnan(strategy.posterior(state).ucb).all()


@pytest.mark.parametrize("strategy", [*EXACT, BKB_], ids=lambda strategy: type(strategy).__name__)
def test_search_ends_at_the_best_arms_that_can_be_evaluated(strategy: Any) -> None:
    arms = [pick.arm for _, pick in play(strategy, 100)]
    possible = [arm for arm in range(len(ARMS)) if not is_broken(arm)]
    assert (value(ARMS[possible]).max() - value(ARMS[arms[-20:]])).mean() < 0.15
    assert len(set(arms)) < len(ARMS)


@pytest.mark.parametrize("strategy", [*EXACT, BKB_], ids=lambda strategy: type(strategy).__name__)
def test_prior_decides_if_the_warm_start_failed(strategy: Any) -> None:
    rng = np.random.default_rng(0)
    state = strategy.init(ARMS, rng)
    failed = strategy.tell(state, [Observation(arm, None) for arm in state.initial], rng)
    (pick,) = choice(strategy.ask(failed, (), 1)).picks
    assert pick.variance == pytest.approx(100.0)
    if not isinstance(strategy, IGPUCB):  # whose grid lacks most arms
        assert pick.arm == min(set(range(60)) - set(state.initial)), "all are equal: the lowest index"


def test_strategies_name_their_classes() -> None:
    assert [STRATEGIES.name_of(cls) for cls in STRATEGIES.values()] == list(STRATEGIES)
    assert STRATEGIES.name_of(dict) is None


def test_settings_of_the_default_strategy_import_no_other_strategy() -> None:
    script = """
import sys
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy
dump_strategy(build_strategy("bbkb"))
print([name for name in sys.modules if name.endswith((".papers", ".problems", ".adapters"))])
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"
