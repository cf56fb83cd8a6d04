"""The status of a campaign as one value, for the terminal, `bbkb status` and the coordinator, and warnings:
a worker that was not replaced, an evaluation that does not end, or trainings that early stopping cannot
judge.

Warnings influence no decision. The state keeps one mark of the workers' time per minute. Warnings
compare the last ten minutes with all earlier time.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bbkb.orchestrator.campaign.events import Recommendation
from bbkb.orchestrator.campaign.failures import Causes
from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.campaign.state import CampaignState, Clock, EndedAttempt, Mark, Run, Session, idle_cause, plus
from bbkb.orchestrator.campaign.trainings import Forecast, StoppingRule
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
_RUNNING_SHOWN = 8


def _work_seconds(clock: Clock, session: Session, running: Mapping[int, Run], since: float) -> tuple[float, float]:
    """Return all worker-seconds and those spent evaluating, `since` seconds after an event."""
    now = clock.last_time + since
    under_way = sum(max(0.0, now - run.since) for run in running.values()) if session.is_open else 0.0
    return clock.capacity_seconds + since * session.slots, clock.busy_seconds + under_way


def _mark(clock: Clock, session: Session, running: Mapping[int, Run], since: float) -> Mark:
    capacity, busy = _work_seconds(clock, session, running, since)
    idle = sum(clock.idle.values()) + since * max(0, session.slots - len(running))
    return Mark(clock.last_time + since, capacity, max(0.0, capacity - busy - idle))


def marks_after(clock: Clock, session: Session, running: Mapping[int, Run]) -> tuple[Mark, ...]:
    """Return the session's marks, with a new one after each minute and without the oldest."""
    marks = session.marks
    if marks and clock.last_time - marks[-1].time < _MARK_SECONDS:
        return marks
    return (*marks[1 - _WINDOW_MARKS :], _mark(clock, session, running, 0.0))


def warnings(state: CampaignState, since: float | None) -> dict[str, str]:
    """Return the warnings about workers and trainings by kind, `since` seconds after an event; only
    those about trainings if it is None, because no session is open."""
    on_workers = {} if since is None else _on_workers(state, since)
    stopping = state.stopping
    return on_workers if stopping is None else on_workers | _on_trainings(state, stopping)


def _on_workers(state: CampaignState, since: float) -> dict[str, str]:
    """Return warnings about missing slots, late starts, and evaluations that should have started or ended by now."""
    texts: dict[str, str] = {}
    workers, session = state.settings.workers, state.session
    if workers.traits.on_ray and session.slots < workers.count:
        texts["places"] = (
            f"there are slots for {session.slots} of the {plural(workers.count, 'worker')} that workers.count "
            f"asks for; further trials wait for nodes with room for {workers.needs}"
        )
    if len(session.marks) >= _WINDOW_MARKS:
        first = session.marks[0]
        last = _mark(state.clock, session, state.running, since)
        window = last.capacity - first.capacity
        share = (last.missing - first.missing) / window if window > 0.0 else 0.0
        before = first.missing / first.capacity if first.capacity > 0.0 else 0.0
        if share - before >= _ADDED_LOSS:
            texts["late"] = (
                f"in the last {duration(last.time - first.time)}, the workers spent {share:.0%} between a trial's "
                f"dispatch and its start, {before:.0%} before: a worker process may not have been replaced; see "
                "`ray status`"
            )
    longest = state.durations.longest_evaluation
    limit = max(_LEAST_OLD_SECONDS, _OLD_FACTOR * longest)
    if workers.timeout_seconds is not None:
        limit = _START_SECONDS + _TIMEOUT_FACTOR * workers.timeout_seconds
        why = (
            f"although workers.timeout_seconds = {workers.timeout_seconds:g} ends evaluations: no worker has started "
            "it; the cluster may lack capacity (`ray status`)"
        )
    elif longest:
        why = (
            f"the longest evaluation took {duration(longest)}: one hangs (workers.timeout_seconds ends it), or no "
            "worker started it"
        )
    else:
        why = (
            "and no evaluation of this campaign has ended yet: they take long, one hangs (workers.timeout_seconds ends "
            "it), or no worker started it (`ray status`)"
        )
    now = state.clock.last_time + since
    if old := sorted(trial for trial, run in state.running.items() if now - run.since > limit):
        texts["old"] = (
            f"{plural(len(old), 'trial')} ({_first_of(old)}) had no outcome for more than {duration(limit)}, {why}"
        )
    return texts


def _on_trainings(state: CampaignState, stopping: StoppingRule) -> dict[str, str]:
    """Return warnings about trials that early stopping cannot judge, and about restarted ones."""
    texts: dict[str, str] = {}
    settings, totals, trainings = state.settings, state.totals, state.trainings
    whole, last_step, furthest = trainings.whole, settings.last_step, trainings.furthest_step
    if totals.succeeded >= _LEAST_FINISHED and not (totals.stopped or whole.count):
        texts["silent"] = (
            f"none of the {plural(totals.succeeded, 'finished trial')} reported a value, so early "
            "stopping stops none: a function calls report(value, step) with steps 1, 2, …, a command "
            "prints lines BBKB_REPORT step value"
        )

    remedy = "the model expects the final value there; set it to the last step of a complete training"
    if last_step is not None and furthest > last_step:
        texts["last step"] = (
            f"trials report steps up to {furthest}, and early_stopping.last_step is {last_step}: {remedy}"
        )
    elif last_step is not None and whole.count >= _LEAST_FINISHED and whole.largest_step < last_step:
        texts["last step"] = (
            f"{plural(whole.count, 'trial')} finished at step {whole.largest_step} or before, and "
            f"early_stopping.last_step is {last_step}: {remedy}, and report steps from 1 on. If the "
            "training library ends trainings itself, leave that out (early_stopping_rounds of XGBoost "
            "and LightGBM, the callbacks early_stopping or EarlyStopping)"
        )

    newest = whole.newest_unlike
    if newest is not None and whole.unlike >= _LEAST_FINISHED and 2 * whole.unlike > whole.count:
        reported, returned = map(settings.goals.reward, (newest.reported, newest.returned))  # as values again
        texts["unlike"] = (
            f"{whole.unlike} of {plural(whole.count, 'finished trial')} returned something unlike their "
            f"reports (trial {newest.trial}: last reported {reported:.6g}, returned {returned:.6g}): "
            "a trial must report the quantity that it returns, on its scale and in its direction"
        )

    if (restarted := sorted(trainings.without_checkpoint)) and settings.has_checkpoints:
        texts["restarted"] = (
            f"{plural(len(restarted), 'continued trial')} ({_first_of(restarted)}) restarted at the first step: "
            "the checkpoint in the trial's folder is missing or was not read; repeated steps take "
            "time and provide no new information"
        )

    metric = stopping.metric  # compared by a fixed rule
    if metric is not None and not (trainings.rungs.best or trainings.rungs.rewards) and whole.count >= _LEAST_FINISHED:
        texts["unreported"] = (
            f"trials do not report {metric}, which early stopping compares, so it stops none: report it at "
            f"each step, as in report({{{metric!r}: …}}, step)"
        )

    is_paused = settings.training is not None  # at steps that the worker knows
    if not is_paused and not totals.stopped and whole.count >= _LEAST_SHORT and settings.workers.traits.on_ray:
        seconds = state.clock.busy_seconds / whole.count
        if seconds < _SHORT_SECONDS:
            texts["short"] = (
                f"early stopping stopped none of {plural(whole.count, 'training')}, which take {duration(seconds)} "
                "each: on Ray, the response to a report takes some milliseconds, and a training waits at most a "
                "tenth of its time for it; workers.executor inline stops at once"
            )
    return texts


def _first_of(trials: Sequence[int]) -> str:
    return ", ".join(map(str, trials[:_MOST_SHOWN])) + (", …" if len(trials) > _MOST_SHOWN else "")


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
    exact: str  # why values count as exact; empty if they may be noisy
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


def status_of(state: CampaignState, now: float | None = None, activity: str = "") -> Status:
    """Summarize `state`. `now` adds the time since the last event, and running evaluations."""
    session, totals, clock, refresh, batch = state.session, state.totals, state.clock, state.refresh, state.batch
    goals, budget, results = state.settings.goals, state.settings.budget, state.results
    is_open = session.is_open
    since = clock.since(now) if now is not None and is_open else 0.0
    elapsed = clock.elapsed_seconds + since
    capacity, busy = _work_seconds(clock, session, state.running, since)

    in_flight = min(len(state.running), session.slots) if is_open else 0
    shown = min(_RUNNING_SHOWN, session.slots) if is_open else 0  # the newest wait in the executor
    longest = heapq.nsmallest(shown, state.running.items(), key=lambda item: (item[1].since, item[0]))
    best = state.best_known
    found = (
        {}
        if best is None
        else {key: getattr(best, key) for key in ("value", "trial", "arm", "parameters", "metrics", "origin")}
    )
    risen_at = 0 if best is not None and best.trial is None else results.gains.risen_at

    # at the pace so far, at most the remaining hours
    left, steps = None, state.trainings.steps.total
    if totals.ended and is_open:
        share = max(0, budget.evaluations - totals.ended) / totals.ended
        if budget.steps is not None and steps:
            share = min(share, max(0, budget.steps - steps) / steps)
        left = elapsed * share
        left = left if budget.seconds is None else max(0.0, min(left, budget.seconds - elapsed))
    # these evaluations divided among all workers, or the longest one
    least_seconds = 0.0
    if clock.capacity_seconds > 0.0:
        spread = clock.busy_seconds / clock.capacity_seconds * clock.elapsed_seconds
        least_seconds = max(spread, min(state.durations.longest_evaluation, clock.elapsed_seconds))

    goals_status = None
    if not goals.is_single:
        front = results.front
        pairs = zip(goals.objectives, front.reference(goals), strict=False)
        goals_status = GoalsStatus(
            objectives=tuple(map(str, goals.objectives)),
            constraints=tuple(map(str, goals.constraints)),
            front=len(front.members),
            hypervolume=front.hypervolume(goals) if len(goals.objectives) > 1 else None,
            reference=tuple(objective.value(reward) for objective, reward in pairs),
            feasible=front.feasible / front.results if front.results else None,
        )
    repeats = 0 if refresh.learned is None else refresh.learned.equal_repeats
    equal = f"{plural(repeats, 'repeated evaluation')} returned the same value" if repeats else ""
    return Status(
        name=state.settings.name,
        phase=session.phase,
        activity=activity,
        outcome=session.outcome or "",
        reason=session.close_reason or session.stop_reason or "",
        remarks=(
            *state.notes.remarks,
            *(() if refresh.learned is None else refresh.learned.remarks),
            *warnings(state, since if is_open else None).values(),
        ),
        last_time=clock.last_time,
        trials=TrialsStatus(
            chosen=totals.chosen,
            succeeded=totals.succeeded,
            failed=totals.failed,
            stopped=totals.stopped,
            paused=len(state.trainings.paused) if is_open else 0,
            in_flight=in_flight,
            waiting=0 if session.outcome == "finished" else len(state.backlog) + len(state.running) - in_flight,
            running=tuple(
                RunningTrial(
                    trial, run.trial.attempt, max(0.0, clock.last_time + since - run.since), run.trial.parameters
                )
                for trial, run in longest
            ),
            recent=state.notes.recent,
            existing=results.existing.count,
            existing_outside=results.existing.outside,
            existing_unmatched=results.existing.unmatched,
            failures=state.notes.failures,
        ),
        best=BestStatus(
            metric=goals.objectives[0].metric,
            direction=f"{goals.objectives[0].direction}d",
            recommended=refresh.recommended,
            **found,
        ),
        budget=BudgetStatus(
            evaluations=budget.evaluations,
            step_budget=budget.steps,
            steps=steps,
            elapsed_seconds=elapsed,
            left_seconds=left,
        ),
        workers=WorkersStatus(
            slots=session.slots,
            epoch=session.epoch,
            set_aside=state.failures.quarantined,
            utilization=min(1.0, busy / capacity) if capacity > 0 else 0.0,
            idle_seconds=idle_seconds(state, since),
            least_seconds=least_seconds,
        ),
        model=ModelStatus(
            is_asynchronous=state.settings.is_asynchronous,
            refreshes=refresh.round,
            batch=batch.number,
            batch_size=batch.size,
            dictionary_size=refresh.dictionary_size,
            calibration=None if refresh.learned is None else refresh.learned.share,
            exact="declared by objective.deterministic" if state.settings.objective.deterministic else equal,
            possible_gain=results.gains.possible,
            last_gain=None if results.gains.best is None else max(0, totals.succeeded - risen_at),
            steps_reliability=state.steps_reliability,
            forecasts=tuple(state.trainings.forecasts.values()),
        ),
        goals=goals_status,
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


def idle_seconds(state: CampaignState, since: float = 0.0) -> dict[str, float]:
    """Return idle worker-seconds by cause, `since` seconds after an event; not negligible ones."""
    capacity, busy = _work_seconds(state.clock, state.session, state.running, since)
    idle = plus(state.clock.idle, idle_cause(state), since * state.free)
    explained = {**idle, **state.clock.transit}
    causes = {**explained, "other": capacity - busy - sum(explained.values())}
    return {cause: seconds for cause, seconds in causes.items() if seconds > 0.001 * capacity}
