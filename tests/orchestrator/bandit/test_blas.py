"""`blas_threads` limits BLAS, and restores the earlier number of threads at the end."""

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from bbkb import Optimizer, Range, tune
from bbkb.orchestrator.bandit.arrays import blas_threads
from bbkb.orchestrator.bandit.strategies.uniform import ModelFreeState, Uniform
from bbkb.orchestrator.bandit.strategy import Decision

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


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def test_optimizer_chooses_with_one_thread_and_leaves_the_threads_of_the_program() -> None:
    optimizer = Optimizer({"a": Range(0.0, 1.0)}, direction="minimize", strategy=Watching())
    with limit_threads(2):
        optimizer.tell(optimizer.ask(1), [1.0])
        assert seen == [{1}]
        assert threads_now() == {2}


def test_campaign_limits_the_threads_of_its_strategy_and_not_those_of_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

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
