"""The interface between decisions and evaluations. No type of Ray crosses it.

Contract (`tests/workers/test_executor.py` runs it on every executor):

* `submit` returns at once; every submitted attempt gets exactly one outcome from `next_outcomes`,
  whatever happens to the worker, the objective or the node. Submitting more than `slots` attempts
  is allowed: they queue.
* `next_outcomes(timeout)` blocks until at least one outcome is there and then returns all that are;
  an empty list after `timeout` seconds of the caller's life, or at once when nothing is in flight.
  `None` waits without limit.
* `cancel` makes the named attempts end soon, as `Failure(CANCELLED)` unless they were already over.
  Unknown ids are ignored.
* `listen` comes before the first `submit`. What attempts report while they run is given to `take`,
  in the caller's thread, from within `next_outcomes`; the trials that it returns are asked to stop,
  and end as `Stopped` at their next report. Reports may be lost when they come too fast; outcomes
  never wait for them.
* `now` is the clock that stamps outcomes: wall-clock seconds since the epoch, or virtual seconds.
* `adopt` comes before the first `submit`: attempts of an earlier session continue here, in workers
  that survived it.
* `acknowledge` follows the commit of an outcome: until then the worker may have to report it again.
* `close` gives everything back; what is in flight is abandoned, or left to run on. It may be called
  twice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from workers.messages import Attempt, IntermediateValue, Outcome


class ExecutorError(RuntimeError):
    """An executor cannot run as requested: a user's mistake; the message has the remedy."""


TakeReports = Callable[[Sequence[IntermediateValue]], Collection[int]]  # the trials to stop


class Executor(Protocol):
    """Runs attempts: in this process, on Ray, or in virtual time."""

    @property
    def slots(self) -> int:
        """How many evaluations run at the same time."""

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Take over evaluations that an earlier session of this campaign left running or finished:
        returns the trials among these (trial → attempt) that workers still hold. Each gets its
        outcome from `next_outcomes`, as if it were submitted here."""

    def listen(self, take: TakeReports) -> None:
        """Pass intermediate values to `take`, which returns the trials that are to be stopped."""

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Start these attempts, or queue them."""

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return all outcomes that are there, waiting up to `timeout` seconds for the first."""

    def cancel(self, trials: Iterable[int]) -> None:
        """End the current attempts of these trials soon, each as `Failure(CANCELLED)`."""

    def pause(self, seconds: float) -> None:
        """Wait `seconds` on the clock of `now`; nothing is in flight."""

    def now(self) -> float:
        """Return seconds on the clock that stamps outcomes."""

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Note that the outcomes of these (trial, attempt) are durable: workers may delete them."""

    def close(self, leave_running: bool = False) -> None:
        """Release workers and data. `leave_running`: leave evaluations that can outlive this
        process to another session, instead of ending them."""
