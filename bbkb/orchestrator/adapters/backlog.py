"""Computes proposals in advance in a thread, so that a caller does not wait for a refit."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bbkb.objectives.parameters import Scalar
from bbkb.orchestrator.ask_tell.space import Optimizer

Configuration = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Result:
    """A report or a result of a trial."""

    configuration: Configuration  # its parameters
    # with `step`, the value there, or None if it was stopped; else its final value, or None if it failed
    value: float | None
    step: int | None = None  # the step of a training, counted from 1; None if the trial has ended


class Backlog:
    """Keeps up to `size` proposals ready.

    The same thread learns results before it makes a proposal. Each proposal is based on the results
    at the time, so the proposals of a long backlog are based on older results. With `size` 0, there
    is no thread: every call computes at once, and the same calls return the same proposals.
    """

    def __init__(self, optimizer: Optimizer, size: int) -> None:
        if size < 0:
            raise ValueError(f"backlog must be >= 0, got {size}")
        self._optimizer = optimizer
        self._size = size
        self._ready: deque[Configuration] = deque()
        self._results: deque[Result] = deque()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()  # never held while the proposer computes
        self._worker: threading.Thread | None = None
        self._error: Exception | None = None

    def take(self) -> Configuration | None:
        """Return a configuration; None if none is ready. Raises the thread's error, if any."""
        if not self._size:
            return self._propose()
        self._raise()
        with self._lock:
            configuration = self._ready.popleft() if self._ready else None
        self._work()
        return configuration

    def learn(self, result: Result) -> None:
        """Learn a result: at once if there is no thread, otherwise before the next proposal."""
        if not self._size:
            self._learn([result])
            return
        self._raise()
        with self._lock:
            self._results.append(result)
        self._work()

    def wait_until_filled(self) -> None:
        """Wait until all results are learned and the backlog is full. Raises as `take` does."""
        while (worker := self._worker) is not None:
            worker.join()
        self._raise()

    def _learn(self, results: Sequence[Result]) -> None:
        for result in results:
            match result.value, result.step:
                case None, None:
                    self._optimizer.fail(result.configuration)
                case None, _:
                    self._optimizer.stop(result.configuration)
                case value, None:
                    self._optimizer.tell(result.configuration, value)
                case value, step:
                    self._optimizer.report(result.configuration, value, step)

    def _propose(self) -> Configuration | None:
        configurations = self._optimizer.ask(1)
        return configurations[0] if configurations else None

    def _work(self) -> None:
        """Start the thread unless it is running."""
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="bbkb-backlog", daemon=True)
                self._worker.start()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except Exception as error:  # raised again by the next call
            with self._lock:
                self._error = error
                self._worker = None

    def _step(self) -> bool:
        """Learn all results, or make one proposal. Return False if there is nothing to do."""
        with self._lock:
            results = list(self._results)
            if not results and len(self._ready) >= self._size:
                self._worker = None
                return False
        if results:
            self._learn(results)
            with self._lock:
                for _ in results:
                    self._results.popleft()
        configuration = None if results else self._propose()
        with self._lock:
            if configuration is not None:
                self._ready.append(configuration)
            waits = configuration is None and not results and not self._results  # for more results
            if waits:
                self._worker = None
        return not waits

    def _raise(self) -> None:
        with self._lock:
            error = self._error
            self._error = None
        if error is not None:
            raise error

    def __getstate__(self) -> dict[str, object]:
        """Return the state without threads and locks. Waits for the thread's current step."""
        self.wait_until_filled()
        left_out = ("_lock", "_worker", "_error")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._begin()
