"""Bounds that are equal except for rounding are ties, and the lowest index wins; `blas_threads` limits BLAS, and
restores the earlier number of threads at the end.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from bbkb import Optimizer, Range, tune
from bbkb.orchestrator.bandit.arrays import blas_threads, first_largest
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.uniform import ModelFreeState, Uniform
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Observation


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


limit_threads = functools.partial(threadpool_limits, user_api="blas")


def threads_now() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_limit_may_be_entered_again() -> None:
    with limit_threads(2):
        with blas_threads(1):
            with blas_threads(1):
                assert threads_now() == {1}
            assert threads_now() == {1}
        assert threads_now() == {2}


def test_limit_restores_the_threads_after_callers_in_several_threads() -> None:
    def enter_often() -> None:
        for _ in range(50):
            with blas_threads(1):
                inside.add(frozenset(threads_now()))

    inside: set[frozenset[int]] = set()
    program = threads_now()
    in_thread(limit_threads, 2)
    try:
        threads = [threading.Thread(target=enter_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert inside == {frozenset({1})}
        assert threads_now() == {2}
    finally:
        in_thread(limit_threads, max(program))


def in_thread(function: Callable[[int], object], number: int) -> None:
    """Call a function in a thread that ends, because a live thread keeps the right to set limits."""
    thread = threading.Thread(target=function, args=(number,))
    thread.start()
    thread.join()


class Watching(Uniform):
    """Records the threads of BLAS at each choice."""

    def ask(self, state: ModelFreeState, pending: Sequence[int], limit: int) -> Decision:
        seen.append(threads_now())
        return super().ask(state, pending, limit)


seen: list[set[int]] = []


def test_optimizer_chooses_with_one_thread_and_leaves_the_threads_of_the_program() -> None:
    seen.clear()
    optimizer = Optimizer({"a": Range(0.0, 1.0)}, direction="minimize", strategy=Watching())
    with limit_threads(2):
        optimizer.tell(optimizer.ask(1), [1.0])
        assert seen == [{1}]
        assert threads_now() == {2}


def test_campaign_limits_the_threads_of_its_strategy_and_not_those_of_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen.clear()

    def evaluate(a: float) -> float:
        assert threads_now() == {2}
        return a

    with limit_threads(2):
        result = tune(
            evaluate,
            {"a": Range(0.0, 1.0)},
            direction="minimize",
            evaluations=3,
            strategy=Watching(),
            executor="inline",
        )
    assert len(result.trials) == 3
    assert {number for numbers in seen for number in numbers} == {1}
