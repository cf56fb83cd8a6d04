"""Bounds that are equal except for rounding are ties, and the lowest index wins (`arrays.first_largest`)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arrays import first_largest
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation


@given(
    scores=st.lists(st.sampled_from([-np.inf, -3.0, 0.0, 1.0, 1.0 + 1e-9, 250.0]), min_size=1),
    seed=st.integers(0, 99),
)
def test_rounding_of_scores_does_not_change_the_largest(scores: list[float], seed: int) -> None:
    exact = np.array(scores)
    rounded = exact * (1.0 + np.random.default_rng(seed).uniform(-2.0, 2.0, len(exact)) * np.finfo(float).eps / 2.0)
    assert first_largest(rounded) == int(np.argmax(exact))


@pytest.mark.parametrize("name", ["bbkb", "bkb", "gp_ucb", "gp_bucb", "expected_improvement", "compressed_ucb"])
def test_mirrored_arms_are_ties(name: str) -> None:
    """A grid around a single observation: both neighbors of equal distance have equal bounds."""
    arms = np.linspace(-1.0, 1.0, 41)[:, None] * np.sqrt(2.0) / 3.0
    strategy = STRATEGIES[name](kernel=RBF(0.37), **({} if name.startswith("comp") else {"regularization": 0.01}))
    rng = np.random.default_rng(0)
    state = strategy.tell(strategy.init(arms, rng), [Observation(20, 0.3)], rng)
    while not isinstance(decision := strategy.ask(state, (), 1), Choose) or decision.reason in (
        "warm start",
        "initial point",
    ):
        assert isinstance(decision, Choose)
        state = strategy.tell(state, [Observation(decision.picks[0].arm, None)], rng)
    assert decision.picks[0].arm < 20


def test_uncertainty_sampling_takes_the_first_of_mirrored_arms() -> None:
    arms = np.linspace(-1.0, 1.0, 41)[:, None] * np.sqrt(2.0) / 3.0
    strategy = STRATEGIES["bbkb"](kernel=RBF(0.37), regularization=0.01, warm_start=UncertaintyStart(max_pulls=2))
    assert strategy.init(arms, np.random.default_rng(0)).initial == (0, 40)
