"""Which results a campaign lost, counted twice or evaluated again, from its log, the records of the
executions, and the kills. Pure, so that the accounting itself can be tested.

An execution may be repeated when it ran in a process that was killed, on a node that was killed, in
a task whose owner, the central actor, was killed (Ray ends tasks with their owner), or anywhere in
a cluster whose head was killed. The death of the database server explains no repetition. Any other
execution that is not in the log counts as lost.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Literal

from bbkb.orchestrator.campaign.events import (
    Event,
    SessionClosed,
    SessionOpened,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from benchmarks.chaos.objective import Execution

Victim = Literal["worker", "coordinator", "driver", "node", "head", "server"]
SEVERAL = "several at once"
NOT_EXCUSED = "no kill explains it"

# The seconds from the end of an evaluation to its entry in the log; or the longest time that was
# observed in this campaign without a kill between them, because a busy machine needs longer.
_LEAST_HANDOVER_SECONDS = 1.0
# For a moment, processes on a node survive its raylet, and a task survives its owner.
_SURVIVAL_SECONDS = 6.0
_HARMLESS = ("worker lost", "node lost")  # failures that a kill may cause


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL."""

    strike: int  # the number of the strike; kills of one strike were simultaneous
    time: float  # seconds since 1970
    victim: Victim  # the kind of process
    pid: int  # the process that was killed
    node: str = ""  # the node that was killed, empty for a process
    has_coordinator: bool = False  # whether the coordinator ran on that node, and so died with it

    def has_killed(self, execution: Execution) -> bool:
        """Whether the execution was running in the process, or on the node, when it was killed."""
        is_there = self.node in execution.nodes if self.victim == "node" else self.pid in execution.pids
        return is_there and execution.covers(self.time)

    def may_have_lost(self, execution: Execution, handover_seconds: float, silence: tuple[float, float]) -> bool:
        """Whether this kill may be the reason that an execution is not in the log.

        `handover_seconds`: seconds from the end of an evaluation to the log; `silence`: when the
        log was written to for the last time before the kill, and when the next session began. A
        coordinator that writes nothing collects no result.
        """
        has_silenced = self.victim in ("coordinator", "head") or self.has_coordinator
        first = (silence[0] if has_silenced else self.time) - handover_seconds
        last = max(self.time + _SURVIVAL_SECONDS, silence[1] if has_silenced else 0.0)
        is_near = execution.began <= last and (execution.ended is None or execution.ended >= first)
        match self.victim:
            case "worker":
                return is_near and self.pid in execution.pids
            case "node":
                is_owned = self.has_coordinator and execution.place == "task"
                return is_near and (self.node in execution.nodes or is_owned)
            case "coordinator":
                return is_near and execution.place == "task"
            case "head":
                return is_near
            case "driver" | "server":
                return False


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one campaign."""

    lost: int  # results that were computed and are not in the log
    twice: int  # results that are in the log twice
    broken: tuple[str, ...]  # the promises that were not kept, in words; empty if all were kept
    results: int  # results in the log
    executions: int  # executions that the objective itself recorded
    evaluation_seconds: float  # their time together
    repeated: Mapping[str, int]  # by kind of victim, the executions that were started and are not in the log
    repeated_seconds: float  # the time that they had run
    # by kind of victim, the seconds from a strike until work continued
    recoveries: Mapping[str, tuple[float, ...]]
    strikes: Mapping[str, int]  # kind of victim → number of strikes
    kills: Mapping[str, int]  # by kind of victim, the processes that were killed
    failures: Mapping[str, int]  # recorded failures, by kind
    set_aside: int  # trials that failed because attempts with their arm had ended too many workers
    sessions: int  # sessions of the campaign


def account(
    evaluations: int,
    trials: Mapping[int, int],
    events: Sequence[Event],
    executed: Iterable[Execution],
    kills: Sequence[Kill],
) -> Account:
    """The account of a campaign from its log, the recorded executions, and the kills.

    `trials` has the trial of each seed; executions with other seeds are ignored. Times are
    wall-clock seconds.
    """
    of_campaign = [execution for execution in executed if execution.seed in trials]
    successes = [event for event in events if isinstance(event, TrialSucceeded)]
    failures = [event for event in events if isinstance(event, TrialFailed)]
    recorded = recorded_executions(events)
    unrecorded = [execution for execution in of_campaign if execution.identity not in recorded]
    handover_seconds = _handover_seconds(successes, of_campaign, kills)
    silences = {kill: _silence_around(kill, events) for kill in kills}
    blamed = {execution: _blame(execution, silences, handover_seconds) for execution in unrecorded}
    unexplained = [execution for execution, kill in blamed.items() if kill is None]
    lost = [execution for execution in unexplained if execution.ended is not None]
    broken_off = [execution for execution in unexplained if execution.ended is None]
    ended = [event.trial for event in successes] + [event.trial for event in failures if event.is_final]
    outcomes: list[TrialSucceeded | TrialFailed] = [*successes, *failures]
    attempts = Counter((event.trial, event.attempt) for event in outcomes)
    twice = [
        *(f"trial {trial}, attempt {attempt} has {n} outcomes" for (trial, attempt), n in attempts.items() if n > 1),
        *(f"trial {trial} ended {n} times" for trial, n in Counter(ended).items() if n > 1),
    ]
    noted = {execution.identity for execution in of_campaign if execution.ended is not None}
    broken = [
        *(f"finished and not recorded: trial {trials[execution.seed]}, {execution}" for execution in lost),
        *(
            f"not finished, and no kill explains it: trial {trials[execution.seed]}, {execution}"
            for execution in broken_off
        ),
        *twice,
        *(f"trial {trial} never ended" for trial in range(evaluations) if trial not in ended),
        *(f"recorded and never executed: {event}" for event in successes if _identity(event) not in noted),
        *(f"failed without a kill: {event}" for event in failures if event.failure not in _HARMLESS),
        *(f"gave up: {event}" for event in events if isinstance(event, SessionClosed) and event.outcome != "finished"),
    ]
    return Account(
        lost=len(lost),
        twice=len(twice),
        broken=tuple(broken),
        results=len(successes),
        executions=len(of_campaign),
        evaluation_seconds=sum(event.finished - event.started for event in successes),
        repeated=Counter(NOT_EXCUSED if kill is None else kill.victim for kill in blamed.values()),
        repeated_seconds=sum(_wasted_seconds(execution, kill) for execution, kill in blamed.items()),
        recoveries=_recoveries(kills, events, of_campaign, recorded),
        strikes=Counter(label for label, _ in _strikes(kills)),
        kills=Counter(kill.victim for kill in kills),
        failures=Counter(event.failure for event in failures),
        set_aside=sum(event.is_final for event in failures),
        sessions=sum(isinstance(event, SessionOpened) for event in events),
    )


def recorded_executions(events: Sequence[Event]) -> set[tuple[float, float]]:
    """The identities of the executions whose results are in the log."""
    return {_identity(event) for event in events if isinstance(event, TrialSucceeded)}


def _identity(event: TrialSucceeded) -> tuple[float, float]:
    return (event.metrics["pid"], event.metrics["began"])


def _handover_seconds(
    successes: Sequence[TrialSucceeded], executed: Sequence[Execution], kills: Sequence[Kill]
) -> float:
    """The longest time from an evaluation's end to its log entry without a kill between them."""
    ended = {execution.identity: execution.ended for execution in executed}
    spans = [(ended.get(_identity(event)), event.time) for event in successes]
    quiet = [
        written - end
        for end, written in spans
        if end is not None and not any(end <= kill.time <= written for kill in kills)
    ]
    return max([_LEAST_HANDOVER_SECONDS, *quiet])


def _silence_around(kill: Kill, events: Sequence[Event]) -> tuple[float, float]:
    """The times of the last event before a kill and of the next session; else that of the kill."""
    written = max((event.time for event in events if event.time <= kill.time), default=kill.time)
    openings = (event.time for event in events if isinstance(event, SessionOpened) and event.time > kill.time)
    return written, min(openings, default=kill.time)


def _blame(execution: Execution, silences: Mapping[Kill, tuple[float, float]], handover_seconds: float) -> Kill | None:
    """The first kill since an execution began, or one just before it, that explains its loss."""
    kills = [kill for kill, silence in silences.items() if kill.may_have_lost(execution, handover_seconds, silence)]
    later = [kill for kill in kills if kill.time >= execution.began]
    return next(iter([*later, *reversed(kills)]), None)


def _wasted_seconds(execution: Execution, kill: Kill | None) -> float:
    """The seconds that a lost execution had run, as far as they are known."""
    end = execution.ended or (execution.began if kill is None else kill.time)
    return max(0.0, end - execution.began)


def _strikes(kills: Sequence[Kill]) -> Iterator[tuple[str, list[Kill]]]:
    for strike in sorted({kill.strike for kill in kills}):
        together = [kill for kill in kills if kill.strike == strike]
        yield (together[0].victim if len(together) == 1 else SEVERAL), together


def _recoveries(
    kills: Sequence[Kill], events: Sequence[Event], executed: Sequence[Execution], recorded: set[tuple[float, float]]
) -> dict[str, tuple[float, ...]]:
    """For each victim: the seconds until everything that its strikes hit continued."""
    recoveries: dict[str, tuple[float, ...]] = {}
    for label, together in _strikes(kills):
        found = [_recovery(kill, events, executed, recorded) for kill in together]
        if seconds := [recovery for recovery in found if recovery is not None]:
            recoveries[label] = (*recoveries.get(label, ()), max(seconds))
    return recoveries


def _recovery(
    kill: Kill, events: Sequence[Event], executed: Sequence[Execution], recorded: set[tuple[float, float]]
) -> float | None:
    """Seconds until work continued; None if the kill hit nothing.

    After the loss of a worker or a node: until the lost evaluations ran again. Otherwise: until the
    next result or dispatch in the log, which must be of a new session when the coordinator or the
    head was killed.
    """
    if kill.victim in ("worker", "node"):
        hit = [one for one in executed if kill.has_killed(one) and one.identity not in recorded]
        again = [_next(execution, executed) for execution in hit]
        return max((began - kill.time for began in again if began > kill.time), default=None)
    later = [event for event in events if event.time > kill.time]
    if kill.victim in ("coordinator", "head"):
        later = list(dropwhile(lambda event: not isinstance(event, SessionOpened), later))
    went_on = (event.time for event in later if isinstance(event, TrialsDispatched | TrialSucceeded | SessionClosed))
    moment = next(went_on, None)
    return None if moment is None else moment - kill.time


def _next(execution: Execution, executed: Sequence[Execution]) -> float:
    """When the same evaluation began again; −∞ if it did not."""
    later = (other.began for other in executed if other.seed == execution.seed and other.began > execution.began)
    return next(later, -math.inf)
