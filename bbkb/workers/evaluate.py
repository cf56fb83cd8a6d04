"""Runs one attempt under its limits and turns every result or failure into an `Outcome`.

Every evaluation has soft limits and, in a worker process, a hard one. The soft limits raise in
Python: an alarm in the main thread when the time-out has passed, and `MemoryError` when an
allocation is refused. The hard limit is a C thread that ends the process `grace_seconds` later, for
objectives that block the interpreter or catch the exception. Only a process that may die
(`is_expendable`: a worker of a cluster) has this limit and a memory limit, because both affect the
whole process. Processes that an evaluation starts in such a process are killed at its end
(`bbkb.workers.limits`).
"""

import contextlib
import errno
import math
import os
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bbkb.objectives.command import CommandFailedError
from bbkb.objectives.machines import Machine
from bbkb.objectives.objective import EvaluationStopped, HasPreparation, InvalidValueError, Objective
from bbkb.workers.checkpoints import begin_with_copy, save_checkpoint
from bbkb.workers.limits import (
    HARD_END_SECONDS,
    DeadlineReached,
    EndedWithOthersError,
    HostInterruptError,
    before_deadline,
    confine,
    missed_deadline,
    share_process,
)
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.workers.output import keep_output
from bbkb.workers.reporting import CheckedResult, Publish, Reports, check_result, printable, shorten

MESSAGE_CHARACTERS = 4096
_SUMMARY_CHARACTERS = 500
# the module of a class, without running its metaclass, which may raise
_QUALNAME = type.__dict__["__qualname__"].__get__
_OWN_FOLDERS = tuple(f"{Path(__file__).parents[1] / name}{os.sep}" for name in ("objectives", "workers"))
_prepared: list[object] = []  # at most one: the objective that this process prepared last
_OWN_CALLS = 6  # the largest number of calls from `evaluate` to the user's code
_NO_DESCRIPTORS = os.strerror(errno.EMFILE)  # "Too many open files"


class SteadyClock:
    """Seconds since 1970: the machine's clock at construction, plus the time elapsed since then.

    Setting the machine's clock, or a time server that steps it, therefore neither ends a budget of
    hours nor gives an evaluation a negative duration.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return the current time: seconds since 1970, never decreasing."""
        return self._offset + time.monotonic()


def worker_name() -> str:
    """Return the name of this process: `host:pid`."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
    """Evaluate one attempt, and return its outcome.

    Its output is saved if the attempt has a folder for it (`bbkb.workers.output`). The time-out needs
    either the main thread (an alarm cannot be raised in other threads) or an expendable process.
    The memory limit needs an expendable process.

    Args:
        now: returns the time for the outcome in seconds; by default the clock of this machine.
        worker: the name of this worker in the outcome; by default `host:pid`.
        is_expendable: whether this process may be killed to enforce the limits.
        publish: receives each intermediate value, and returns whether the attempt should stop.
        machine: the machine of this process if the attempt takes several. SIGTERM then ends the
            evaluation, and the value of ranks above 0 is NaN.
        kind_of: classifies exceptions of the objective.

    Raises:
        HostInterruptError: if the process is not expendable and the user interrupts it. Any other
            exception, including KeyboardInterrupt and SystemExit, becomes a failure.
    """
    now = SteadyClock() if now is None else now
    worker = worker_name() if worker is None else worker
    is_first = machine is None or machine.rank == 0
    with keep_output(attempt, owns_process=is_expendable) as printed:
        reports = Reports(
            publish,
            attempt.folder,
            printed.write,
            machine,
            attempt.step_limit if is_first else None,  # one stop ends all machines
            attempt.recorded_step if is_first else None,
            attempt.trial,
            attempt.attempt,
        )

        def run() -> CheckedResult:  # checking the result may run code of the objective
            returned = objective.evaluate(dict(attempt.parameters), attempt.seed, reports)
            return check_result(returned) if is_first else CheckedResult(math.nan)

        started = now()
        outcome: Outcome | None = None  # if it remains: the campaign has stopped the attempt
        try:
            with confine(limits, machine is not None) if is_expendable else share_process():
                if attempt.folder is not None:
                    attempt.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    if attempt.starts_from is not None:
                        begin_with_copy(attempt.folder, attempt.starts_from, is_first)
                result = before_deadline(run, limits.timeout_seconds, 1.0 if machine is None else HARD_END_SECONDS)
            points = reports.points()
        except BaseException as error:  # SystemExit, for example, would end the process
            if isinstance(error, HostInterruptError) and not is_expendable:
                raise
            is_stopped = isinstance(error, EndedWithOthersError) and reports.is_stopped
            if not (is_stopped or isinstance(error, EvaluationStopped)):
                kind, message = _explain(error, limits, kind_of)
                outcome = attempt.failure(kind, message, started, now(), worker)
        else:
            if not reports.is_stopped:  # otherwise, the objective caught the exception and returned a value
                outcome = TrialSucceeded(
                    trial=attempt.trial,
                    attempt=attempt.attempt,
                    value=result.value,
                    started=started,
                    finished=max(started, now()),
                    worker=worker,
                    metrics=result.metrics,
                    reports=points,
                    remark=result.remark,
                )
        if outcome is None:
            outcome = TrialStopped(
                trial=attempt.trial,
                attempt=attempt.attempt,
                value=reports.last_value,
                step=reports.last_step,
                started=started,
                finished=max(started, now()),
                worker=worker,
                reports=reports.points(),
            )
    if machine is None:
        outcome = with_saved_checkpoint(outcome, attempt)
    return printed.add_to(outcome)


def with_saved_checkpoint(outcome: Outcome, attempt: Attempt) -> Outcome:
    """Save the checkpoint of a stopped attempt if that is requested; return a failure if it cannot
    be saved, else `outcome`.

    An attempt on several machines must have ended on all of them.
    """
    if not (isinstance(outcome, TrialStopped) and attempt.saves_checkpoint and attempt.folder):
        return outcome
    try:
        save_checkpoint(attempt.folder, outcome.step)
    except OSError as error:
        message = f"the checkpoint at step {outcome.step} cannot be saved: {_describe(error)}"
        kind = FailureKind.ERROR
        return attempt.failure(kind, message, outcome.started, outcome.finished, outcome.worker)
    return outcome


def prepare(objective: Objective | HasPreparation, limits: Limits) -> None:
    """Let the objective prepare in this expendable process once: import its module, for example.

    The time-out of evaluations excludes this time. Exceptions are ignored here: the evaluation
    prepares again and records them.
    """
    if not isinstance(objective, HasPreparation) or any(one is objective for one in _prepared):
        return
    with contextlib.suppress(BaseException), confine(replace(limits, timeout_seconds=None)):
        objective.prepare()
        _prepared[:] = [objective]


def _explain(
    error: BaseException, limits: Limits, kind_of: Callable[[BaseException], FailureKind]
) -> tuple[FailureKind, str]:
    match error:
        case DeadlineReached():
            frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
            names = [frame.f_locals.get("name") for frame in frames if frame.f_code.co_name == "_find_and_load"]
            during = f", which passed while it imported {names[0]}: import it at the top of the file" if names else ""
            return FailureKind.TIMEOUT, missed_deadline(limits.timeout_seconds) + during
        case EndedWithOthersError():
            return FailureKind.CANCELLED, "ended with the other machines of the evaluation"
        case InvalidValueError():
            return FailureKind.INVALID_VALUE, _text_of(error)[:MESSAGE_CHARACTERS]
        case CommandFailedError():  # its traceback contains no code of the user
            return FailureKind.ERROR, _text_of(error)[:MESSAGE_CHARACTERS]
        case MemoryError():
            return FailureKind.OUT_OF_MEMORY, _describe(error)
        case _:
            return kind_of(error), _describe(error)


def _describe(error: BaseException) -> str:
    """Return the summary and the end of the traceback, at most `MESSAGE_CHARACTERS` together.

    The traceback begins with the first frame of user code, or is complete if there is none.
    """
    summary = summary_of(error)
    try:
        whole = traceback.TracebackException.from_exception(error, limit=-10 - _OWN_CALLS)
        part: traceback.TracebackException | None = whole
        while part is not None:
            is_own = [frame.filename.startswith(_OWN_FOLDERS) for frame in part.stack]
            own_frames = [*is_own, False].index(False)
            if own_frames < len(part.stack):
                del part.stack[:own_frames]
            part = part.__cause__ or part.__context__
        trace = "".join(whole.format()).rstrip()
    except BaseException:  # the exception's own code runs, and may raise anything
        trace = "(its traceback cannot be printed)"
    return f"{summary}\n{printable(trace)[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def summary_of(error: BaseException) -> str:
    """Return `Type: message` for any exception, even a broken one; at most 500 characters."""
    text = _text_of(error)
    name = "MemoryError" if isinstance(error, MemoryError) else _QUALNAME(type(error))
    return shorten(printable(f"{name}: {text}" if text else name), _SUMMARY_CHARACTERS)


def _text_of(error: BaseException) -> str:
    try:
        return printable(str(error))
    except BaseException:  # the exception's own code runs, and may raise anything
        return "(its message cannot be printed)"


def is_out_of_descriptors(outcome: Outcome) -> bool:
    """Return whether the process of this outcome must be replaced because it has run out of file
    descriptors, which cannot be reclaimed. This is decided from the message, so that another
    process can check it too.
    """
    if not isinstance(outcome, TrialFailed) or outcome.failure is not FailureKind.ERROR:
        return False
    return _NO_DESCRIPTORS in outcome.message
