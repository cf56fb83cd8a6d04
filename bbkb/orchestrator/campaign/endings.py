"""The enumerations for the state and the end of a campaign. Logs contain the values of `Phase`,
`StopReason` and `SessionOutcome`, which must never change."""

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a campaign: no session yet, dispatching, draining, ended."""

    CREATED = "created"
    RUNNING = "running"
    STOPPING = "stopping"
    CLOSED = "closed"


class RunState(StrEnum):
    """The state of a run according to its log, which is the state of its last session."""

    NOT_STARTED = "not started"  # no session was opened
    UNFINISHED = "unfinished"  # no closing event: running or killed
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class StopReason(StrEnum):
    """Why a session dispatches nothing more before its budget of evaluations is spent."""

    INTERRUPTED = "interrupted"
    TARGET_REACHED = "target reached"
    TIME_SPENT = "time budget spent"
    STEPS_SPENT = "budget of steps spent"
    EVERYTHING_FAILS = "everything fails"
    NO_GAIN = "no further gain"
    LITTLE_LEFT = "the model expects little more"


class SessionOutcome(StrEnum):
    """The outcome of a session that recorded its end."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
