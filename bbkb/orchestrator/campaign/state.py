"""The state of a campaign as a frozen value, with the quantities derived from it.

The state contains open trials (queued, running, finished but not learned) and totals, but no entry
for a learned trial. So its size and the cost of a step do not grow with the number of evaluations.
`transitions.apply` folds events into it. All times are on the executor's clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite  # bound here: an objective that runs in this process may replace it in `math`
from typing import Any, Literal, NamedTuple

from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.campaign.draft import Queue, Section, section
from bbkb.orchestrator.campaign.events import Computed, ExistingTaken, Phase, Recommendation, SessionOutcome, StopReason
from bbkb.orchestrator.campaign.failures import AttemptFailures, Causes, allows_retry
from bbkb.orchestrator.campaign.results import Front, Gains
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.orchestrator.campaign.trainings import (
    ENOUGH,
    EndOfBudget,
    Hopes,
    Remaining,
    StoppingRule,
    Trainings,
    end_of_budget,
)
from bbkb.workers.messages import FailureKind, Outcome, Trial, TrialFailed, TrialStopped

Cause = Literal["start_up", "drift_budget", "batch_end", "refit", "campaign_end", "dispatch"]

LABELS = {
    "start_up": "start-up",  # until the first evaluation of a session was dispatched
    "drift_budget": "the strategy waits for results",  # it allows no further pull before
    "batch_end": "end of a batch",  # waiting for the other trials of a batch, in batch mode
    "refit": "waiting for the strategy",  # it was computing, and the backlog was empty
    "campaign_end": "end of campaign",  # nothing was left to dispatch
    "dispatch": "dispatch",  # the driver was busy with other work
    "worker_start": "starting workers",  # the trial waited for its worker process to start
    "sending": "sending trials",  # the trial was on its way to a worker
    "recording": "recording and deciding",  # the driver recorded the outcome, or decided
    "other": "other",
}
# a trial that waits longer than this is assumed to wait for a worker process to start
_PROCESS_START_SECONDS = 0.5


def plus(known: Mapping[str, float], cause: str, seconds: float) -> Mapping[str, float]:
    """Add seconds. They do not count if they are below 0, as between two machines' clocks."""
    seconds = max(0.0, seconds)
    return {**known, cause: known.get(cause, 0.0) + seconds} if seconds else known


@section
class Clock(Section):
    """The time in sessions, without the pauses between them, and its use by the workers."""

    created: float = 0.0  # the time of the first event
    last_time: float = 0.0  # the time of the last event
    opened: float = 0.0  # when the newest session opened
    elapsed_seconds: float = 0.0
    capacity_seconds: float = 0.0  # the sum over time of the number of workers; at least busy + idle
    busy_seconds: float = 0.0  # the total time of attempts that have ended, whatever their outcome
    # of the strategy since the last outcome, while a dispatched trial waited; None unless the
    # driver's thread evaluates, because evaluations otherwise continue during computations
    computing_seconds: float | None = None
    # worker-seconds by cause (`LABELS`): without an attempt, and of attempts outside an evaluation
    idle: Mapping[str, float] = field(default_factory=dict)
    transit: Mapping[str, float] = field(default_factory=dict)

    def since(self, now: float) -> float:
        """Return the seconds since the last event."""
        return max(0.0, now - self.last_time)

    def end_attempt(self, waited_from: float, started: float, finished: float) -> None:
        """Add an attempt whose outcome has just been recorded.

        `waited_from`: when the attempt was dispatched, or its worker became free if that was later.
        """
        if finished <= started:
            return
        before = started - max(waited_from, self.opened)
        computing = max(0.0, min(before, self.computing_seconds or 0.0))
        waited = before - computing
        cause = "worker_start" if waited > _PROCESS_START_SECONDS else "sending"
        if self.computing_seconds is not None:  # the driver's thread evaluates
            cause = "recording"
            self.computing_seconds = 0.0
        self.busy_seconds = self.busy_seconds + finished - started
        self.idle = plus(self.idle, "refit", computing)
        transit = plus(self.transit, cause, waited)
        self.transit = plus(transit, "recording", self.last_time - max(finished, self.opened))

    def advance(self, time: float, slots: int, free: int, cause: Cause, is_computing: bool) -> None:
        """Go on to `time`.

        Until then, `cause` kept `free` of the `slots` idle. `is_computing`: the strategy was
        computing.
        """
        seconds = time - self.last_time
        if self.computing_seconds is not None and is_computing and not free:
            self.computing_seconds += seconds
        self.last_time = time
        self.elapsed_seconds += seconds
        self.capacity_seconds += seconds * slots
        self.idle = plus(self.idle, cause, seconds * free)


@section
class Durations(Section):
    """Durations of evaluations in seconds."""

    evaluation_sum: float = 0.0  # the total over the attempts that succeeded
    longest_evaluation: float = 0.0  # the maximum over the attempts that succeeded

    def succeed(self, seconds: float) -> None:
        """Add a successful evaluation."""
        self.evaluation_sum += seconds
        self.longest_evaluation = max(self.longest_evaluation, seconds)


@dataclass(frozen=True, slots=True)
class Mark:
    """Cumulative worker-seconds at one time."""

    time: float
    capacity: float
    missing: float  # those explained neither by an evaluation nor by a known cause of idle time


_MESSAGE_LENGTH = 400


class Run(NamedTuple):
    """A trial whose attempt is running."""

    trial: Trial
    since: float  # the time of its dispatch


class FinishedTrial(NamedTuple):
    """A trial that has ended and that the strategy has not learned from yet."""

    trial: int
    observation: Observation


@dataclass(frozen=True, slots=True)
class Best:
    """The best value so far, on the user's scale; `trial` is None if it is existing data."""

    trial: int | None
    arm: int
    value: float
    parameters: Mapping[str, object] = field(default_factory=dict)
    source: str = ""
    # the metrics of further objectives and of constraints
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The source of the value, for display."""
        return f"known results: {self.source}" if self.trial is None else f"trial {self.trial}"


class EndedAttempt(NamedTuple):
    """An attempt that ended recently, with its value or its failure. The `value` of a trial that
    was stopped early is the last reported one."""

    trial: int
    attempt: int
    time: float  # the time at which its outcome was recorded
    seconds: float  # its duration
    parameters: Mapping[str, object]
    value: float | None = None
    failure: str = ""  # its kind; empty for a success
    message: str = ""  # at most `_MESSAGE_LENGTH` characters
    stopped_at: int | None = None  # the step at which the campaign stopped it
    stop_cause: str = ""  # the reason; empty if it was not recorded
    is_final: bool = True  # False if the trial will be retried


def ended_attempt(event: Outcome, parameters: Mapping[str, object]) -> EndedAttempt:
    """Return the ended attempt whose outcome is `event`, for a trial with these parameters."""
    seconds = max(0.0, event.finished - event.started)
    common = (event.trial, event.attempt, event.time, seconds, parameters)
    if isinstance(event, TrialFailed):
        message = event.message[:_MESSAGE_LENGTH]
        return EndedAttempt(*common, None, event.failure.value, message, is_final=event.is_final)
    if isinstance(event, TrialStopped):
        return EndedAttempt(*common, event.value, stopped_at=event.step, stop_cause=event.cause)
    return EndedAttempt(*common, event.value)


def place_between(started: float, finished: float, dispatched: float, arrived: float) -> tuple[float, float]:
    """Move an evaluation between its dispatch and the arrival of its outcome, keeping its duration.
    The worker that stamped it may be on a node whose clock is wrong or was stepped, and an
    objective may have replaced its clock."""
    if dispatched <= started <= finished <= arrived:
        return started, finished
    if not isfinite(finished - started):
        return dispatched, max(dispatched, arrived)
    finished, seconds = min(finished, arrived), max(0.0, finished - started)
    if finished - seconds < dispatched:
        finished = min(dispatched + seconds, max(arrived, dispatched))
    return max(finished - seconds, dispatched), max(finished, dispatched)


LEAST_PREDICTED = 20  # the number of predicted results from which on their share inside is used
# the same for the remark: one refresh may predict ten results, which then miss for the same reason
LEAST_REMARKED = 40
# a model is overconfident if its share of results inside μ ± 2σ is two standard errors below this
LEAST_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """Facts about the model of the newest refit, from the campaign's log."""

    inside: int  # the number of results within μ ± 2σ of the model before it had learned them
    predicted: int  # the number of results that were predicted before the model had learned them
    # the number of repeated evaluations if they have shown that values are deterministic, else 0
    equal_repeats: int = 0
    # steps of a training, each with the estimated correlation between the value there and the final
    # value; empty without learning curves
    steps: tuple[tuple[int, float], ...] = ()
    cautious_steps: tuple[tuple[int, float], ...] = ()  # the same, less one standard error

    @staticmethod
    def of(record: Mapping[str, Any]) -> "LearnedModel | None":
        """Return the facts about the fitted model in `record`; None if no model was fitted."""
        model = record.get("model")
        if not isinstance(model, Mapping) or "predicted" not in model:
            return None
        return LearnedModel(
            inside=int(model["inside"]),
            predicted=int(model["predicted"]),
            equal_repeats=int(model.get("equal_repeats", 0)),
            steps=tuple((int(step), float(value)) for step, value in record.get("reliability", ())),
            cautious_steps=tuple((int(step), float(value)) for step, value in record.get("cautious_reliability", ())),
        )

    @property
    def share(self) -> float | None:
        """The share of the predicted results inside μ ± 2σ; None if there are too few."""
        return self.inside / self.predicted if self.predicted >= LEAST_PREDICTED else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the status and the report."""
        share = self.share or 0.0
        error = math.sqrt(share * (1.0 - share) / max(1, self.predicted))
        if self.predicted < LEAST_REMARKED or share + 2.0 * error >= LEAST_SHARE:
            return ()
        return (
            f"the model is overconfident: {share:.0%} of {self.predicted} results were within two "
            "standard deviations of its prediction instead of about 95%, because similar "
            "configurations differ more than it expects. All results are valid, but the search may have "
            "explored too little: compare the best value with that of a run with another seed",
        )


ACTIVITIES: dict[Computed, str] = {
    "choosing": "choosing a batch",
    "refreshing": "refitting the model",
    "growing": "appending candidates",
}


@section
class Totals(Section):
    """The number of trials by outcome, in all sessions. `chosen` includes open trials."""

    chosen: int = 0  # also the index of the next trial
    succeeded: int = 0
    failed: int = 0  # after their last attempt; a trial that is reopened no longer counts
    stopped: int = 0  # neither succeeded nor failed; without trials that were continued

    @property
    def ended(self) -> int:
        """Trials that have ended."""
        return self.succeeded + self.failed + self.stopped


@section
class Session(Section):
    """The newest session. Its counts begin at 0."""

    epoch: int = 0  # from 1; 0 before the first session
    slots: int = 0  # the capacity in workers
    dispatched: int = 0  # attempts, including adopted ones
    succeeded: int = 0  # trials that succeeded or were stopped early
    failed: int = 0  # trials whose last attempt failed
    first_failure: str = ""  # kind and message; empty exactly while `failed` is 0
    last_outcome: float | None = None  # when the newest outcome arrived
    without_outcome: int = 0  # the number of sessions in a row before this one in which no attempt has ended
    # attempts that ended while the strategy computed: since its newest choice, and the recent maximum before
    ended_meanwhile: int = 0
    burst: float = 0.0
    marks: tuple[Mark, ...] = ()  # the marks of the last minutes, the newest last
    stop_reason: StopReason | None = None  # None while the session dispatches
    outcome: SessionOutcome | None = None  # None if open, or if its end was not recorded
    close_reason: str = ""  # for display; empty while `outcome` is None

    @property
    def phase(self) -> Phase:
        """The phase of the campaign."""
        if self.outcome is not None:
            return Phase.CLOSED
        if self.stop_reason is not None:
            return Phase.STOPPING
        return Phase.RUNNING if self.epoch else Phase.CREATED

    @property
    def is_open(self) -> bool:
        """Whether the session has begun and not recorded its end."""
        return self.epoch > 0 and self.outcome is None


@section
class Batch(Section):
    """The strategy's newest batch.

    At most one of `is_open` and `stalled` is set. If neither is, the batch is complete.
    """

    number: int = 0  # the number of batches so far, without empty choices
    size: int = 0  # the number of trials in the newest non-empty batch
    is_open: bool = False  # the choice filled its limit, so the batch may have more picks
    stalled: str = ""  # the reason that the strategy chooses nothing until it learns a result


@section
class Refresh(Section):
    """The strategy's newest refresh. The defaults mean that there was none."""

    round: int = 0  # the number of refreshes so far
    time: float = 0.0
    dictionary_size: int = 0
    learned: LearnedModel | None = None  # the fitted model, read from the log
    recommended: Recommendation | None = None  # if values are noisy
    wants_growth: bool = False  # candidates are to be appended before the next choice


@dataclass(frozen=True)
class Existing:
    """Results that were known before the campaign; all fields are empty if there are none."""

    not_learned: ExistingTaken | None = None  # the results, until the first refresh learns them
    count: int = 0
    outside: int = 0  # the number of those that are outside the space
    unmatched: int = 0  # the number of results that match no candidate
    best: Best | None = None


@section
class Results(Section):
    """The best values, of trials and of results known before the campaign."""

    # the best result of a trial that satisfies all constraints
    best: Best | None = None
    front: Front = field(default_factory=Front)  # empty with one objective and no constraint
    gains: Gains = field(default_factory=Gains)  # used with one objective and no constraint
    existing: Existing = field(default_factory=Existing)


@section
class Failures(Section):
    """Failures that affect further attempts."""

    # open trial → its failed attempts
    by_trial: Mapping[int, AttemptFailures] = field(default_factory=dict)
    # queued trial → the earliest time of its next attempt, on the executor's clock
    paused: Mapping[int, float] = field(default_factory=dict)
    # arm → number of workers that its attempts have lost in a row
    workers_lost: Mapping[int, int] = field(default_factory=dict)
    quarantined: tuple[int, ...] = ()  # arms that have killed too many workers


@section
class Notes(Section):
    """Facts for display, which affect no decision."""

    recent: tuple[EndedAttempt, ...] = ()  # the newest last
    # remarks on omitted metrics and on the strategy, without repetitions
    remarks: tuple[str, ...] = ()
    failures: Causes = ()  # all failed attempts, by cause


@dataclass(frozen=True)
class CampaignState:
    """The state of a campaign. Equal logs result in equal states."""

    settings: Settings = field(default_factory=lambda: Settings(name="", budget=Budget(evaluations=0)))
    totals: Totals = field(default_factory=Totals)
    session: Session = field(default_factory=Session)
    clock: Clock = field(default_factory=Clock)
    durations: Durations = field(default_factory=Durations)
    batch: Batch = field(default_factory=Batch)
    refresh: Refresh = field(default_factory=Refresh)
    computation: Computed | None = None  # what the strategy is computing
    # Each open trial is in exactly one of `backlog` and `running`.
    # in the order of dispatch
    backlog: Sequence[Trial] = field(default_factory=Queue)
    running: Mapping[int, Run] = field(default_factory=dict)  # by trial
    finished: Sequence[FinishedTrial] = field(default_factory=Queue)  # ended, and not learned yet
    failures: Failures = field(default_factory=Failures)
    # the trainings in steps
    trainings: Trainings = field(default_factory=Trainings)
    results: Results = field(default_factory=Results)
    notes: Notes = field(default_factory=Notes)

    @property
    def remaining(self) -> int:
        """Trials that may still be chosen."""
        return max(0, self.settings.budget.evaluations - self.totals.chosen)

    @property
    def missing_best(self) -> str:
        """The reason that there is no best result."""
        if infeasible := self.results.front.results:
            return f"none of {infeasible} results satisfies all constraints"
        first, _, _traceback = self.session.first_failure.partition("\n")
        cause = f"; the first one of the newest session failed with {first}" if first else ""
        return f"no evaluation has succeeded{cause}"

    @property
    def best_known(self) -> Best | None:
        """The best value, existing results included; of equal values, that of a trial."""
        best = self.results.best
        existing = self.results.existing.best
        if best is None or existing is None:
            return best or existing
        return max(best, existing, key=lambda known: self.settings.goals.reward(known.value))

    @property
    def unspent(self) -> int:
        """Trials that may still be dispatched; fewer than chosen if a resume lowered the budget."""
        return max(0, self.settings.budget.evaluations - self.totals.ended - len(self.running))

    @property
    def free(self) -> int:
        """The number of idle workers."""
        return max(0, self.session.slots - len(self.running))

    @property
    def training_end(self) -> int | None:
        """The step at which a training ends: given, else the largest so far; None at first."""
        return self.trainings.end(self.settings.last_step)

    @property
    def stopping(self) -> StoppingRule | None:
        """The rule that stops or pauses trials by intermediate values; None if there is none. Pauses
        depend on the end of a training as soon as it is known."""
        return self.settings.stopping(self.training_end)

    @property
    def hopes(self) -> Hopes:
        """The best result, which an unfinished trial has to improve."""
        best, goals = self.results.best, self.settings.goals
        return Hopes(goals, None if best is None else goals.reward(best.value))

    @cached_property
    def end_of_budget(self) -> EndOfBudget:
        """The trials that the remaining budget is reserved for."""
        rule = self.settings.training
        if rule is None or not (rule.finish and rule.continues and self.settings.budget.is_limited):
            return ENOUGH
        seconds = self.settings.budget.seconds
        seconds_left = math.inf if seconds is None else seconds - self.clock.elapsed_seconds
        remaining = Remaining(
            trainings=self.trainings,
            rule=rule,
            end=self.training_end or 0,
            running=self.running,
            steps=self.settings.budget.steps,
            seconds_left=seconds_left,
            hopes=self.hopes,
            has_finished=self.totals.succeeded > 0,
        )
        return end_of_budget(remaining, (trial.id for trial in self.backlog))

    @property
    def steps_reliability(self) -> tuple[tuple[int, float], ...]:
        """Steps before the last one, each with the estimated correlation between the value there
        and the final value."""
        steps = () if self.refresh.learned is None else self.refresh.learned.steps
        end = self.training_end
        return tuple((step, correlation) for step, correlation in steps if end is None or step < end)

    @property
    def pending(self) -> tuple[int, ...]:
        """Arms of trials that the strategy has not learned from, in the order of choice."""
        arms = {trial: run.trial.arm for trial, run in self.running.items()}
        arms |= {trial.id: trial.arm for trial in self.backlog}
        arms |= {ended.trial: ended.observation.arm for ended in self.finished}
        return tuple(map(arms.__getitem__, sorted(arms)))

    @property
    def saves_checkpoints(self) -> bool:
        """Whether a checkpoint is saved at each pause, from which new trials may start."""
        return self.settings.training is not None and self.settings.training.saves_checkpoints

    @property
    def first_needed(self) -> Mapping[int, float]:
        """The step of the first saved checkpoint of each trial that can still be needed: its newest
        one, or one from which an open trial starts; infinite if the trial will not be continued."""
        needed: dict[int, float] = {trial: step for trial, (step, _) in self.trainings.saved.items()}
        needed |= dict.fromkeys(needed.keys() & self.trainings.removed, math.inf)
        for trial in (*self.backlog, *(run.trial for run in self.running.values())):
            if trial.starts_from is not None:
                origin, step = trial.starts_from
                needed[origin] = min(needed[origin], step)
        return needed

    @property
    def existing_observations(self) -> tuple[Observation, ...]:
        """Results known before the campaign and not yet learned, as rewards to maximize."""
        existing = self.results.existing.not_learned
        if existing is None:
            return ()
        pairs = zip(existing.arms, existing.values, strict=True)
        return tuple(Observation(arm, self.settings.goals.reward(value), is_existing=True) for arm, value in pairs)


def idle_cause(state: CampaignState) -> Cause:
    """Return the reason that the currently idle workers have no work."""
    if state.session.phase is Phase.STOPPING or (not state.remaining and not state.backlog):
        return "refit" if state.computation and not state.running else "campaign_end"
    if not state.session.dispatched:
        return "start_up"
    if state.backlog:
        return "dispatch"
    if state.computation:
        return "refit"
    if not state.settings.is_asynchronous:
        return "batch_end"
    return "drift_budget" if state.batch.stalled else "dispatch"


def is_running(state: CampaignState, trial: int, attempt: int) -> bool:
    """Return whether this attempt is running. An outcome of any other attempt is late or repeated."""
    run = state.running.get(trial)
    return run is not None and run.trial.attempt == attempt


def ends_trial(state: CampaignState, failed: TrialFailed) -> bool:
    """Return whether this failure ends its trial: the rules allow no further attempt."""
    counts = state.failures.by_trial.get(failed.trial, AttemptFailures()).after(failed.failure)
    arm = state.running[failed.trial].trial.arm
    lost = state.failures.workers_lost.get(arm, 0) + (failed.failure is FailureKind.WORKER_LOST)
    return not allows_retry(state.settings.workers, failed.failure, counts, lost, state.failures.quarantined)
