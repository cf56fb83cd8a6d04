"""The interface between decisions and evaluations, and the list of executors (`TRAITS`). No Ray
type crosses the interface.

Contract (`tests/workers/test_executor.py` checks it for every executor):

* `submit` returns at once. Every submitted attempt gets exactly one outcome from `next_outcomes`,
  whatever happens to the worker, the objective or the node. More attempts than `slots` may be
  submitted: they are queued.
* `next_outcomes(timeout)` blocks until at least one outcome is available, and returns all available
  ones. It returns an empty list after `timeout` seconds, or at once if nothing is in flight. `None`
  waits without limit.
* `listen` must be called before the first `submit`. Intermediate values are passed to `take` in the
  caller's thread, from within `next_outcomes`. The trials that it returns are asked to stop, and
  end as `TrialStopped` at their next report; in this process, at the report to which `take` responds. The
  reports of an attempt come before its outcome. Reports may be lost if they arrive too fast;
  outcomes never wait for them.
* `evaluate` calls `publish` at each report, in the thread of the evaluation. If the attempt
  `can_be_stopped`, `publish` waits for the response of `take`, but only briefly (on Ray, at most
  0.3 s). After that, the training continues, and stops at a later report. `publish(None)` sends
  nothing: it returns at once whether a stop has been requested.
* `now` is the clock that stamps outcomes: wall-clock seconds since the epoch, or virtual seconds.
  Any thread may call `now`, also after `close`. All other methods are called in one thread.
* `adopt` must be called before the first `submit`: attempts of an earlier session then continue, in
  workers that have survived it.
* `acknowledge` follows the commit of an outcome: until then, the worker may report it again.
* `close` releases all resources; attempts in flight are killed or left running. It may be called
  twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from bbkb.workers.messages import Attempt, Outcome, Report


class ExecutorError(RuntimeError):
    """The settings of an executor are invalid; the message gives the remedy."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The properties of an executor on which other code depends."""

    on_ray: bool = False  # evaluations run on a Ray cluster; else on this machine
    one_at_a_time: bool = False  # `next_outcomes` evaluates in the caller's thread, in real time
    in_virtual_time: bool = False  # `now` counts virtual seconds
    unenforced: tuple[str, ...] = ()  # limits in `workers` that only cause a warning


ExecutorName: TypeAlias = Literal["ray", "inline", "simulated"]  # the keys of `TRAITS`
TRAITS: Mapping[str, Traits] = {
    "ray": Traits(on_ray=True),
    "inline": Traits(one_at_a_time=True, unenforced=("memory_gb",)),
    "simulated": Traits(in_virtual_time=True, unenforced=("memory_gb", "timeout_seconds")),
}


TakeReports = Callable[[Sequence[Report]], Collection[int]]  # returns the trials to stop


class Executor(Protocol):
    """Runs attempts: in this process, on Ray, or in virtual time."""

    @property
    def slots(self) -> int:
        """The number of concurrent evaluations."""

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Take over attempts that an earlier session of this campaign left running or finished.

        Returns those of `attempts` (trial → attempt) that workers still hold. The outcome of each
        comes from `next_outcomes`, as if it had been submitted here.
        """

    def listen(self, take: TakeReports) -> None:
        """Pass intermediate values to `take`, which returns the trials to stop."""

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Start these attempts, or queue them."""

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return all available outcomes, waiting up to `timeout` seconds for the first."""

    def pause(self, seconds: float) -> None:
        """Wait for `seconds` on the clock of `now`. Nothing is in flight."""

    def now(self) -> float:
        """Return the time of the clock that stamps outcomes, in seconds."""

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Record that the outcomes of these pairs (trial, attempt) are durable; workers may delete
        them."""

    def close(self, leave_running: bool = False) -> None:
        """Release workers and data.

        With `leave_running`, evaluations that outlive this process continue for a later session.
        """
