"""A whole campaign of this project as a search: its loop, log and rules, with workers in virtual
time.

The executor trains the curves of a problem. An attempt of a trial that was stopped before begins
after its last step, as a training that continues from its checkpoint.
"""

import heapq
import json
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count

from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from benchmarks.curves.simulate import Record, Setting, make_record
from objectives.datasets import DataSource
from objectives.objective import Candidates, Evaluation, Parameters, Report
from objectives.parameters import Space
from orchestrator.campaign.events import ModelRefreshed, SessionOpened, TrialStopped
from orchestrator.campaign.trainings.reports import Forecast
from orchestrator.errors import CampaignError
from orchestrator.session.build import build
from orchestrator.session.driver import Driver
from orchestrator.session.open import create_run
from orchestrator.session.problem import replay
from orchestrator.session.rules import rules_of
from orchestrator.session.training import with_training
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.store.event_store import EventStore
from orchestrator.store.lease import take
from workers.executor import InProcessExecutor
from workers.messages import Attempt, IntermediateValue, Outcome, Reported, Stopped, Success, cancellation

CAMPAIGNS: Mapping[str, Mapping[str, object]] = {  # the rule; {}: no early stopping
    "bbkb": {},
    "bbkb-median": {"rule": "median", "after": 3},
    "bbkb-model": {"rule": "model", "continue": True},
    "bbkb-model-anew": {"rule": "model", "continue": "anew"},
}
PROBLEM: ContextVar[CurveProblem] = ContextVar("PROBLEM")
_MOST_EVALUATIONS = 100_000


@dataclass
class _Running:
    """An attempt on a worker: since when, and its reports so far."""

    attempt: Attempt
    started: float
    reports: list[Reported] = field(default_factory=list)


class TrainingExecutor(InProcessExecutor):
    """`slots` virtual workers that train the curves of a problem, with a clock of trainings.

    Steps are counted by their costs: a problem whose steps are separate trainings reports the costs
    so far as its step.
    """

    def __init__(self, problem: CurveProblem, slots: int, is_timed: bool, has_checkpoints: bool = True) -> None:
        super().__init__()
        self.slots = slots
        self._has_checkpoints = has_checkpoints
        self._problem = problem
        self._is_timed = is_timed
        self._steps = tuple(accumulate(problem.costs))
        self._running: dict[int, _Running] = {}
        self._heap: list[tuple[float, int, int, int]] = []  # time, order, trial, attempt
        self._order = count()
        self._now = 0.0
        self.reached: dict[int, int] = {}  # reports of each trial
        self.configurations: dict[int, Configuration] = {}
        self.curves: dict[int, Floats] = {}
        self._durations: dict[int, Floats] = {}
        self.attempts = 0
        self.seen: list[tuple[float, int, int]] = []  # time, trial, reports of the trial, in the order of the reports

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """All outcomes up to the next instant at which there is one."""
        outcomes = self._take_cancelled()
        while not outcomes:
            self._start()
            if not self._heap:
                break
            self._now, _, trial, number = heapq.heappop(self._heap)
            run = self._running.get(trial)
            if run is not None and run.attempt.attempt == number:
                outcomes += self._report(run)
        return outcomes

    def cancel(self, trials: Iterable[int]) -> None:
        cancelled = set(trials)
        self._cancel_queued([trial for trial in self._queue if trial in cancelled], self._now, "")
        for trial in cancelled & set(self._running):
            run = self._running.pop(trial)
            self._cancelled.append(cancellation(trial, run.attempt.attempt, run.started, self._now, ""))

    def pause(self, seconds: float) -> None:
        self._now += seconds

    def now(self) -> float:
        return self._now

    def close(self, leave_running: bool = False) -> None:
        super().close()
        self._running.clear()
        self._heap.clear()

    def metrics(self, trial: int, at: int) -> dict[str, float]:
        """The further metrics of a trial at its report `at`."""
        return {}

    def _start(self) -> None:
        while self._queue and len(self._running) < self.slots:
            trial, attempt = self._queue.popitem(last=False)
            if trial not in self.configurations:
                configuration: Configuration = dict(attempt.parameters)  # type: ignore[arg-type]
                self.configurations[trial] = configuration
                self.curves[trial] = self._problem.curve(configuration)
                self._durations[trial] = self._problem.durations(configuration)
            if trial not in self.reached or not self._has_checkpoints:
                self.reached[trial] = 0
            self.attempts += 1
            self._running[trial] = _Running(attempt, self._now)
            self._follow(attempt)

    def _follow(self, attempt: Attempt) -> None:
        at = self.reached[attempt.trial]
        seconds = self._problem.costs[at] / self._problem.whole_cost
        if self._is_timed:
            seconds = float(self._durations[attempt.trial][at])
        heapq.heappush(self._heap, (self._now + seconds, next(self._order), attempt.trial, attempt.attempt))

    def _report(self, run: _Running) -> list[Outcome]:
        """Report the next value; return the outcome if the attempt ends."""
        attempt, trial = run.attempt, run.attempt.trial
        at = self.reached[trial]
        step, value = self._steps[at], float(self.curves[trial][at])
        self.reached[trial] = at + 1
        self.seen.append((self._now, trial, at + 1))
        metrics = self.metrics(trial, at)
        run.reports.append(Reported(step, value, tuple(metrics.items())))
        reported = IntermediateValue(trial, attempt.attempt, run.reports[-1])
        is_stopped = self._take is not None and trial in self._take([reported])
        is_end = at + 1 == len(self.curves[trial])
        if not is_end and not is_stopped:
            self._follow(attempt)
            return []
        del self._running[trial]
        reports = tuple(run.reports)
        if is_end:
            success = Success(trial, attempt.attempt, value, run.started, self._now, "worker")
            return [replace(success, reports=reports, metrics=metrics)]
        return [
            Stopped(
                trial=trial,
                attempt=attempt.attempt,
                value=value,
                step=step,
                started=run.started,
                finished=self._now,
                worker="worker",
                reports=reports,
            )
        ]


@dataclass(frozen=True)
class CurveObjective:
    """Options of the objective of such a campaign: the problem that `run_campaign` has put into
    `PROBLEM`."""

    def default_space(self) -> Space | None:
        """The space of a problem without a list of configurations."""
        problem = PROBLEM.get()
        return problem.space if problem.arms is None else None

    def load(self, source: DataSource) -> "NotEvaluated | ListedNotEvaluated":
        arms = PROBLEM.get().arms
        return NotEvaluated() if arms is None else ListedNotEvaluated(arms)


class NotEvaluated:
    """An objective whose values the executor has."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        raise AssertionError("the executor of this benchmark has the values")


@dataclass(frozen=True)
class ListedNotEvaluated(NotEvaluated):
    """The same with candidates of its own."""

    arms: Candidates

    def candidates(self) -> Candidates:
        return self.arms


def run_campaign(problem: CurveProblem, name: str, setting: Setting) -> Record:
    """Run a campaign with the rule of CAMPAIGNS until its budget of steps is used.

    Args:
        problem: the problem to search.
        name: of the method.
        setting: workers, budget, seed and durations.

    Raises:
        CampaignError: when the campaign does not finish.
    """
    began = time.process_time()
    has_checkpoints = CAMPAIGNS[name].get("continue") != "anew"
    executor = TrainingExecutor(problem, setting.workers, setting.durations == "recorded", has_checkpoints)
    forecasts = simulate(problem, executor, setting, name, CAMPAIGNS[name])
    record = _record(problem, name, setting, executor, time.process_time() - began)
    inside = sum(
        forecast.low <= float(executor.curves[trial][-1]) <= forecast.high for trial, forecast in forecasts.items()
    )
    return replace(record, forecasts=len(forecasts), held=inside)


def simulate(
    problem: CurveProblem,
    executor: TrainingExecutor,
    setting: Setting,
    name: str,
    rule: Mapping[str, object],
    **sections: object,
) -> dict[int, Forecast]:
    """Run a campaign of `bbkb`, or as `sections` of its file say, and return what `_finish` does.

    Args:
        problem: the problem to search.
        executor: trains the curves.
        setting: workers, budget and seed.
        name: the name of the campaign.
        rule: the rule of early stopping; empty for none.
        sections: further sections of the campaign file.
    """
    stopping = {**rule, "last_step": sum(problem.costs)} if rule.get("rule") == "model" else rule
    objective = f"{CurveObjective.__module__}:{CurveObjective.__qualname__}"
    token = PROBLEM.set(problem)
    try:
        with tempfile.TemporaryDirectory(prefix="curves-campaign-") as folder:
            settings = {
                "name": name,
                "seed": setting.seed,
                "objective": {"name": objective, "deterministic": True, "direction": "maximize"},
                "strategy": {"name": "bbkb"},
                "budget": {"evaluations": _MOST_EVALUATIONS, "steps": setting.trainings * problem.whole_cost},
                "workers": {"executor": "simulated", "count": setting.workers},
                "runs": folder,
                **({"early_stopping": stopping} if stopping else {}),
                **sections,
            }
            return _finish(from_mapping(settings, origin=name), executor)
    finally:
        PROBLEM.reset(token)


def _finish(settings: Settings, executor: TrainingExecutor) -> dict[int, Forecast]:
    """Run the campaign; the forecast of each trial when it was first decided whether it goes on:
    the first one after its first stop."""
    parts = build(settings)
    settings = with_training(settings, parts.objective)
    run = create_run(settings, parts)
    store = EventStore(run.store_url)
    try:
        writer = take(store, run.name, settings=json.dumps(settings.resolved()))
        created, later_events = run.stream(store)
        progress = replay(parts.problem, chain((created,), later_events))
        opened = SessionOpened(
            time=executor.now(),
            epoch=writer.epoch,
            executor="simulated",
            slots=executor.slots,
            settings=settings.resolved(),
            rules=rules_of(settings, executor.slots),
        )
        closed = Driver(parts.problem, progress, writer, executor).run(opened)
        log = run.events()
    finally:
        store.close()
    if closed.outcome != "finished":
        raise CampaignError(f"the campaign {settings.name} {closed.outcome}: {closed.reason}")
    forecasts: dict[int, Forecast] = {}
    stopped: set[int] = set()
    for event in log:
        if isinstance(event, TrialStopped):
            stopped.add(event.trial)
        elif isinstance(event, ModelRefreshed):
            decided = {forecast.trial: forecast for forecast in event.forecasts if forecast.trial in stopped}
            forecasts = {**decided, **forecasts}
    return forecasts


def _record(problem: CurveProblem, name: str, setting: Setting, executor: TrainingExecutor, seconds: float) -> Record:
    """The record of the reports within the budget; a campaign lets running trials finish after it.

    Without early stopping nobody looks at a value before the end, and a training costs the whole
    cost at its end, or less if it ends early.
    """
    budget, used = setting.trainings * problem.whole_cost, 0
    curves = executor.curves
    last: dict[int, float] = {}
    furthest: dict[int, int] = {}
    changes: list[tuple[float, float, float]] = []
    best = -1
    for now, trial, reports in executor.seen:
        if CAMPAIGNS[name]:
            used += problem.costs[reports - 1]
        elif reports == len(curves[trial]):
            used += problem.cost_of(reports)
        else:
            continue
        if used > budget:
            break
        furthest[trial] = max(reports, furthest.get(trial, 0))
        last[trial] = float(curves[trial][furthest[trial] - 1])
        best_trial = max(last, key=lambda candidate_trial: (last[candidate_trial], -candidate_trial))
        if best_trial != best:
            best = best_trial
            changes.append((used, now, problem.regret(float(curves[best][-1]))))
    return make_record(
        problem,
        name,
        setting,
        changes=changes,
        trials=[(curve, furthest.get(trial, 0)) for trial, curve in curves.items()],
        continuations=executor.attempts - len(executor.configurations),
        seconds=seconds,
    )
