"""The status of a campaign in one flat value, which the terminal, `bbkb status` and the coordinator
show."""

import heapq
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from orchestrator.campaign.attempts import EndedAttempt
from orchestrator.campaign.clock import LABELS
from orchestrator.campaign.events import Recommendation
from orchestrator.campaign.health import warnings, warnings_of_trainings
from orchestrator.campaign.state import CampaignState, idle_cause
from orchestrator.campaign.trainings.reports import Forecast
from orchestrator.wording import duration, iso, plural

_RUNNING_SHOWN = 8


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that a worker evaluates."""

    trial: int
    attempt: int
    seconds: float  # since it was dispatched
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalsStatus:
    """How several objectives, or constraints, stand."""

    objectives: tuple[str, ...]  # such as "accuracy maximised"
    constraints: tuple[str, ...]  # such as "memory_gb at most 4"
    front: int  # the number of results on the front
    # measured from `reference`; None with one objective, and while no result is feasible
    hypervolume: float | None
    # a value for each objective, on the user's scale; empty while no result is feasible
    reference: tuple[float, ...]
    feasible: float | None  # the share of results that satisfy every constraint; None before any result


@dataclass(frozen=True, slots=True)
class Status:
    """A snapshot. Times in seconds on the executor's clock; `value`s on the user's scale."""

    name: str
    phase: str  # created, running, stopping, closed; ended: its process is gone, and did not close the session
    activity: str  # what the driver does now: "evaluating", "choosing a batch", "refitting the model"…
    outcome: str  # of the last session that closed: finished, failed, interrupted
    reason: str
    evaluations: int  # the budget
    steps: int  # that trials have reported; 0 where the budget does not count them
    step_budget: int | None
    existing: int  # results known before the campaign; in no other number
    existing_unmatched: int  # earlier results that match no candidate
    remarks: tuple[str, ...]  # on metrics that were left out, on the model, and on workers that do not evaluate
    chosen: int
    succeeded: int
    failed: int
    stopped: int
    paused: int  # those of them that may go on while the session is open
    in_flight: int  # at most `slots`; none once the session is closed: a resume evaluates again what was running
    waiting: int  # chosen, not running: in the campaign's backlog or in the queue of the executor
    running: tuple[RunningTrial, ...]  # those that have run longest, at most 8 of them
    recent: tuple[EndedAttempt, ...]  # attempts that ended recently, the newest last
    batch: int
    batch_size: int
    dictionary_size: int
    direction: str  # of the value: "maximised" or "minimised"
    best_value: float | None
    best_trial: int | None
    best_arm: int | None
    best_parameters: Mapping[str, object]  # empty while there is no value
    best_metrics: Mapping[str, float]  # of further objectives and of constraints
    best_origin: str  # "trial 12", or "existing data: earlier.csv"; then `best_trial` is None
    recommended: Recommendation | None  # when values are so noisy that the best one may be due to noise
    slots: int
    epoch: int
    refreshes: int
    is_asynchronous: bool
    set_aside: tuple[int, ...]  # arms that are set aside because they ended too many workers
    utilization: float  # share of the workers' time spent evaluating, in [0, 1]
    idle_seconds: Mapping[str, float]  # of all workers together, by cause
    least_seconds: float  # lower bound on the makespan: the duration of these evaluations without idle workers
    last_time: float  # of the last event
    elapsed_seconds: float  # in sessions
    calibration: float | None  # share of results within two deviations of what the model predicted, once it is known
    left_seconds: float | None  # an estimate, known after the first result
    possible_gain: float | None = None  # at most, by the model's upper bound; on the value's scale
    last_gain: int | None = None  # evaluations that ended since the best value improved
    goals: GoalsStatus | None = None  # None with one objective and no constraint
    steps_reliability: tuple[tuple[int, float], ...] = ()  # steps, and the correlation of a value there with the end
    forecasts: tuple[Forecast, ...] = ()  # of running trials, and of stopped ones that can be continued

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return self.succeeded + self.failed + self.stopped

    @property
    def outcomes(self) -> str:
        """How the trials ended, for a person."""
        paused = f" ({self.paused:,} may go on)" if self.paused else ""
        stopped = f"{self.stopped:,} stopped early{paused}, " if self.stopped else ""
        return f"{self.succeeded:,} succeeded, {stopped}{self.failed:,} failed"

    @property
    def best_text(self) -> str:
        """The best value with its direction, and its further metrics, for a person; empty: none."""
        if self.best_value is None:
            return ""
        metrics = (f", {name} {number:.6g}" for name, number in self.best_metrics.items())
        return f"{self.best_value:.6g}, {self.direction}{''.join(metrics)}"

    @property
    def spent(self) -> tuple[int, int, str]:
        """How much is spent of which budget, and its unit: steps or evaluations, the nearer end."""
        counts = [(self.done, max(1, self.evaluations), "evaluations")]
        if self.step_budget is not None:
            counts.insert(0, (self.steps, self.step_budget, "steps"))
        return max(counts, key=lambda count: count[0] / count[1])

    @property
    def is_counted(self) -> bool:
        """Whether the number of trials ends the campaign, not that of steps alone."""
        return self.step_budget is None or self.evaluations < self.step_budget

    @property
    def trials_text(self) -> str:
        """How many trials have ended, of how many where their number ends the campaign."""
        return f"{self.done}/{self.evaluations}" if self.is_counted else str(self.done)


def status_of(name: str, state: CampaignState, now: float | None = None, activity: str = "") -> Status:
    """Summarise `state`; `now` adds the time since the last event and running evaluations."""
    is_open = state.session.is_open
    since = max(0.0, now - state.clock.last_time) if now is not None and is_open else 0.0
    elapsed = state.clock.elapsed_seconds + since
    capacity, busy = _work_seconds(state, since)
    done, best = state.totals.ended, state.best_known
    seconds_left = elapsed * _share_left(state, done) if done and is_open else None
    running = min(len(state.running), state.session.slots) if is_open else 0
    return Status(
        name=name,
        phase=state.session.phase,
        activity=activity,
        outcome=state.session.outcome or "",
        reason=state.session.close_reason or state.session.stop_reason or "",
        evaluations=state.rules.evaluations,
        steps=state.trainings.steps.total,
        step_budget=state.rules.steps,
        existing=state.results.existing.count,
        existing_unmatched=state.results.existing.unmatched,
        remarks=_remarks(state, since, is_open),
        calibration=None if state.refresh.learned is None else state.refresh.learned.share,
        chosen=state.totals.chosen,
        succeeded=state.totals.succeeded,
        failed=state.totals.failed,
        stopped=state.totals.stopped,
        paused=len(state.trainings.paused) if is_open else 0,
        in_flight=running,
        waiting=len(state.backlog) + len(state.running) - running,
        running=_longest_running(state, state.clock.last_time + since) if is_open else (),
        recent=state.notes.recent,
        batch=state.batch.number,
        batch_size=state.batch.size,
        dictionary_size=state.refresh.dictionary_size,
        direction="maximised" if state.rules.goals.objectives[0].is_maximized else "minimised",
        best_value=None if best is None else best.value,
        best_trial=None if best is None else best.trial,
        best_arm=None if best is None else best.arm,
        best_parameters={} if best is None else best.parameters,
        best_metrics={} if best is None else best.metrics,
        best_origin="" if best is None else best.origin,
        recommended=state.refresh.recommended,
        steps_reliability=state.steps_reliability,
        forecasts=tuple(state.trainings.forecasts.values()),
        slots=state.session.slots,
        epoch=state.session.epoch,
        refreshes=state.refresh.round,
        is_asynchronous=state.rules.strategy.is_asynchronous,
        set_aside=state.failures.quarantined,
        utilization=min(1.0, busy / capacity) if capacity > 0 else 0.0,
        idle_seconds=_idle_seconds(state, since, capacity - busy, 0.001 * capacity),
        least_seconds=_least_seconds(state),
        last_time=state.clock.last_time,
        elapsed_seconds=elapsed,
        left_seconds=_within_hours(seconds_left, elapsed, state),
        possible_gain=state.results.gains.possible,
        last_gain=None if state.results.gains.best is None else max(0, done - state.results.gains.risen_at),
        goals=_goals_status(state),
    )


def without_process(status: Status, activity: str) -> Status:
    """Return the status of an open session whose process is gone: nothing runs, and a resume
    evaluates again what was running; `activity` tells a person."""
    waiting = status.waiting + status.in_flight
    return replace(
        status, phase="ended", activity=activity, in_flight=0, running=(), waiting=waiting, left_seconds=None
    )


def _remarks(state: CampaignState, since: float, is_open: bool) -> tuple[str, ...]:
    on_model = () if state.refresh.learned is None else state.refresh.learned.remarks
    further = warnings(state, since) if is_open else warnings_of_trainings(state)
    return (*state.notes.remarks, *on_model, *further.values())


def _goals_status(state: CampaignState) -> GoalsStatus | None:
    goals, front = state.rules.goals, state.results.front
    if goals.is_single:
        return None
    pairs = zip(goals.objectives, front.reference(goals), strict=False)
    return GoalsStatus(
        objectives=tuple(map(str, goals.objectives)),
        constraints=tuple(map(str, goals.constraints)),
        front=len(front.members),
        hypervolume=front.hypervolume(goals) if len(goals.objectives) > 1 else None,
        reference=tuple(objective.sign * reward for objective, reward in pairs),
        feasible=front.feasible / front.results if front.results else None,
    )


def _longest_running(state: CampaignState, now: float) -> tuple[RunningTrial, ...]:
    shown = min(_RUNNING_SHOWN, state.session.slots)  # the executor's queue holds the newest
    longest = heapq.nsmallest(shown, state.running.items(), key=lambda item: (item[1].since, item[0]))
    return tuple(RunningTrial(trial, run.attempt, max(0.0, now - run.since), run.parameters) for trial, run in longest)


def _work_seconds(state: CampaignState, since: float) -> tuple[float, float]:
    """Return worker-seconds in all and spent evaluating, `since` seconds after the last event."""
    is_open = state.session.is_open
    now, running = state.clock.last_time + since, state.running.values() if is_open else ()
    under_way = sum(max(0.0, now - run.since) for run in running)
    return state.clock.capacity_seconds + since * state.session.slots, state.clock.busy_seconds + under_way


def idle_seconds(state: CampaignState, since: float = 0.0) -> dict[str, float]:
    """Return idle worker-seconds by cause, `since` seconds after the last event; not small ones."""
    capacity, busy = _work_seconds(state, since)
    return _idle_seconds(state, since, capacity - busy, 0.001 * capacity)


def _idle_seconds(state: CampaignState, since: float, idle: float, least: float) -> dict[str, float]:
    by_cause = state.clock.idle.plus(idle_cause(state), since * state.free).by_cause()
    causes = {**by_cause, "transit": idle - sum(by_cause.values())}
    return {cause: seconds for cause, seconds in causes.items() if seconds > least}


def _least_seconds(state: CampaignState) -> float:
    """Return the least duration of the evaluations that have ended: their sum divided among all
    workers, or the longest of them."""
    clock = state.clock
    if clock.capacity_seconds <= 0.0:
        return 0.0
    spread = clock.busy_seconds / clock.capacity_seconds * clock.elapsed_seconds
    return max(spread, min(state.durations.longest_evaluation, clock.elapsed_seconds))


def _share_left(state: CampaignState, done: int) -> float:
    """Return the rest of the budget divided by the part that is spent."""
    share = max(0, state.rules.evaluations - done) / done
    if state.rules.steps is None or not state.trainings.steps.total:
        return share
    return min(share, max(0, state.rules.steps - state.trainings.steps.total) / state.trainings.steps.total)


def _within_hours(seconds_left: float | None, elapsed: float, state: CampaignState) -> float | None:
    if state.rules.seconds is None or seconds_left is None:
        return seconds_left
    return max(0.0, min(seconds_left, state.rules.seconds - elapsed))


def as_plain(status: Status) -> dict[str, object]:
    """Return the status in plain values for JSON: times in ISO 8601, UTC; durations in seconds."""
    recent = [{**attempt._asdict(), "time": iso(attempt.time)} for attempt in status.recent]
    return {
        **asdict(status),
        "recent": recent,
        "last_time": iso(status.last_time),
        "done": status.done,
        "spent": status.spent,
        "outcomes": status.outcomes,
    }


def headline(status: Status) -> str:
    """Return one plain line, for logs that are not a terminal."""
    best = "no value yet" if status.best_value is None else f"best {status.best_value:.6g} ({status.direction})"
    best += f", {goals}" if status.goals is not None and (goals := goals_text(status.goals)) else ""
    stopped = f" ({status.stopped} stopped early)" if status.stopped else ""
    time_left = (
        ""
        if status.left_seconds is None or status.phase == "stopping"
        else f", about {duration(status.left_seconds)} left"
    )
    return (
        f"{status.trials_text} done{stopped}, {best}, {progress(status)}, "
        f"{status.in_flight} running, {status.failed} failed, utilisation {status.utilization:.0%}{time_left}"
    )


def gains_text(status: Status) -> str:
    """Return the largest gain by the model, and the last improvement's age; empty at first."""
    if status.last_gain is None:
        return ""
    past = f"the last was {plural(status.last_gain, 'evaluation')} ago"
    return (
        past if status.possible_gain is None else f"at most about {status.possible_gain:.3g} left by the model, {past}"
    )


def goals_text(goals: GoalsStatus) -> str:
    """Return the goals in short: front and hypervolume, and the share of feasible results; empty
    before the first result of a search with one objective."""
    parts = []
    if len(goals.objectives) > 1:
        volume = "" if goals.hypervolume is None else f", hypervolume {goals.hypervolume:.6g}"
        parts.append(f"front of {plural(goals.front, 'trial')}{volume}")
    if goals.constraints and goals.feasible is not None:
        parts.append(f"{goals.feasible:.0%} of the results feasible ({', '.join(goals.constraints)})")
    return ", ".join(parts)


def progress(status: Status) -> str:
    """Return the algorithm's progress: refits in asynchronous mode, batches otherwise."""
    steps = "" if status.step_budget is None else f"step {status.steps} of {status.step_budget}, "
    if status.is_asynchronous:
        return f"{steps}{plural(status.refreshes, 'refit')}"
    return f"{steps}batch {status.batch} of {status.batch_size}"


def idle_text(idle_seconds: Mapping[str, float]) -> str:
    """Return the causes of the workers' idle time, the largest first, without those of less than a
    hundredth of it; empty when there is none."""
    least = 0.01 * sum(idle_seconds.values())
    listed = sorted((item for item in idle_seconds.items() if item[1] >= least), key=lambda item: -item[1])
    return ", ".join(f"{LABELS[cause]} {duration(seconds)}" for cause, seconds in listed)
