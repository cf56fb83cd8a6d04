"""Arms that are appended to a state of BBKB."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.kernels import Matern52
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import arms_of
from tests.orchestrator.bandit.sequential_runs import value
from tests.orchestrator.bandit.strategies.bbkb_games import AWKWARD, GRID, SMOOTH


@pytest.mark.parametrize("termination", ["global", "global_then_local"])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=10)
def test_appended_arms_are_chosen_as_in_a_model_built_with_all_arms(termination: Termination, sizes: list[int]) -> None:
    """The oracle at each round is a model made of all arms at once, with the same pulls and the
    same dictionary."""
    strategy = replace(SMOOTH, kernel=Matern52(0.4), termination=termination, warm_start=RandomStart(10))
    rng = np.random.default_rng(sum(sizes))
    state = strategy.init(AWKWARD, np.random.default_rng(0))
    for number, size in enumerate(sizes):
        arms = arms_of(strategy.ask(state, (), 10))
        rewards = value(state.arms[arms])
        observations = [Observation(arm, float(reward)) for arm, reward in zip(arms, rewards, strict=True)]
        before = strategy.tell(state, observations, np.random.default_rng(number))
        old_arms, pulls = before.arms.copy(), before.pulls
        state = before.extend(np.concatenate((rng.random((size, 2)), AWKWARD[:1])))
        whole = replace(state, model=SparseModel(strategy.kernel, state.arms, strategy.regularization))
        assert strategy.ask(state, (3, 3), 10) == strategy.ask(whole, (3, 3), 10)
        assert state.posterior.moments(np.arange(len(state.arms)))[1].shape == (len(state.arms),)
        assert (before.arms == old_arms).all()
        assert before.pulls == pulls
        again = replace(before, model=SparseModel(strategy.kernel, before.arms, strategy.regularization))
        assert strategy.ask(before, (), 10) == strategy.ask(again, (), 10)  # the old state is unchanged


def test_arms_that_are_appended_must_look_like_the_others() -> None:
    state = SMOOTH.init(GRID, np.random.default_rng(0))
    with pytest.raises(ValueError, match="finite"):
        state.extend(np.full((1, GRID.shape[1]), np.nan))
    with pytest.raises(ValueError, match=r"2 features.*got 3"):
        state.extend(np.zeros((1, 3)))
