"""Runs one attempt under its limits, checks what it returns and reports, and turns every result or failure
into an `Outcome`.

Every evaluation has soft limits and, in a worker process, a hard one. The soft limits raise in
Python: an alarm in the main thread when the time-out has passed, and `MemoryError` when an
allocation is refused. The hard limit is a C thread that ends the process `grace_seconds` later, for
objectives that block the interpreter or catch the exception. Only a process that may die
(`is_expendable`: a worker of a cluster) has this limit and a memory limit, because both affect the
whole process. Processes that an evaluation starts in such a process are killed at its end
(`bbkb.workers.limits`).

An evaluation fails if its value is not a finite number. Metrics that are not finite numbers or
exceed the limits are omitted, with a remark. The function `report` raises if the trial is stopped. If a
process is killed, its last reports may not have reached the log. A training that continues from a
checkpoint does not repeat their steps, so the next attempt reports the values that are stored beside the
checkpoint.
"""

import contextlib
import errno
import json
import math
import os
import reprlib
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite  # bound here: an objective in this process may replace it in `math`
from pathlib import Path

from bbkb.objectives.command import CommandFailedError
from bbkb.objectives.objective import (
    NAME_CHARACTERS,
    AttemptReport,
    Evaluation,
    EvaluationStopped,
    HasPreparation,
    InvalidValueError,
    Machine,
    Objective,
)
from bbkb.objectives.returned import check_bounds, number_of
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
from bbkb.workers.messages import (
    Attempt,
    FailureKind,
    Limits,
    Outcome,
    Report,
    TrialFailed,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.workers.output import KEPT_REPORTS, begin_with_copy, keep_output, save_checkpoint

_NAMED = 3  # the number of metrics that a remark names


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """A value and its metrics."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    remark: str = ""  # the omitted metrics and the reasons, in one short line


def check_result(evaluation: object) -> CheckedResult:
    """Return the result to store. Raises InvalidValueError if it has no finite value."""
    if not isinstance(evaluation, Evaluation):
        raise InvalidValueError(f"an objective must return an Evaluation, got {excerpt(evaluation)}")
    value = finite_or_not("value", evaluation.value)
    if not isfinite(value):
        raise InvalidValueError(f"value must be a finite number, got {value}")
    returned: object = evaluation.metrics  # any object, returned by the objective
    if not isinstance(returned, Mapping):
        return CheckedResult(value, {}, f"metrics left out: they must be a mapping, got {type(returned).__name__}")
    metrics: dict[str, float] = {}
    left_out = [(str(name), why) for name, why in evaluation.left_out.items()]
    for key, metric in returned.items():
        name = storable(key)
        try:
            check_bounds(name, len(metrics))
            number = number_of(metric)
            if number is None or not isfinite(number):
                raise InvalidValueError(f"{type(metric).__name__}, not a finite number")
            metrics[name] = number
        except InvalidValueError as error:
            left_out.append((name, str(error)))
    if not left_out:
        return CheckedResult(value, metrics)
    listed = ", ".join(f"{shorten(name, NAME_CHARACTERS // 2)} ({why})" for name, why in left_out[:_NAMED])
    ending = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return CheckedResult(value, metrics, f"metrics left out: {listed}{ending}")


def shorten(text: str, length: int) -> str:
    """Return `text`, cut to at most `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def storable(text: object) -> str:
    """Return `text` without lone surrogates and NUL, which databases and JSON writers reject."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def finite_or_not(name: str, value: object) -> float:
    """Convert `value` to a float, which may be NaN or infinite.

    Raises InvalidValueError if it is not a number.

    Everything that `bbkb.objectives.returned.number_of` converts is a number, including a tensor without
    dimensions and a Decimal.
    """
    number = number_of(value)
    if number is None:
        hint = "; write float(...) if it is meant as a number" if isinstance(value, bool | str) else ""
        hint = "; give one of its numbers, such as its mean" if hasattr(value, "ndim") else hint
        raise InvalidValueError(f"{name} must be a finite number, got {excerpt(value)}{hint}")
    return number


def excerpt(value: object) -> str:
    """Return a short text for any value, even if its repr is huge, slow or broken."""
    if isinstance(value, int) and value.bit_length() > 1000:  # quadratic time as text
        return f"an int of {value.bit_length()} bits"
    try:
        text = reprlib.repr(value)
    except Exception:
        text = "a value whose repr fails"
    return f"{text} ({type(value).__name__})"


RECORDED_WHOLE = 1000  # the number of reports that are all recorded
LARGEST_STEP = 2**53  # larger ones are inexact in floats, and do not fit into tables

# Sends a report to the coordinator, or nothing if it is not recorded. Returns True if the attempt
# should stop.
Publish = Callable[[Report | None], bool]


class Reports(AttemptReport):
    """The `report` of one attempt: selects the reports to record, and publishes them.

    Of n reports, about `RECORDED_WHOLE` · (1 + ½ log₂(n / `RECORDED_WHOLE`)) are recorded: the
    first `RECORDED_WHOLE`, a decreasing share of the later ones, and the last one. The selection
    depends only on their number, so it is the same wherever the attempt runs.

    `folder` is the trial's own folder; None if the campaign provides none. `write_output` appends
    bytes to the attempt's output; None if no output is saved. `machine` is this machine if the
    attempt takes several, else None. `step_limit`: see `Attempt`. `recorded_step` is the trial's largest
    step in the log; None if the folder does not keep the reports for the next attempt. `trial` and
    `attempt` identify the attempt.
    """

    def __init__(
        self,
        publish: Publish | None = None,
        folder: Path | None = None,
        write_output: Callable[[bytes], None] | None = None,
        machine: Machine | None = None,
        step_limit: int | None = None,
        recorded_step: int | None = None,
        trial: int = 0,
        attempt: int = 1,
    ) -> None:
        self.folder = folder
        self.write_output = write_output
        self.machine = machine
        self.is_stopped = False
        self.value_name = "value"  # the metric of a mapping that is the value
        self.last_value: float | None = None  # the newest finite value
        self._trial = trial
        self._attempt = attempt
        self._publish = publish
        self._kept = None if folder is None or recorded_step is None else folder / KEPT_REPORTS
        self._recorded_step = recorded_step or 0
        self._step_limit = math.inf if step_limit is None else step_limit
        self._recorded: list[Report] = []
        self._last: Report | None = None
        self._count = 0

    def __call__(
        self, /, value: float | Mapping[str, float], step: int | None = None, **metrics: float
    ) -> None:  # fmt: skip
        """Record `value`, which may be NaN or infinite, because a diverging training may report it. A
        mapping contains the value as `value_name`, and further metrics.

        Raises EvaluationStopped if the campaign stops this trial early, and InvalidValueError if
        `value` or one of `metrics` is not a number, or `step` is not a whole number up to 2⁵³.
        """
        if isinstance(value, Mapping):
            if self.value_name not in value:
                raise InvalidValueError(
                    f"a reported mapping must have {self.value_name!r}, the metric that the search "
                    f"optimizes (first), got {excerpt(value)}"
                )
            metrics = {**value, **metrics}
            value = metrics.pop(self.value_name)
        number = finite_or_not("a reported value", value)
        at = self._count
        if step is not None:
            whole = finite_or_not("a step", step)
            if not whole.is_integer() or abs(whole) > LARGEST_STEP:
                raise InvalidValueError(
                    f"a step must be a whole number of at most 2⁵³, got {whole:g}: report takes the value first, "
                    "report(value, step), with steps 1, 2, …"
                )
            at = int(step)
        values = {self.value_name: number}
        for key, metric in metrics.items():
            name = storable(key)
            try:
                check_bounds(name, len(values) - 1)
            except InvalidValueError as error:
                raise InvalidValueError(f"a reported metric {name[:50]!r} cannot be recorded: {error}") from None
            values[name] = finite_or_not(f"the reported metric {name!r}", metric)
        report = Report(self._trial, self._attempt, at, values)
        is_asked_to_stop = False
        if self._last is None:  # the steps that an earlier attempt reported and the log lacks
            for missing in self._missing(at):
                is_asked_to_stop |= self._record(missing)
        self._last = report
        self.last_value = number if isfinite(number) else self.last_value
        stride = 1 << (self._count // RECORDED_WHOLE).bit_length()
        is_recorded = self._count % stride == 0
        self._count += 1
        if is_recorded and self._kept is not None:
            with contextlib.suppress(OSError), self._kept.open("a", encoding="utf-8") as file:
                file.write(_line(report))
        is_asked_to_stop |= self._record(report if is_recorded else None)
        if self.is_stopped or is_asked_to_stop or at >= self._step_limit:
            self.is_stopped = True
            raise EvaluationStopped(f"stopped early at step {at}")

    def points(self) -> tuple[Report, ...]:
        """Return the recorded reports, in the order of reporting."""
        if self._last is None:  # the training had no steps left
            return tuple(self._missing())
        if self._recorded[-1] is self._last:
            return tuple(self._recorded)
        return (*self._recorded, self._last)

    def _missing(self, before: float = math.inf) -> list[Report]:
        """Return the kept reports that the log lacks, up to the step `before`, in the order of steps.

        All other reports are removed from the file. A file that cannot be read or written is ignored: it only
        fills gaps after a kill.
        """
        if self._kept is None:
            return []
        try:
            lines = self._kept.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        by_step: dict[int, dict[str, float]] = {}
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # the process was killed while writing it
                step, values = json.loads(line)
                by_step[int(step)] = {str(name): float(number) for name, number in values.items()}
        steps = sorted(step for step in by_step if self._recorded_step < step < before)
        missing = [Report(self._trial, self._attempt, step, by_step[step]) for step in steps]
        if len(missing) < len(lines):
            draft = self._kept.with_name(f"{KEPT_REPORTS}.draft")
            with contextlib.suppress(OSError):
                draft.write_text("".join(map(_line, missing)), encoding="utf-8")
                draft.replace(self._kept)
        return missing

    def _record(self, report: Report | None) -> bool:
        """Publish a report; with None, only ask whether the attempt should stop."""
        if report is not None:
            self._recorded.append(report)
        return self._publish is not None and self._publish(report)

    @property
    def last_step(self) -> int:
        """The step of the newest report; −1 before the first."""
        return -1 if self._last is None else self._last.step


def _line(report: Report) -> str:
    return f"{json.dumps([report.step, dict(report.values)])}\n"


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
    return f"{summary}\n{storable(trace)[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def summary_of(error: BaseException) -> str:
    """Return `Type: message` for any exception, even a broken one; at most 500 characters."""
    text = _text_of(error)
    name = "MemoryError" if isinstance(error, MemoryError) else _QUALNAME(type(error))
    return shorten(storable(f"{name}: {text}" if text else name), _SUMMARY_CHARACTERS)


def _text_of(error: BaseException) -> str:
    try:
        return storable(str(error))
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
