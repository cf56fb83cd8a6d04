"""`one_thread` limits BLAS, and restores the earlier number of threads at the end."""

import threading
from collections.abc import Callable, Sequence

from threadpoolctl import threadpool_info

from bbkb import Optimizer, Range
from orchestrator.bandit.blas import limit_threads, one_thread
from orchestrator.bandit.strategies.model_free import ModelFreeState
from orchestrator.bandit.strategies.uniform import Uniform
from orchestrator.bandit.strategy import Decision


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_one_thread_may_be_entered_again() -> None:
    with limit_threads(2):
        with one_thread():
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_one_thread_restores_the_threads_after_callers_in_several_threads() -> None:
    def enter_often() -> None:
        for _ in range(50):
            with one_thread():
                inside.add(frozenset(blas_threads()))

    inside: set[frozenset[int]] = set()
    program = blas_threads()
    in_thread(limit_threads, 2)
    try:
        threads = [threading.Thread(target=enter_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert inside == {frozenset({1})}
        assert blas_threads() == {2}
    finally:
        in_thread(limit_threads, max(program))


def in_thread(function: Callable[[int], object], number: int) -> None:
    """Call a function in a thread that ends, because a thread that lives keeps the right to set
    limits."""
    thread = threading.Thread(target=function, args=(number,))
    thread.start()
    thread.join()


class Watching(Uniform):
    """Records the threads of BLAS at each choice."""

    def ask(self, state: ModelFreeState, pending: Sequence[int], limit: int) -> Decision:
        seen.append(blas_threads())
        return super().ask(state, pending, limit)


seen: list[set[int]] = []


def test_optimizer_chooses_with_one_thread_and_leaves_the_threads_of_the_program() -> None:
    optimizer = Optimizer({"a": Range(0.0, 1.0)}, direction="minimize", strategy=Watching())
    with limit_threads(2):
        optimizer.tell(optimizer.ask(1), [1.0])
        assert seen == [{1}]
        assert blas_threads() == {2}
