"""Lazy and screened evaluation picks the eager one's arms."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.sparse import argmax_queue, upper_bounds
from bbkb.orchestrator.bandit.sparse.all_arms import AllArms
from bbkb.orchestrator.bandit.sparse.picking import BatchPosterior
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from tests.orchestrator.bandit.decisions import choice
from tests.orchestrator.bandit.eager import eager
from tests.orchestrator.bandit.sequential_runs import value
from tests.orchestrator.bandit.strategies.bbkb_games import AWKWARD, GRID, PAPER, SMOOTH, batches, play, table

MANY = np.vstack((AWKWARD, np.random.default_rng(5).random((200, 2))))


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("kernel", [RBF(0.3), RBF(5.0), Matern32(0.5), Linear()])
@pytest.mark.parametrize("arms", [GRID, AWKWARD])
def test_lazy_picks_equal_eager_ones_with_ties_duplicates_and_near_singular_dictionaries(
    termination: Termination, kernel: AnyKernel, arms: NDArray[np.float64]
) -> None:
    lazy = replace(SMOOTH, kernel=kernel, termination=termination, warm_start=RandomStart(60))
    rounds, limit = 12, 40
    oracle = batches(eager(lazy), arms, rounds, limit=limit)
    assert batches(lazy, arms, rounds, limit=limit) == oracle
    assert max(map(len, oracle)) > 1


class Work:
    """The cost of lazy evaluation: sweeps over all arms for a reference, and computed arms."""

    def __init__(self, patch: pytest.MonkeyPatch, is_kept: bool) -> None:
        self.is_kept, self.sweeps, self.evaluated = is_kept, 0, 0
        refer, enter = AllArms._refer, BatchPosterior.enter

        def count_and_refer(arms: AllArms, *arguments: Any) -> Any:
            self.sweeps += 1
            return refer(arms, *arguments)

        def count_and_enter(posterior: Any, arms: Indices) -> None:
            self.evaluated += len(arms)
            enter(posterior, arms)

        patch.setattr(AllArms, "_refer", count_and_refer)
        patch.setattr(BatchPosterior, "enter", count_and_enter)

    def check_little_work(self, arms: int, batches: int) -> None:
        """Otherwise every arm was computed anyway, or in a fresh sweep, and equal picks would prove
        nothing."""
        if self.is_kept:  # bounds of an old posterior, which are still valid
            assert self.sweeps <= 2
        else:
            assert self.sweeps < 0.7 * batches
            assert self.evaluated < 0.55 * arms * batches


@pytest.fixture(params=["as paid for", "always"])
def work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count the work of screening in small steps; with `always`, a reference is used as long as it
    bounds anything."""
    if request.param == "always":
        monkeypatch.setattr(upper_bounds, "COST", 0.0)
        monkeypatch.setattr(upper_bounds, "RATIO", 9.0)
    monkeypatch.setattr(argmax_queue, "FIRST_NEAR", 16)
    monkeypatch.setattr(argmax_queue, "FIRST_LOOK", 4)
    return Work(monkeypatch, is_kept=request.param == "always")


@cache
def asynchronous_game(strategy: BBKB) -> list[Any]:
    """Every decision, while rewards arrive in any order, pulls stay pending, and some fail."""
    rng, true = np.random.default_rng([1, 3]), value(MANY)
    state = strategy.init(MANY, np.random.default_rng(0))
    decisions: list[Any] = []
    pending: list[int] = []
    for number in range(40):
        decision = strategy.ask(state, pending, 12)
        decisions.append(decision)
        if isinstance(decision, Choose):
            pending += [pick.arm for pick in decision.picks]
        rng.shuffle(pending)
        done, still_pending = np.split(np.array(pending, np.intp), [int(rng.integers(1, len(pending) + 1))])
        pending = still_pending.tolist()
        rewards = [None if rng.random() < 0.04 else float(true[arm] + 0.05 * rng.standard_normal()) for arm in done]
        observations = [Observation(int(arm), reward) for arm, reward in zip(done, rewards, strict=True)]
        state = strategy.tell(state, observations, np.random.default_rng([1, 2, number]))
    assert len(state.set_aside) > 0
    return decisions


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("kernel", [RBF(0.3), RBF(5.0), Matern32(0.5), Linear()])
def test_screened_decisions_equal_eager_ones_with_pending_and_failed_pulls(
    termination: Termination, kernel: AnyKernel, work: Work
) -> None:
    lazily = replace(
        SMOOTH, kernel=kernel, termination=termination, warm_start=RandomStart(30), regularization=0.1, delta=0.5
    )
    expected = asynchronous_game(eager(lazily))
    work.sweeps = work.evaluated = 0
    assert asynchronous_game.__wrapped__(lazily) == expected  # widths, means and variances too, bit for bit
    decisions = [decision for decision in expected if decision.reason != "warm start" and isinstance(decision, Choose)]
    assert max(len(decision.picks) for decision in decisions) > 1
    work.check_little_work(len(MANY), len(decisions))


@given(seed=st.integers(0, 10**6))
def test_screened_decisions_equal_eager_ones_on_random_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = np.vstack((rng.random((60, 2)), rng.random((1, 2))))
    arms[40:50] = arms[:10]
    arms[50:60] = arms[:10] + 10.0 ** rng.uniform(-12, -4)
    strategy = replace(
        SMOOTH,
        kernel=(RBF, Matern32, Matern52)[seed % 3](float(rng.uniform(0.1, 3))),
        regularization=float(10 ** rng.uniform(-4, -0.5)),
        ratio_threshold=float(rng.uniform(1.5, 6)),
        termination=("global", "global_then_local", "product")[rng.integers(3)],
        local_covariance=("embedded", "paper")[rng.integers(2)],
        warm_start=RandomStart(10),
    )
    with pytest.MonkeyPatch.context() as patch:
        for module, name, number in (
            (upper_bounds, "COST", 0.0),
            (argmax_queue, "FIRST_NEAR", 8),
            (argmax_queue, "FIRST_LOOK", 2),
            (argmax_queue, "MOST_NUMBERS", (300, 2**22)[seed % 2]),  # so few that arms are sent back
        ):
            patch.setattr(module, name, number)
        games: list[Any] = []
        for played_strategy in (strategy, eager(strategy)):
            played = play(played_strategy, arms, 12, seed=seed, limit=20)
            games.append([decision for _, decision in played])
    assert games[0] == games[1]


@pytest.mark.parametrize(
    "termination",
    [
        pytest.param("global", marks=pytest.mark.thorough),
        "global_then_local",
        pytest.param("product", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("regularization", [pytest.param(1e-4, marks=pytest.mark.thorough), 0.1])
def test_screened_picks_equal_eager_ones_on_a_real_table_from_few_arms(
    termination: Termination, regularization: float, work: Work
) -> None:
    arms, true = table("abalone/abalone.csv")
    arms, true = arms[:800], true[:800]
    strategy = replace(
        PAPER,
        kernel=RBF(12.5 if regularization < 1e-3 else 3.0),
        regularization=regularization,
        termination=termination,
    )
    games: list[Any] = []
    for played_strategy in (strategy, eager(strategy)):
        work.sweeps = work.evaluated = 0
        game = play(played_strategy, arms, len(games[0]) if games else 300, true=true, pulls=300)
        games.append([decision for _, decision in game])
        if played_strategy is strategy:
            work.check_little_work(len(arms), len(games[0]) - 1)
    assert games[0] == games[1]
    assert sum(len(decision.picks) for decision in games[0]) >= 300


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("lazy_", [True, False])
def test_single_picks_with_pending_ones_equal_the_batch(termination: Termination, lazy_: bool) -> None:
    """Caches between two asks at a state change no pick, and neither does their absence."""
    strategy = replace(SMOOTH, termination=termination, ratio_threshold=3.0)
    strategy = strategy if lazy_ else eager(strategy)
    for state, decision in play(strategy, AWKWARD, rounds=6):
        if decision.reason == "warm start":
            continue
        batch = [pick.arm for pick in decision.picks]
        going_on: list[int] = []
        while isinstance(step := strategy.ask(state, tuple(going_on), 2), Choose):
            assert strategy.ask(state, tuple(going_on), 2) == step  # a second time, from the start
            going_on += [pick.arm for pick in step.picks]
        assert going_on == batch
        for number in range(0, len(batch), 3):
            fresh = replace(state)  # nothing kept
            step = choice(strategy.ask(fresh, tuple(batch[:number]), 1))
            assert step.picks[0].arm == batch[number]
