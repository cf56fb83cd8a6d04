"""The status of a campaign as one value, for the terminal, `bbkb status` and the coordinator."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bbkb.orchestrator.campaign.attempts import EndedAttempt
from bbkb.orchestrator.campaign.clock import plus
from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.failures import Causes
from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.campaign.health import warnings
from bbkb.orchestrator.campaign.state import CampaignState, idle_cause
from bbkb.orchestrator.campaign.trainings.forecasts import Forecast

_RUNNING_SHOWN = 8


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that a worker is evaluating."""

    trial: int
    attempt: int
    seconds: float  # time since its dispatch
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalsStatus:
    """The state of several objectives, or of constraints."""

    objectives: tuple[str, ...]  # such as "accuracy maximized"
    constraints: tuple[str, ...]  # such as "memory_gb at most 4"
    front: int  # the number of results on the front
    # measured from `reference`; None with one objective, or if no result is feasible
    hypervolume: float | None
    # a value for each objective, on the user's scale; empty if no result is feasible
    reference: tuple[float, ...]
    feasible: float | None  # the share that satisfies every constraint; None before any result


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsStatus:
    """The number of trials in each state, and the trials that are running or ended recently."""

    chosen: int
    succeeded: int
    failed: int
    stopped: int
    paused: int  # stopped trials that may be continued; 0 once the session is closed
    # at most `slots`; 0 once the session is closed, because a resume repeats running evaluations
    in_flight: int
    waiting: int  # in the campaign's backlog or in the executor's queue
    running: tuple[RunningTrial, ...]  # the longest-running ones, at most 8
    recent: tuple[EndedAttempt, ...]  # attempts that ended recently, the newest last
    existing: int  # results known before the campaign, which no other number includes
    existing_unmatched: int  # results that match no candidate
    failures: Causes  # failed attempts by cause

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return self.succeeded + self.failed + self.stopped

    @property
    def outcomes(self) -> str:
        """The outcomes of the trials, for display."""
        paused = f" ({self.paused:,} may continue)" if self.paused else ""
        stopped = f"{self.stopped:,} stopped early{paused}, " if self.stopped else ""
        return f"{self.succeeded:,} succeeded, {stopped}{self.failed:,} failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestStatus:
    """The best value on the user's scale; before it, only the first two fields are not empty."""

    metric: str  # of the value: the metric of the first objective
    direction: str  # "maximized" or "minimized"
    value: float | None = None
    trial: int | None = None
    arm: int | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    # the metrics of the other objectives and of constraints
    metrics: Mapping[str, float] = field(default_factory=dict)
    origin: str = ""  # "trial 12", or "known results: earlier.csv"; then `trial` is None
    recommended: Recommendation | None = None  # set if the best value may be due to noise

    @property
    def named(self) -> str:
        """The best value, after its metric's name if it has one; empty before the first result."""
        name = "" if self.metric == VALUE else f"{self.metric} "
        return "" if self.value is None else f"{name}{self.value:.6g}"

    @property
    def text(self) -> str:
        """`named` with the direction and the metrics; empty before the first result."""
        metrics = (f", {name} {number:.6g}" for name, number in self.metrics.items())
        return self.named and f"{self.named}, {self.direction}{''.join(metrics)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """The budget, and the spent part of it. Durations are in seconds."""

    evaluations: int
    step_budget: int | None
    steps: int  # the steps that trials have reported; 0 if the budget does not count steps
    elapsed_seconds: float  # the total duration of the sessions
    left_seconds: float | None  # an estimate; None before the first result

    @property
    def is_counted(self) -> bool:
        """Whether the budget is a number of trials, not only a number of steps."""
        return self.step_budget is None or self.evaluations < self.step_budget


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersStatus:
    """The workers of the newest session, and the use of their time in all sessions, in seconds."""

    slots: int
    epoch: int
    set_aside: tuple[int, ...]  # arms that were quarantined because they killed too many workers
    utilization: float  # the share of the workers' time that was spent evaluating, in [0, 1]
    idle_seconds: Mapping[str, float]  # the total over all workers, by cause
    # a lower bound on the makespan: the duration of these evaluations if no worker were ever idle
    least_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """The progress of the strategy, and the state of its model."""

    is_asynchronous: bool
    refreshes: int
    batch: int
    batch_size: int
    dictionary_size: int
    # the share of results within two deviations of the model's predictions; None if unknown
    calibration: float | None
    # the largest possible gain according to the model's upper bound, on the value's scale
    possible_gain: float | None
    last_gain: int | None  # the number of results since the best value improved
    # steps, each with the correlation between the value there and the final value
    steps_reliability: tuple[tuple[int, float], ...]
    # the forecasts of running trials, and of stopped trials that can be continued
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A snapshot of a campaign. Times are in seconds on the executor's clock."""

    name: str
    # created, running, stopping, closed; or ended: its process died without closing the session
    phase: str
    activity: str  # the driver's activity: "evaluating", "choosing a batch", "refitting the model"…
    outcome: str  # the outcome of the last closed session: finished, failed, interrupted
    reason: str
    # remarks on omitted metrics, on the model, and on workers that do not evaluate
    remarks: tuple[str, ...]
    last_time: float  # the time of the last event
    trials: TrialsStatus
    best: BestStatus
    budget: BudgetStatus
    workers: WorkersStatus
    model: ModelStatus
    goals: GoalsStatus | None  # None with one objective and no constraint

    @property
    def spent(self) -> tuple[int, int, str]:
        """The spent part, the total and the unit of the budget that is closest to its end."""
        budget = self.budget
        counts = [(self.trials.done, max(1, budget.evaluations), "evaluations")]
        if budget.step_budget is not None:
            counts.insert(0, (budget.steps, budget.step_budget, "steps"))
        return max(counts, key=lambda count: count[0] / count[1])

    @property
    def trials_text(self) -> str:
        """The number of ended trials, and the budget of trials if it ends the campaign."""
        done = self.trials.done
        return f"{done}/{self.budget.evaluations}" if self.budget.is_counted else str(done)


def status_of(
    name: str,
    state: CampaignState,
    now: float | None = None,
    activity: str = "",
) -> Status:
    """Summarize `state`. `now` adds the time since the last event, and running evaluations."""
    session = state.session
    since = max(0.0, now - state.clock.last_time) if now is not None and session.is_open else 0.0
    return Status(
        name=name,
        phase=session.phase,
        activity=activity,
        outcome=session.outcome or "",
        reason=session.close_reason or session.stop_reason or "",
        remarks=_remarks(state, since if session.is_open else None),
        last_time=state.clock.last_time,
        trials=_trials_status(state, since),
        best=_best_status(state),
        budget=_budget_status(state, since),
        workers=_workers_status(state, since),
        model=_model_status(state),
        goals=_goals_status(state),
    )


def without_process(status: Status, activity: str) -> Status:
    """Return the status of an open session whose process has died.

    Nothing is running, and a resume repeats the interrupted evaluations. `activity` is for display.
    """
    trials = status.trials
    return replace(
        status,
        phase="ended",
        activity=activity,
        trials=replace(trials, in_flight=0, running=(), waiting=trials.waiting + trials.in_flight),
        budget=replace(status.budget, left_seconds=None),
    )


def _trials_status(state: CampaignState, since: float) -> TrialsStatus:
    totals = state.totals
    is_open = state.session.is_open
    in_flight = min(len(state.running), state.session.slots) if is_open else 0
    return TrialsStatus(
        chosen=totals.chosen,
        succeeded=totals.succeeded,
        failed=totals.failed,
        stopped=totals.stopped,
        paused=len(state.trainings.paused) if is_open else 0,
        in_flight=in_flight,
        waiting=len(state.backlog) + len(state.running) - in_flight,
        running=_longest_running(state, state.clock.last_time + since) if is_open else (),
        recent=state.notes.recent,
        existing=state.results.existing.count,
        existing_unmatched=state.results.existing.unmatched,
        failures=state.notes.failures,
    )


def _best_status(state: CampaignState) -> BestStatus:
    best = state.best_known
    objective = state.settings.goals.objectives[0]
    status = BestStatus(
        metric=objective.metric,
        direction=f"{objective.direction}d",
        recommended=state.refresh.recommended,
    )
    if best is None:
        return status
    return replace(
        status,
        value=best.value,
        trial=best.trial,
        arm=best.arm,
        parameters=best.parameters,
        metrics=best.metrics,
        origin=best.origin,
    )


def _budget_status(state: CampaignState, since: float) -> BudgetStatus:
    elapsed = state.clock.elapsed_seconds + since
    return BudgetStatus(
        evaluations=state.settings.budget.evaluations,
        step_budget=state.settings.budget.steps,
        steps=state.trainings.steps.total,
        elapsed_seconds=elapsed,
        left_seconds=_seconds_left(state, elapsed),
    )


def _workers_status(state: CampaignState, since: float) -> WorkersStatus:
    capacity, busy = _work_seconds(state, since)
    return WorkersStatus(
        slots=state.session.slots,
        epoch=state.session.epoch,
        set_aside=state.failures.quarantined,
        utilization=min(1.0, busy / capacity) if capacity > 0 else 0.0,
        idle_seconds=idle_seconds(state, since),
        least_seconds=_least_seconds(state),
    )


def _model_status(state: CampaignState) -> ModelStatus:
    refresh = state.refresh
    gains = state.results.gains
    best = state.best_known
    risen_at = 0 if best is not None and best.trial is None else gains.risen_at
    since = max(0, state.totals.succeeded - risen_at)
    return ModelStatus(
        is_asynchronous=state.settings.is_asynchronous,
        refreshes=refresh.round,
        batch=state.batch.number,
        batch_size=state.batch.size,
        dictionary_size=refresh.dictionary_size,
        calibration=None if refresh.learned is None else refresh.learned.share,
        possible_gain=gains.possible,
        last_gain=None if gains.best is None else since,
        steps_reliability=state.steps_reliability,
        forecasts=tuple(state.trainings.forecasts.values()),
    )


def _remarks(state: CampaignState, since: float | None) -> tuple[str, ...]:
    on_model = () if state.refresh.learned is None else state.refresh.learned.remarks
    return (*state.notes.remarks, *on_model, *warnings(state, since).values())


def _goals_status(state: CampaignState) -> GoalsStatus | None:
    goals = state.settings.goals
    front = state.results.front
    if goals.is_single:
        return None
    pairs = zip(goals.objectives, front.reference(goals), strict=False)
    return GoalsStatus(
        objectives=tuple(map(str, goals.objectives)),
        constraints=tuple(map(str, goals.constraints)),
        front=len(front.members),
        hypervolume=front.hypervolume(goals) if len(goals.objectives) > 1 else None,
        reference=tuple(objective.value(reward) for objective, reward in pairs),
        feasible=front.feasible / front.results if front.results else None,
    )


def _longest_running(state: CampaignState, now: float) -> tuple[RunningTrial, ...]:
    shown = min(_RUNNING_SHOWN, state.session.slots)  # the newest wait in the executor
    longest = heapq.nsmallest(shown, state.running.items(), key=lambda item: (item[1].since, item[0]))
    return tuple(
        RunningTrial(trial, run.trial.attempt, max(0.0, now - run.since), run.trial.parameters)
        for trial, run in longest
    )


def _work_seconds(state: CampaignState, since: float) -> tuple[float, float]:
    """Return all worker-seconds and those spent evaluating, `since` seconds after an event."""
    now = state.clock.last_time + since
    running = state.running.values() if state.session.is_open else ()
    under_way = sum(max(0.0, now - run.since) for run in running)
    return state.clock.capacity_seconds + since * state.session.slots, state.clock.busy_seconds + under_way


def idle_seconds(state: CampaignState, since: float = 0.0) -> dict[str, float]:
    """Return idle worker-seconds by cause, `since` seconds after an event; not negligible ones."""
    capacity, busy = _work_seconds(state, since)
    idle = plus(state.clock.idle, idle_cause(state), since * state.free)
    explained = {**idle, **state.clock.transit}
    causes = {**explained, "other": capacity - busy - sum(explained.values())}
    return {cause: seconds for cause, seconds in causes.items() if seconds > 0.001 * capacity}


def _least_seconds(state: CampaignState) -> float:
    """Return the shortest possible duration of the completed evaluations: their sum divided among
    all workers, or the longest one."""
    clock = state.clock
    if clock.capacity_seconds <= 0.0:
        return 0.0
    spread = clock.busy_seconds / clock.capacity_seconds * clock.elapsed_seconds
    return max(spread, min(state.durations.longest_evaluation, clock.elapsed_seconds))


def _seconds_left(state: CampaignState, elapsed: float) -> float | None:
    """Return the time that the remaining budget takes at the pace so far, at most the remaining
    hours; None before the first result."""
    budget = state.settings.budget
    done = state.totals.ended
    steps = state.trainings.steps.total
    if not done or not state.session.is_open:
        return None
    share = max(0, budget.evaluations - done) / done
    if budget.steps is not None and steps:
        share = min(share, max(0, budget.steps - steps) / steps)
    left = elapsed * share
    return left if budget.seconds is None else max(0.0, min(left, budget.seconds - elapsed))
