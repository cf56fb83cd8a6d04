"""The guarantees of BBKB, measured: sizes of dictionaries, and regret beside the uniform policy."""

from dataclasses import replace

import numpy as np
import pytest

from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.scheduling import Schedule
from bbkb.orchestrator.bandit.sparse.strategy import Resampling
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import arms_of
from tests.orchestrator.bandit.effective_dimension import effective_dimension
from tests.orchestrator.bandit.sequential_runs import value
from tests.orchestrator.bandit.strategies.bbkb_games import GRID, PAPER, SMOOTH, play, table


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_dictionaries_stay_within_theorem_1(resampling: Resampling) -> None:
    strategy = replace(SMOOTH, resampling=resampling)
    for state, _ in list(play(strategy, GRID, 40))[1:]:
        dimension = effective_dimension(strategy.kernel, GRID, state.pulls, strategy.regularization)
        assert (
            len(state.dictionary)
            <= 9 * 2 * (1 + 1 / strategy.regularization) * strategy.oversampling_after(40) * dimension
        )


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
@pytest.mark.parametrize("width", ["practical", "theory"])
def test_regret_on_a_smooth_function_falls_well_below_uniform(resampling: Resampling, width: Schedule) -> None:
    arms = np.random.default_rng(5).random((300, 2))
    strategy = replace(
        PAPER,
        regularization=0.0025,
        noise_variance=0.0025,
        width=width,
        resampling=resampling,
        norm_bound=0.5,
    )
    pulled: list[int] = []
    for _, decision in play(strategy, arms, 1000):
        pulled += [pick.arm for pick in decision.picks]
        if len(pulled) >= 1000:
            break
    true = value(arms)
    regret = np.cumsum(true.max() - true[pulled[:1000]])
    ratio = regret / (np.arange(1, 1001) * (true.max() - true.mean()))
    assert ratio[-1] < 0.5 * ratio[99]
    assert ratio[-1] < (0.1 if width == "practical" else 0.4)


@pytest.mark.parametrize("name", ["abalone/abalone.csv", "bundled"])
def test_bbkb_beats_uniform_on_real_tables(name: str) -> None:
    arms, true = table(name)
    strategy = replace(PAPER, kernel=RBF(12.5), delta=1e-3)
    state, noise = strategy.init(arms, np.random.default_rng(0)), np.random.default_rng(1)
    regret, count, half = 0.0, 0, 0.0
    while count < 500:
        picked = arms_of(strategy.ask(state, (), 500 - count))
        regret += float((true.max() - true[picked]).sum())
        count += len(picked)
        half = half or (regret / count if count >= 250 else 0.0)
        rewards = true[picked] + 0.01 * noise.standard_normal(len(picked))
        state = strategy.tell(
            state, list(map(Observation, picked, rewards.tolist())), np.random.default_rng([0, count])
        )
    assert regret / 500 < 0.6 * (true.max() - true.mean())
    assert regret / 500 < half
