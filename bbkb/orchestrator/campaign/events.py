"""The events of a campaign, and their JSON in the store. Only events are stored.

Every event carries the ids (round, trial, attempt) that make a second delivery harmless. An outcome
of an attempt is an event itself (`bbkb.workers.messages`). Decisions and drawn dictionaries are
recorded, never recomputed. `time` is seconds on the executor's clock:
wall-clock time since the epoch, or virtual time under the simulated executor. The values of the
enumerations stand in logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from bbkb.objectives.parameters import Scalar
from bbkb.orchestrator.bandit.results import CurveUpdate, Observation
from bbkb.orchestrator.campaign.settings import Recorded
from bbkb.orchestrator.campaign.trainings import Forecast
from bbkb.orchestrator.wording import plural, rounded
from bbkb.workers.messages import Outcome, Report, Trial
from bbkb.workers.messages import TrialFailed as TrialFailed
from bbkb.workers.messages import TrialStopped as TrialStopped
from bbkb.workers.messages import TrialSucceeded as TrialSucceeded

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Phase(StrEnum):
    """The phase of a campaign: no session yet, dispatching, draining, ended."""

    CREATED = "created"
    RUNNING = "running"
    STOPPING = "stopping"
    CLOSED = "closed"


class StopCause(StrEnum):
    """The cause for stopping a trial before its end. Logs contain these texts."""

    FIRST_TRAINING = "short first training"
    WORSE_THAN_OTHERS = "worse than other trials at this step"
    PAUSE = "paused: the strategy chooses which trials continue"
    FORECAST = "its expected end is worse than the best one"
    FINISH = "the remaining budget is for the best trials"
    SPENT = "the remaining budget completes no training"


def stop_words(cause: str) -> tuple[str, str]:
    """Return the word for a stop with this cause; a colon and the cause follow, if there is one."""
    word = "paused" if cause == StopCause.PAUSE else "stopped early"
    return word, cause and f": {cause.removeprefix(f'{word}: ')}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignCreated:
    """The first event: the complete description of the campaign."""

    time: float
    arms: int
    # sha256 of features and parameters: a resume with other candidates is rejected
    candidates_digest: str
    objective: str  # with its data described: a resume with other data is rejected
    optimum: float | None  # best noise-free value; None if unknown
    settings: Recorded
    kind: Literal["campaign_created"] = "campaign_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTaken:
    """Results known before the campaign were matched to its arms. They are not trials and do not
    count towards the budget.

    Written in the transaction that creates the campaign. The strategy learns these results before
    it chooses anything (the first `ModelRefreshed`, with no trials). The event contains all of
    them, so a resume does not read their source again.
    """

    time: float
    source: str
    arms: tuple[int, ...]
    values: tuple[float, ...]  # the results of these arms, on the user's scale
    left_out: tuple[str, ...] = ()  # the results that match no candidate, each with its reason
    # the values of each parameter (n,) in the last n results, which are outside the space: the model learns
    # them, and they are no candidates. Their arms follow the initial candidates
    outside: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    # the parameters of the best result
    best_parameters: Mapping[str, object] = field(default_factory=dict)
    kind: Literal["existing_taken"] = "existing_taken"

    @property
    def outside_count(self) -> int:
        """The number of results outside the space."""
        return max(map(len, self.outside.values()), default=0)

    @property
    def inside_values(self) -> tuple[float, ...]:
        """The values of candidates."""
        return self.values[: len(self.values) - self.outside_count]

    def __str__(self) -> str:
        text = f"{plural(len(self.arms), 'result')} of {self.source}"
        return f"{text}, {self.not_learned}" if self.left_out else text

    @property
    def not_learned(self) -> str:
        """The results that are left out, as text: the first few with their reasons."""
        listed = "; ".join(self.left_out[:5])
        more = f"; and {len(self.left_out) - 5} more" if len(self.left_out) > 5 else ""
        return f"{len(self.left_out)} not learned ({listed}{more})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """A process opened a session: at the start of the campaign, and at every resume.

    Attempts that were in flight are repeated, except those of the `adopted` trials: workers that
    survived the previous session hold them, running or finished, and their attempts continue.
    """

    time: float
    epoch: int
    slots: int
    settings: Recorded  # of this session: budget, workers and objective.deterministic may have changed
    adopted: tuple[int, ...] = ()
    kind: Literal["session_opened"] = "session_opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesChanged:
    """The number of evaluations that fit into the cluster changed: nodes joined or left."""

    time: float
    slots: int
    kind: Literal["places_changed"] = "places_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedTrial:
    """One pick of a batch, with its reasons: posterior mean and variance (1/λ scale) and width
    before the pick, each None if the strategy has none."""

    trial: int
    arm: int
    parameters: Mapping[str, object]  # so that the log can be read without the candidates
    mean: float | None = None
    width: float | None = None
    variance: float | None = None
    reason: str = ""  # see `Pick`; empty if the numbers are the reason
    # the trial and the step of the checkpoint from which it starts; None: its first step
    starts_from: tuple[int, int] | None = None


Computed = Literal["choosing", "refreshing", "growing"]  # computations of the strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputingBegan:
    """The strategy began to compute. Until it ends, only trials chosen before can run."""

    time: float
    what: Computed
    kind: Literal["computing_began"] = "computing_began"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChosen:
    """The strategy chose these arms in this order.

    The strategy was asked with the pulls pending that the log shows before this event. They do not
    change while it computes.
    """

    time: float  # when the choice was made, executor's clock
    round: int  # the number of refreshes before it
    picks: tuple[PickedTrial, ...]  # the trials, in the order of choice
    reason: str  # why no further trial was chosen
    seconds: float  # the duration of the choice
    limit: int = 0  # the requested maximum
    is_enqueued: bool = False  # whether the picks are from the campaign file
    # stopped trials that the strategy chose to continue; `TrialsContinued` follows
    continued: tuple[int, ...] = ()
    gives_up: tuple[int, ...] = ()  # stopped trials that will not be continued
    # the difference between the largest upper confidence bound and the best value (the best
    # posterior mean if values are noisy), on the user's scale; None if unknown
    possible_gain: float | None = None
    # the standard deviation of a value's noise, on the user's scale; None if unknown
    noise: float | None = None
    kind: Literal["batch_chosen"] = "batch_chosen"  # the name of the event in a log


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsDispatched:
    """These attempts were passed to the executor."""

    time: float
    attempts: tuple[tuple[int, int], ...]  # (trial, attempt)
    kind: Literal["trials_dispatched"] = "trials_dispatched"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsReopened:
    """A user requested another evaluation of these failed trials. Written between two sessions,
    under a claim.

    Their next attempts are queued before all others, and their retries are counted from 0 again.
    """

    time: float
    trials: tuple[Trial, ...]  # with their last attempts
    steps: tuple[int, ...] = ()  # their steps in the budget
    kind: Literal["trials_reopened"] = "trials_reopened"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsContinued:
    """These stopped trials are queued again. Their next attempts continue from their checkpoints.

    `reason`: `promising` if the model expects more of them than of a new trial; `finish` if the
    last part of the budget completes the best unfinished trials.
    """

    time: float
    trials: tuple[int, ...]
    reason: Literal["promising", "finish"]
    kind: Literal["trials_continued"] = "trials_continued"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsRemoved:
    """The checkpoints of these stopped trials are removed; the trials will not be continued."""

    time: float
    trials: tuple[int, ...]
    kind: Literal["checkpoints_removed"] = "checkpoints_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsWithdrawn:
    """These running trials end without a result. Their candidates may be chosen again."""

    time: float
    trials: tuple[int, ...]
    kind: Literal["trials_withdrawn"] = "trials_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsArrived:
    """Running attempts made these reports, in the order of their arrival."""

    time: float
    reports: tuple[Report, ...]
    kind: Literal["reports_arrived"] = "reports_arrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The evaluated arm with the largest estimate, recommended if the fitted noise is so large that
    the best value may be due to noise."""

    arm: int
    parameters: Mapping[str, object]
    value: float  # the mean of its values, on the user's scale
    evaluations: int  # the number of its evaluations
    # the noise-free value, estimated from the model and the configuration's values; None if unknown
    estimate: float | None = None
    deviation: float | None = None  # the standard deviation of `estimate`

    def __str__(self) -> str:
        """Return the estimate and the measured mean, or only the mean if there is no estimate.

        Such as `0.921 ± 0.008 (estimate; mean of 4 evaluations: 0.93)`.
        """
        count = "1 evaluation" if self.evaluations == 1 else f"mean of {self.evaluations} evaluations"
        if self.estimate is None or self.deviation is None:
            return f"{self.value:.6g} ({count})"
        return f"{rounded(self.estimate, 5)} ± {rounded(self.deviation, 2)} (estimate; {count}: {self.value:.6g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRefreshed:
    """The strategy learned these finished trials.

    `observations` and `curves` are all that it learned, known results included, and `record` contains its random
    draws, such as the dictionary. A resume therefore rebuilds the model without the events of single trials.
    """

    time: float
    round: int
    trials: tuple[int, ...]
    observations: tuple[Observation, ...] = ()
    curves: CurveUpdate | None = None  # None if there are none, or the strategy learns none
    dictionary_size: int
    record: Mapping[str, Any]
    seconds: float
    wants_growth: bool = False  # whether new candidates are to be appended now
    recommended: Recommendation | None = None  # None if the strategy recommends the best value
    # forecasts of the running trials, and of the best trials that can be continued
    forecasts: tuple[Forecast, ...] = ()
    kind: Literal["model_refreshed"] = "model_refreshed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatesGrown:
    """New candidates were appended after the existing ones, and some that were never evaluated were
    retired."""

    time: float
    round: int
    first: int  # the arm of the first new candidate
    # the values of each parameter, None if it is inactive; empty if every drawn configuration is
    # already a candidate
    columns: Mapping[str, tuple[str | int | float | bool | None, ...]]
    retired: tuple[int, ...]
    seconds: float
    kind: Literal["candidates_grown"] = "candidates_grown"

    @property
    def size(self) -> int:
        """The number of appended candidates."""
        return max(map(len, self.columns.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """No further dispatch in this session."""

    time: float
    reason: StopReason
    kind: Literal["stop_requested"] = "stop_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The session recorded its end. `reason` is for display."""

    time: float
    outcome: SessionOutcome
    reason: str
    # the idle time of all workers, by cause, in all sessions so far
    idle_seconds: Mapping[str, float] = field(default_factory=dict)
    kind: Literal["session_closed"] = "session_closed"


AttemptEnded = Outcome  # the events at the end of an attempt
Event = (
    CampaignCreated
    | ExistingTaken
    | SessionOpened
    | PlacesChanged
    | ComputingBegan
    | BatchChosen
    | TrialsDispatched
    | TrialSucceeded
    | TrialFailed
    | TrialStopped
    | TrialsReopened
    | TrialsContinued
    | CheckpointsRemoved
    | TrialsWithdrawn
    | ReportsArrived
    | ModelRefreshed
    | CandidatesGrown
    | StopRequested
    | SessionClosed
)


_CLASSES: dict[str, type[Event]] = {str(cls.__dataclass_fields__["kind"].default): cls for cls in get_args(Event)}


# Adapters are built on first use: each takes tens of milliseconds, and most commands need few. An optimizer needs none.
@cache
def _adapter_of(kind: str) -> "TypeAdapter[Event]":
    from pydantic import TypeAdapter

    return TypeAdapter(_CLASSES[kind])


@cache
def _adapter() -> "TypeAdapter[Event]":
    from pydantic import ConfigDict, Field, TypeAdapter

    return TypeAdapter(Annotated[Event, Field(discriminator="kind")], config=ConfigDict(ser_json_inf_nan="constants"))


def body_of(event: Event) -> str:
    """Return the event as one line of JSON without its kind and without the fields at their
    defaults. Those defaults must therefore never change. NaN and infinities are Python's constants:
    as strings they would be read as strings where the type is open, as in a strategy's options."""
    return _adapter().dump_json(event, exclude_defaults=True).decode()


def event_of(kind: str, body: str | bytes) -> Event:
    """Return the event that `body_of` wrote as `body`. Raises ValueError for any other text."""
    if kind not in _CLASSES:
        raise ValueError(f"{kind!r} is not a kind of event")
    return _adapter_of(kind).validate_json(body)
