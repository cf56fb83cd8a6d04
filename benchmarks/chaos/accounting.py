"""What a campaign lost, counted twice or did again under the kills that it met: from its log, the executions that were
noted beside it, and the kills. Pure, so that the accounting itself can be tested.

What may run again is what ran in a process that was killed, on a node that was killed, or in a task whose owner, the
central actor, was killed (Ray ends tasks with their owner), or anywhere in a cluster whose head was killed. The death
of the database server explains nothing. All else that is not in the log is lost.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.chaos.objective import Execution
from orchestrator.campaign.events import (
    Event,
    SessionClosed,
    SessionOpened,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)

Victim = Literal["worker", "coordinator", "driver", "node", "head", "server"]
SEVERAL = "several at once"
NOT_EXCUSED = "no kill explains it"

# A result reaches the log within this long after its evaluation has ended, or as long as was observed in this campaign
# where no kill came between: a busy machine needs longer.
_LEAST_HANDOVER_SECONDS = 1.0
# What runs on a node survives its raylet, and a task its owner, for a moment.
_SURVIVAL_SECONDS = 6.0
_HARMLESS = ("worker lost", "node lost")  # failures that kills may cause


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL. Kills of one `strike` came at once. `node`: the one that was killed, empty for a process;
    `has_coordinator`: whether the coordinator ran there, and so died with it."""

    strike: int
    time: float
    victim: Victim
    pid: int
    node: str = ""
    has_coordinator: bool = False

    def has_killed(self, execution: Execution) -> bool:
        """Whether that ran in the process, or on the node, that was killed, and was under way then."""
        is_there = execution.node == self.node if self.victim == "node" else execution.pid == self.pid
        return is_there and execution.covers(self.time)

    def may_have_lost(self, execution: Execution, handover_seconds: float, silence: tuple[float, float]) -> bool:
        """Whether an execution that is not in the log may have been lost to this kill.

        `handover_seconds`: how long a result takes to the log; `silence`: when the log was written to for the last time
        before the kill, and when the next session began after it. A coordinator that writes nothing takes in nothing.
        """
        has_silenced = self.victim in ("coordinator", "head") or self.has_coordinator
        first = (silence[0] if has_silenced else self.time) - handover_seconds
        last = max(self.time + _SURVIVAL_SECONDS, silence[1] if has_silenced else 0.0)
        is_near = execution.began <= last and (execution.ended is None or execution.ended >= first)
        match self.victim:
            case "worker":
                return is_near and execution.pid == self.pid
            case "node":
                is_owned = self.has_coordinator and execution.place == "task"
                return is_near and (execution.node == self.node or is_owned)
            case "coordinator":
                return is_near and execution.place == "task"
            case "head":
                return is_near
            case "driver" | "server":
                return False


@dataclass(frozen=True, slots=True)
class Account:
    """Of one campaign. `broken` describes the promises that were not kept; it should be empty.

    `repeated`: executions that were started and are not in the log, by what killed them, and the seconds they had run;
    `recoveries`: seconds from a strike until work went on, by victim; `failures`: recorded, by kind;
    `set_aside`: trials that ended as failed, since their arm has cost too many workers.
    """

    lost: int
    twice: int
    broken: tuple[str, ...]
    results: int
    executions: int
    evaluation_seconds: float
    repeated: Mapping[str, int]
    repeated_seconds: float
    recoveries: Mapping[str, tuple[float, ...]]
    strikes: Mapping[str, int]
    kills: Mapping[str, int]
    failures: Mapping[str, int]
    set_aside: int
    sessions: int


def account(
    evaluations: int,
    trials: Mapping[int, int],
    events: Sequence[Event],
    executed: Iterable[Execution],
    kills: Sequence[Kill],
) -> Account:
    """`trials`: the trial of each seed; executions of other campaigns are left out."""
    own = [execution for execution in executed if execution.seed in trials]
    successes = [event for event in events if isinstance(event, TrialSucceeded)]
    failures = [event for event in events if isinstance(event, TrialFailed)]
    recorded = {(event.metrics["pid"], event.metrics["began"]) for event in successes}
    unrecorded = [it for it in own if (float(it.pid), it.began) not in recorded]
    handover_seconds = _handover_seconds(successes, own, kills)
    silences = {kill: _silence_around(kill, events) for kill in kills}
    blamed = {it: _blame(it, silences, handover_seconds) for it in unrecorded}
    unexplained = [it for it, kill in blamed.items() if kill is None]
    lost = [it for it in unexplained if it.ended is not None]
    broken_off = [it for it in unexplained if it.ended is None]
    twice = _repeated_outcomes(successes, failures)
    broken = [
        *(f"finished and not recorded: trial {trials[it.seed]}, {it}" for it in lost),
        *(f"broken off, and no kill explains it: trial {trials[it.seed]}, {it}" for it in broken_off),
        *twice,
        *_unfinished_trials(evaluations, successes, failures),
        *_invented_results(successes, own),
        *(f"failed by itself: {event}" for event in failures if event.failure not in _HARMLESS),
        *(f"gave up: {it}" for it in events if isinstance(it, SessionClosed) and it.outcome != "finished"),
    ]
    return Account(
        lost=len(lost),
        twice=len(twice),
        broken=tuple(broken),
        results=len(successes),
        executions=len(own),
        evaluation_seconds=sum(event.finished - event.started for event in successes),
        repeated=Counter(NOT_EXCUSED if kill is None else kill.victim for kill in blamed.values()),
        repeated_seconds=sum(_wasted_seconds(it, kill) for it, kill in blamed.items()),
        recoveries=_recoveries(kills, events, own, recorded),
        strikes=Counter(label for label, _ in _strikes(kills)),
        kills=Counter(kill.victim for kill in kills),
        failures=Counter(event.failure for event in failures),
        set_aside=sum(event.is_final for event in failures),
        sessions=sum(isinstance(event, SessionOpened) for event in events),
    )


def _repeated_outcomes(successes: Sequence[TrialSucceeded], failures: Sequence[TrialFailed]) -> list[str]:
    """Attempts with more than one outcome, trials that ended more than once."""
    attempts = Counter([(it.trial, it.attempt) for it in successes] + [(it.trial, it.attempt) for it in failures])
    ends = Counter([it.trial for it in successes] + [it.trial for it in failures if it.is_final])
    return [
        *(f"trial {trial}, attempt {attempt} has {n} outcomes" for (trial, attempt), n in attempts.items() if n > 1),
        *(f"trial {trial} ended {n} times" for trial, n in ends.items() if n > 1),
    ]


def _unfinished_trials(
    evaluations: int, successes: Sequence[TrialSucceeded], failures: Sequence[TrialFailed]
) -> list[str]:
    ended = {it.trial for it in successes} | {it.trial for it in failures if it.is_final}
    return [f"trial {trial} never ended" for trial in range(evaluations) if trial not in ended]


def _invented_results(successes: Sequence[TrialSucceeded], executed: Sequence[Execution]) -> list[str]:
    """Results of no execution that was noted."""
    noted = {(float(it.pid), it.began) for it in executed if it.ended is not None}
    return [
        f"recorded and never executed: {event}"
        for event in successes
        if (event.metrics["pid"], event.metrics["began"]) not in noted
    ]


def _handover_seconds(
    successes: Sequence[TrialSucceeded], executed: Sequence[Execution], kills: Sequence[Kill]
) -> float:
    """The longest time from the end of an evaluation to its place in the log that no kill explains."""
    ended = {(float(it.pid), it.began): it.ended for it in executed}
    spans = [(ended.get((event.metrics["pid"], event.metrics["began"])), event.time) for event in successes]
    quiet = [
        written - end
        for end, written in spans
        if end is not None and not any(end <= kill.time <= written for kill in kills)
    ]
    return max([_LEAST_HANDOVER_SECONDS, *quiet])


def _silence_around(kill: Kill, events: Sequence[Event]) -> tuple[float, float]:
    """When the log was written to before a kill, and when a session opened after it; the kill's time for none."""
    written = max((event.time for event in events if event.time <= kill.time), default=kill.time)
    openings = (event.time for event in events if isinstance(event, SessionOpened) and event.time > kill.time)
    return written, min(openings, default=kill.time)


def _blame(execution: Execution, silences: Mapping[Kill, tuple[float, float]], handover_seconds: float) -> Kill | None:
    """The kill that an execution was lost to: the first since it began, or one just before."""
    may_have_lost = [
        kill for kill, silence in silences.items() if kill.may_have_lost(execution, handover_seconds, silence)
    ]
    return next(
        (kill for kill in may_have_lost if kill.time >= execution.began), may_have_lost[-1] if may_have_lost else None
    )


def _wasted_seconds(execution: Execution, kill: Kill | None) -> float:
    """Seconds of an execution that were for nothing, as far as they are known."""
    end = execution.ended or (execution.began if kill is None else kill.time)
    return max(0.0, end - execution.began)


def _strikes(kills: Sequence[Kill]) -> Iterator[tuple[str, list[Kill]]]:
    for strike in sorted({kill.strike for kill in kills}):
        together = [kill for kill in kills if kill.strike == strike]
        yield (together[0].victim if len(together) == 1 else SEVERAL), together


def _recoveries(
    kills: Sequence[Kill], events: Sequence[Event], executed: Sequence[Execution], recorded: set[tuple[float, float]]
) -> dict[str, tuple[float, ...]]:
    """By victim, for every strike that hit something, the seconds until everything it hit went on."""
    found: dict[str, tuple[float, ...]] = {}
    for label, together in _strikes(kills):
        seconds = [it for kill in together if (it := _recovery(kill, events, executed, recorded)) is not None]
        if seconds:
            found[label] = (*found.get(label, ()), max(seconds))
    return found


def _recovery(
    kill: Kill, events: Sequence[Event], executed: Sequence[Execution], recorded: set[tuple[float, float]]
) -> float | None:
    """Seconds until work went on: until the evaluations that were lost with a worker or a node ran again, else until
    the log has a result or dispatch, of a new session if the coordinator or the head was hit. None: nothing was hit."""
    if kill.victim in ("worker", "node"):
        hit = (it for it in executed if kill.has_killed(it) and (it.pid, it.began) not in recorded)
        again = (_next(it, executed) for it in hit)
        return max((moment - kill.time for moment in again if moment is not None and moment > kill.time), default=None)
    later = [event for event in events if event.time > kill.time]
    if kill.victim in ("coordinator", "head"):
        opened = next(
            (position for position, event in enumerate(later) if isinstance(event, SessionOpened)), len(later)
        )
        later = later[opened:]
    went_on = (event.time for event in later if isinstance(event, TrialsDispatched | TrialSucceeded | SessionClosed))
    moment = next(went_on, None)
    return None if moment is None else moment - kill.time


def _next(execution: Execution, executed: Sequence[Execution]) -> float | None:
    """When the same evaluation began again."""
    return next((it.began for it in executed if it.seed == execution.seed and it.began > execution.began), None)
