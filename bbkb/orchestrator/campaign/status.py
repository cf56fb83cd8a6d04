"""The status of a campaign as one value, for the terminal, `bbkb status` and the coordinator, and warnings:
a worker that was not replaced, an evaluation that does not end, or trainings that early stopping cannot
judge.

Warnings influence no decision. The state keeps one mark of the workers' time per minute. Warnings
compare the last ten minutes with all earlier time.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bbkb.orchestrator.campaign.clock import Clock, Mark, plus
from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.failures import Causes
from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.campaign.state import CampaignState, EndedAttempt, Run, Session, idle_cause
from bbkb.orchestrator.campaign.trainings import Forecast
from bbkb.orchestrator.wording import duration, plural

_MARK_SECONDS = 60.0
_WINDOW_MARKS = 11  # ten minutes
_ADDED_LOSS = 0.15  # added share of the workers' time that is lost between dispatch and start
_LEAST_OLD_SECONDS = 600.0
_OLD_FACTOR = 5.0  # multiple of the longest evaluation so far
# seconds beyond the time-out, for starting a worker and for ending one that hangs
_START_SECONDS = 60.0
_TIMEOUT_FACTOR = 1.5
_LEAST_FINISHED = 3  # with fewer finished trials there are no warnings about their reports
_SHORT_SECONDS = 0.2  # shorter trainings may end before a response arrives on Ray
_LEAST_SHORT = 20  # trainings, for a warning about that
_MOST_SHOWN = 5  # trials in one warning


def marks_after(clock: Clock, session: Session, running: Mapping[int, Run]) -> tuple[Mark, ...]:
    """Return the session's marks, with a new one after each minute and without the oldest."""
    marks = session.marks
    if marks and clock.last_time - marks[-1].time < _MARK_SECONDS:
        return marks
    return (*marks[1 - _WINDOW_MARKS :], _mark(clock, session, running, 0.0))


def warnings(state: CampaignState, since: float | None) -> dict[str, str]:
    """Return the warnings about workers and trainings by kind, `since` seconds after an event; only
    those about trainings if it is None, because no session is open."""
    by_kind: dict[str, str] = {}
    if since is not None:
        by_kind["places"] = _few_places(state)
        by_kind["late"] = _late(state, since)
        by_kind["old"] = _not_ended(state, since)
    if state.settings.stopping is not None:
        by_kind["silent"] = _no_reports(state)
        by_kind["last step"] = _other_last_step(state)
        by_kind["unlike"] = _unlike_ends(state)
        by_kind["restarted"] = _restarts(state)
        by_kind["unreported"] = _unreported_metric(state)
        by_kind["short"] = _too_short(state)
    return {kind: text for kind, text in by_kind.items() if text}


def _few_places(state: CampaignState) -> str:
    requested = state.settings.workers.requested
    if requested is None or state.session.slots >= requested:
        return ""
    return (
        f"there are slots for {state.session.slots} of the {plural(requested, 'worker')} that workers.count asks for; "
        f"further trials wait for nodes with room for {state.settings.workers.needs}"
    )


def _late(state: CampaignState, since: float) -> str:
    """Return a warning if attempts start long after they were passed to workers."""
    marks = state.session.marks
    if len(marks) < _WINDOW_MARKS:
        return ""
    first = marks[0]
    last = _mark(state.clock, state.session, state.running, since)
    window = last.capacity - first.capacity
    share = (last.missing - first.missing) / window if window > 0.0 else 0.0
    before = first.missing / first.capacity if first.capacity > 0.0 else 0.0
    if share - before < _ADDED_LOSS:
        return ""
    return (
        f"in the last {duration(last.time - first.time)}, the workers spent {share:.0%} between a trial's dispatch and "
        f"its start, {before:.0%} before: a worker process may not have been replaced; see `ray status`"
    )


def _not_ended(state: CampaignState, since: float) -> str:
    """Return a warning about evaluations that should have started or ended by now."""
    limit, why = _longest_wait(state)
    now = state.clock.last_time + since
    old = [trial for trial, run in state.running.items() if now - run.since > limit]
    if not old:
        return ""
    return (
        f"{plural(len(old), 'trial')} ({_first_of(sorted(old))}) had no outcome for more than {duration(limit)}, {why}"
    )


def _longest_wait(state: CampaignState) -> tuple[float, str]:
    """Return the seconds after which a missing outcome deserves a warning, and the words for it."""
    timeout = state.settings.workers.timeout_seconds
    longest = state.durations.longest_evaluation
    if timeout is not None:
        return (
            _START_SECONDS + _TIMEOUT_FACTOR * timeout,
            f"although workers.timeout_seconds = {timeout:g} ends evaluations: no worker has started it; the cluster "
            "may lack capacity (`ray status`)",
        )
    limit = max(_LEAST_OLD_SECONDS, _OLD_FACTOR * longest)
    if longest:
        return limit, (
            f"the longest evaluation took {duration(longest)}: one hangs (workers.timeout_seconds ends it), or no "
            "worker started it"
        )
    return limit, (
        "and no evaluation of this campaign has ended yet: they take long, one hangs (workers.timeout_seconds ends "
        "it), or no worker started it (`ray status`)"
    )


def _mark(clock: Clock, session: Session, running: Mapping[int, Run], since: float) -> Mark:
    now = clock.last_time + since
    capacity = clock.capacity_seconds + since * session.slots
    under_way = sum(max(0.0, now - run.since) for run in running.values())
    idle = sum(clock.idle.values()) + since * max(0, session.slots - len(running))
    return Mark(now, capacity, max(0.0, capacity - clock.busy_seconds - under_way - idle))


def _no_reports(state: CampaignState) -> str:
    has_reports = state.totals.stopped or state.trainings.whole.count
    if state.totals.succeeded < _LEAST_FINISHED or has_reports:
        return ""
    return (
        f"none of the {plural(state.totals.succeeded, 'finished trial')} reported a value, so early "
        "stopping stops none: a function calls report(value, step) with steps 1, 2, …, a command "
        "prints lines BBKB_REPORT step value"
    )


def _other_last_step(state: CampaignState) -> str:
    """Return a warning if trainings end before or after the last step in the settings."""
    last_step = state.settings.last_step
    furthest = state.trainings.furthest_step
    whole = state.trainings.whole
    if last_step is None:
        return ""
    remedy = "the model expects the final value there; set it to the last step of a complete training"
    if furthest > last_step:
        return f"trials report steps up to {furthest}, and early_stopping.last_step is {last_step}: {remedy}"
    if whole.count >= _LEAST_FINISHED and whole.largest_step < last_step:
        return (
            f"{plural(whole.count, 'trial')} finished at step {whole.largest_step} or before, and "
            f"early_stopping.last_step is {last_step}: {remedy}, and report steps from 1 on. If the "
            "training library ends trainings itself, leave that out (early_stopping_rounds of XGBoost "
            "and LightGBM, the callbacks early_stopping or EarlyStopping)"
        )
    return ""


def _unlike_ends(state: CampaignState) -> str:
    whole = state.trainings.whole
    goals = state.settings.goals
    newest = whole.newest_unlike
    if newest is None or whole.unlike < _LEAST_FINISHED or 2 * whole.unlike <= whole.count:
        return ""
    reported, returned = goals.reward(newest.reported), goals.reward(newest.returned)  # as values again
    return (
        f"{whole.unlike} of {plural(whole.count, 'finished trial')} returned something unlike their "
        f"reports (trial {newest.trial}: last reported {reported:.6g}, returned {returned:.6g}): "
        "a trial must report the quantity that it returns, on its scale and in its direction"
    )


def _restarts(state: CampaignState) -> str:
    """Return a warning about continued trials that restarted although they have checkpoints."""
    trials = sorted(state.trainings.without_checkpoint)
    if not trials or not state.settings.has_checkpoints:
        return ""
    return (
        f"{plural(len(trials), 'continued trial')} ({_first_of(trials)}) restarted at the first step: the "
        "checkpoint in the trial's folder is missing or was not read; repeated steps take "
        "time and provide no new information"
    )


def _unreported_metric(state: CampaignState) -> str:
    """Return a warning if trials do not report the metric that a fixed rule compares, so it stops none."""
    metric = None if state.settings.stopping is None else state.settings.stopping.metric
    has_rungs = state.trainings.rungs.best or state.trainings.rungs.rewards
    if metric is None or has_rungs or state.trainings.whole.count < _LEAST_FINISHED:
        return ""
    return (
        f"trials do not report {metric}, which early stopping compares, so it stops none: report it at each step, as "
        f"in report({{{metric!r}: …}}, step)"
    )


def _too_short(state: CampaignState) -> str:
    """Return a warning if trainings on Ray end before the response to a report can reach them."""
    finished = state.trainings.whole.count
    is_paused = state.settings.training is not None  # at steps that the worker knows
    if is_paused or state.totals.stopped or finished < _LEAST_SHORT or not state.settings.workers.traits.on_ray:
        return ""
    seconds = state.clock.busy_seconds / finished
    if seconds >= _SHORT_SECONDS:
        return ""
    return (
        f"early stopping stopped none of {plural(finished, 'training')}, which take {duration(seconds)} each: on Ray, "
        "the response to a report takes some milliseconds, and a training waits at most a tenth of its time for it; "
        "workers.executor inline stops at once"
    )


def _first_of(trials: Sequence[int]) -> str:
    return ", ".join(map(str, trials[:_MOST_SHOWN])) + (", …" if len(trials) > _MOST_SHOWN else "")


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
    existing_outside: int  # those of them that are outside the space: learned, and not proposed
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
        waiting=0 if state.session.outcome == "finished" else len(state.backlog) + len(state.running) - in_flight,
        running=_longest_running(state, state.clock.last_time + since) if is_open else (),
        recent=state.notes.recent,
        existing=state.results.existing.count,
        existing_outside=state.results.existing.outside,
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
