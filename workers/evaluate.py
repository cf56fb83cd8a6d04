"""Runs one attempt under its limits and turns every result or failure into an `Outcome`.

Every evaluation has soft limits and, in a worker process, a hard one. The soft limits raise in
Python: an alarm in the main thread when the time-out passes, and `MemoryError` when an allocation
is refused. The hard limit is a C thread that ends the process `grace_seconds` later, for objectives
that block the interpreter or catch the exception; only a process that may die (`is_expendable`: a
worker of a cluster) gets it, and only there is memory bounded, because the bound holds for the
whole process. Processes that an evaluation starts in such a process end with it
(`workers.children`).
"""

import contextlib
import errno
import faulthandler
import itertools
import math
import os
import resource
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from objectives.machines import END_SECONDS, RANK_VARIABLES, Machine
from objectives.objective import EvaluationStopped, HasPreparation, InvalidValueError, Objective
from workers.children import end_children
from workers.clock import SteadyClock
from workers.messages import Attempt, Failure, FailureKind, Limits, Outcome, Stopped, Success
from workers.output import keep_output
from workers.reporting import Publish, Reports
from workers.results import CheckedResult, check_result
from workers.surroundings import restore_surroundings

T = TypeVar("T")

MESSAGE_CHARACTERS = 4096
HARD_END_SECONDS = END_SECONDS + 2.0  # after SIGTERM, for the command that an evaluation runs to be ended
_SUMMARY_CHARACTERS = 500
_STDERR = 2
_QUALNAME = type.__dict__["__qualname__"].__get__  # of a class, without the code of its metaclass, which may raise
_OWN_FOLDERS = tuple(f"{Path(__file__).parents[1] / name}{os.sep}" for name in ("objectives", "workers"))
_OWN_CALLS = 6  # at most, that lead from `evaluate` to the user's code
_NO_DESCRIPTORS = os.strerror(errno.EMFILE)  # "Too many open files"


class HostInterruptError(KeyboardInterrupt):
    """The user interrupts the host process, which evaluates in its own main thread.

    A KeyboardInterrupt of any other class comes from the objective, and is an error of its trial.
    """


class EndedWithOthersError(BaseException):
    """Another machine of the evaluation ended it. Not an `Exception`, as `_DeadlineReached`."""


class _DeadlineReached(BaseException):
    """The time-out passed. Not an `Exception`, so that `except Exception` does not hide it."""


def worker_name() -> str:
    """Return where this process runs: `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


def grace_seconds(timeout_seconds: float, is_gang: bool = False) -> float:
    """Return how long after the time-out the hard deadline falls: a tenth of it, within [2, 30] s;
    `is_gang`: and the time that the processes of an evaluation on several machines have to end."""
    return min(30.0, max(2.0, 0.1 * timeout_seconds)) + (HARD_END_SECONDS if is_gang else 0.0)


def evaluate(
    objective: Objective,
    attempt: Attempt,
    limits: Limits,
    *,
    now: Callable[[], float] | None = None,
    worker: str | None = None,
    is_expendable: bool = False,
    publish: Publish | None = None,
    machine: Machine | None = None,
    kind_of: Callable[[BaseException], FailureKind] = lambda error: FailureKind.ERROR,
) -> Outcome:
    """Evaluate one attempt; `now` (seconds, this machine's clock by default) stamps the outcome,
    `worker` (default `host:pid`) is recorded in it. `publish` takes each intermediate value on its
    way, and says whether the attempt should stop. `machine` is the one that this process is on,
    where the attempt takes several: SIGTERM then ends the evaluation, and the value of a rank above
    0 is NaN. `kind_of` says what an exception of the objective means.

    What it prints is kept (`workers.output`) where the attempt has a folder for it.

    Never raises, except for a `HostInterruptError` in a process that is not expendable: any other
    exception of the objective, KeyboardInterrupt and SystemExit included, is a failure of this
    attempt. The time-out needs the main thread (elsewhere no alarm can be raised) or an expendable
    process; the memory limit needs the latter.
    """
    now = SteadyClock() if now is None else now
    where = worker_name() if worker is None else worker
    limits = _raise_memory(limits, attempt.memory_factor)
    with keep_output(attempt, owns_process=is_expendable) as printed:
        # the first machine's stop ends all
        step_limit = attempt.step_limit if machine is None or machine.rank == 0 else None
        reports = Reports(publish, attempt.folder, printed.write, machine, step_limit)
        outcome = _evaluate(objective, attempt, limits, now, where, is_expendable, reports, kind_of)
    return printed.sent_with(outcome)


def _evaluate(
    objective: Objective,
    attempt: Attempt,
    limits: Limits,
    now: Callable[[], float],
    where: str,
    is_expendable: bool,
    reports: Reports,
    kind_of: Callable[[BaseException], FailureKind],
) -> Outcome:
    machine = reports.machine
    started = now()
    try:
        with _confine(limits, machine is not None) if is_expendable else _host_interrupts():
            if attempt.folder is not None:
                attempt.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            result = _before_deadline(  # it inspects the returned value, which may run the objective's code
                lambda: _result(objective.evaluate(dict(attempt.parameters), attempt.seed, reports), machine),
                limits.timeout_seconds,
                again_seconds=1.0 if machine is None else HARD_END_SECONDS,
            )
        points = reports.points()
    except EvaluationStopped:
        return _stop(attempt, reports, started, now(), where)
    except BaseException as error:  # also SystemExit and other exceptions that would end the process
        if isinstance(error, HostInterruptError) and not is_expendable:
            raise
        kind, message = _explain(error, limits, kind_of)
        return Failure(
            trial=attempt.trial,
            attempt=attempt.attempt,
            kind=kind,
            message=message,
            started=started,
            finished=max(started, now()),
            worker=where,
        )
    if reports.is_stopped:  # the objective caught the exception, and returned a value
        return _stop(attempt, reports, started, now(), where)
    return Success(
        trial=attempt.trial,
        attempt=attempt.attempt,
        value=result.value,
        started=started,
        finished=max(started, now()),
        worker=where,
        metrics=result.metrics,
        reports=points,
        remark=result.remark,
    )


def _result(returned: object, machine: Machine | None) -> CheckedResult:
    return check_result(returned) if machine is None or machine.rank == 0 else CheckedResult(math.nan)


def prepare(objective: HasPreparation, limits: Limits) -> None:
    """Let the objective prepare in this process, which may die for it, within the limits of an
    evaluation.

    What it raises is left to the first evaluation, which tries again and records it.
    """
    with contextlib.suppress(BaseException), _confine(limits):
        _before_deadline(objective.prepare, limits.timeout_seconds)


def _stop(attempt: Attempt, reports: Reports, started: float, now: float, worker: str) -> Stopped:
    return Stopped(
        trial=attempt.trial,
        attempt=attempt.attempt,
        value=reports.last_value,
        step=reports.last_step,
        started=started,
        finished=max(started, now),
        worker=worker,
        reports=reports.points(),
    )


# --- what went wrong
# ---------------------------------------------------------------------------------------------


def _explain(
    error: BaseException, limits: Limits, kind_of: Callable[[BaseException], FailureKind]
) -> tuple[FailureKind, str]:
    match error:
        case _DeadlineReached():
            return FailureKind.TIMEOUT, f"no result within timeout_seconds = {limits.timeout_seconds:g}"
        case EndedWithOthersError():
            return FailureKind.CANCELLED, "ended with the other machines of the evaluation"
        case InvalidValueError():
            return FailureKind.INVALID_VALUE, _text_of(error)[:MESSAGE_CHARACTERS]
        case MemoryError():
            return FailureKind.OUT_OF_MEMORY, _describe(error)
        case _:
            return kind_of(error), _describe(error)


def _describe(error: BaseException) -> str:
    """Return the summary, then the tail of the traceback, at most `MESSAGE_CHARACTERS` together."""
    summary = summary_of(error)
    try:
        trace = "".join(_traceback_of(error).format()).rstrip()
    except BaseException:  # the exception's own code runs, and may raise anything
        trace = "(its traceback cannot be printed)"
    return f"{summary}\n{printable(trace)[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def _traceback_of(error: BaseException) -> traceback.TracebackException:
    """Return the traceback from the user's code on; whole where there is none of it."""
    trace = traceback.TracebackException.from_exception(error, limit=-10 - _OWN_CALLS)
    part: traceback.TracebackException | None = trace
    while part is not None:
        own_frames = sum(1 for _ in itertools.takewhile(_is_own, part.stack))
        if own_frames < len(part.stack):
            del part.stack[:own_frames]
        part = part.__cause__ or part.__context__
    return trace


def _is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OWN_FOLDERS)


def summary_of(error: BaseException) -> str:
    """Return `Type: message` of any exception, however broken; at most 500 characters."""
    text = _text_of(error)
    name = "MemoryError" if isinstance(error, MemoryError) else _QUALNAME(type(error))
    return _shorten(printable(f"{name}: {text}" if text else name), _SUMMARY_CHARACTERS)


def _text_of(error: BaseException) -> str:
    try:
        return printable(str(error))
    except BaseException:  # the exception's own code runs, and may raise anything
        return "(its message cannot be printed)"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def printable(text: str) -> str:
    """Return `text` without lone surrogates and NUL, which databases and JSON writers refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


# --- limits
# ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _host_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise `HostInterruptError`: an objective may raise KeyboardInterrupt itself."""
    is_default = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_default:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt_host)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt_host(signum: int, frame: object) -> None:
    raise HostInterruptError


class _Alarm:
    """Handler of SIGALRM: raises in the evaluation until it is over."""

    is_over = False

    def __call__(self, signum: int, frame: object) -> None:
        if not self.is_over:
            raise _DeadlineReached


def _before_deadline(call: Callable[[], T], seconds: float | None, again_seconds: float = 1.0) -> T:
    """Return what `call` returns; raises _DeadlineReached in it after `seconds`, and again every
    `again_seconds` if it continues.

    Again, because what is raised inside a destructor or a callback of C code is printed and lost.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        return call()
    alarm = _Alarm()
    host_handler, host_timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    began = time.monotonic()
    try:
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), again_seconds)
        return call()
    finally:
        alarm.is_over = True  # a plain store: no signal can be handled before it, so none is raised after it
        _restore_alarm(host_handler, host_timer, time.monotonic() - began)


def _restore_alarm(handler: "signal._HANDLER", timer: tuple[float, float], elapsed: float) -> None:
    """Restore the host's alarm with its remaining time."""
    delay, interval = timer
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, handler)
    if delay > 0.0:
        signal.setitimer(signal.ITIMER_REAL, max(delay - elapsed, 1e-3), interval)


@contextlib.contextmanager
def _confine(limits: Limits, is_gang: bool = False) -> Iterator[None]:
    """Apply the limits of a process that may be ended with its evaluation; `is_gang`: it is one of
    several machines.

    Variables with a rank are removed meanwhile: they are of what started Ray, such as srun, and
    would be taken for those of the evaluation's own training.
    """
    with (
        _hard_deadline(limits.timeout_seconds, is_gang),
        end_children(),
        restore_surroundings(),
        _memory_bound(limits.memory_bytes),
        _ended_by_signal() if is_gang else contextlib.nullcontext(),
    ):
        for name in RANK_VARIABLES:
            os.environ.pop(name, None)
        yield


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Let SIGTERM raise `EndedWithOthersError` once; the objective may handle it itself."""
    is_over = False

    def end(_signum: int, _frame: object) -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            raise EndedWithOthersError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        is_over = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def _hard_deadline(timeout_seconds: float | None, is_gang: bool) -> Iterator[None]:
    """End this process after time-out and grace, even while C code holds the interpreter."""
    if timeout_seconds is None:
        yield
        return
    faulthandler.dump_traceback_later(
        timeout_seconds + grace_seconds(timeout_seconds, is_gang), exit=True, file=_STDERR
    )
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def _memory_bound(memory_bytes: int | None) -> Iterator[None]:
    """Let this process map at most `memory_bytes` more private writable memory than it has now.

    RLIMIT_DATA, not RLIMIT_AS: an object store maps gigabytes that are shared and mostly untouched.
    """
    mapped = None if memory_bytes is None else _mapped_bytes()
    if mapped is None or memory_bytes is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (mapped + memory_bytes, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _raise_memory(limits: Limits, memory_factor: float) -> Limits:
    """Return the limits of an attempt that may use this much more memory."""
    if limits.memory_bytes is None or memory_factor == 1.0:
        return limits
    return replace(limits, memory_bytes=int(limits.memory_bytes * memory_factor))


def _mapped_bytes() -> int | None:
    """Return private writable memory, as RLIMIT_DATA counts it; None if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:
        return None


def is_out_of_descriptors(outcome: Outcome) -> bool:
    """Return whether the process of this outcome must be replaced because it has run out of file
    descriptors, which cannot be closed. The message decides, so that another process can check it
    too.
    """
    return isinstance(outcome, Failure) and outcome.kind is FailureKind.ERROR and _NO_DESCRIPTORS in outcome.message
