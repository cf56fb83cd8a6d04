"""A whole campaign of this project as a search: its loop, log and rules, with workers in virtual
time.

The executor trains the curves of a problem. An attempt of a trial that was stopped before begins
after its last step, as a training that continues from its checkpoint.
"""

import heapq
import tempfile
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Any

from bbkb.objectives.objective import Candidates, Evaluation, Parameters, Report
from bbkb.objectives.parameters import Space
from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.campaign.events import SessionOpened
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.engine.engine import replay
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.session.build import build, with_training
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.session.open import as_text, create_run
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.lease import take
from bbkb.orchestrator.store.store import EventStore
from bbkb.workers import messages
from bbkb.workers.local import InProcessExecutor
from bbkb.workers.messages import Attempt, Outcome, TrialStopped, TrialSucceeded
from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from benchmarks.curves.simulate import Record, Seen, Setting, make_record

CAMPAIGNS: Mapping[str, Mapping[str, object]] = {  # the rule; {}: no early stopping
    "bbkb": {},
    "bbkb-median": {"rule": "median", "after": 3},
    "bbkb-model": {"rule": "model", "continue": True},
}
PROBLEM: ContextVar[CurveProblem] = ContextVar("PROBLEM")
_MOST_EVALUATIONS = 100_000


@dataclass
class _Running:
    """An attempt on a worker: its start, and its reports so far."""

    attempt: Attempt
    started: float
    reports: list[messages.Report] = field(default_factory=list)


class TrainingExecutor(InProcessExecutor):
    """`slots` virtual workers that train the curves of a problem, with a clock of trainings.

    Steps are counted by their costs: a problem whose steps are separate trainings reports the costs
    so far as its step.
    """

    def __init__(self, problem: CurveProblem, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self._problem = problem
        self._steps = tuple(accumulate(problem.costs))
        self._running: dict[int, _Running] = {}
        self._heap: list[tuple[float, int, int, int]] = []  # time, order, trial, attempt
        self._order = count()
        self._now = 0.0
        self.reached: dict[int, int] = {}  # reports of each trial
        self.configurations: dict[int, Configuration] = {}
        self.curves: dict[int, Floats] = {}
        self.attempts = 0
        self.seen: list[tuple[int, int]] = []  # trial, reports of the trial, in the order of the reports

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """All outcomes up to the next instant at which there is one."""
        outcomes: list[Outcome] = []
        while not outcomes:
            self._start()
            if not self._heap:
                break
            self._now, _, trial, number = heapq.heappop(self._heap)
            run = self._running.get(trial)
            if run is not None and run.attempt.attempt == number:
                outcomes += self._report(run)
        return outcomes

    def pause(self, seconds: float) -> None:
        self._now += seconds

    def now(self) -> float:
        return self._now

    def close(self, leave_running: bool = False) -> None:
        super().close()
        self._running.clear()
        self._heap.clear()

    def _start(self) -> None:
        while self._queue and len(self._running) < self.slots:
            trial, attempt = self._queue.popitem(last=False)
            if trial not in self.configurations:
                configuration: Configuration = dict(attempt.parameters)  # type: ignore[arg-type]
                self.configurations[trial] = configuration
                self.curves[trial] = self._problem.curve(configuration)
            self.reached.setdefault(trial, 0)
            self.attempts += 1
            self._running[trial] = _Running(attempt, self._now)
            self._follow(attempt)

    def _follow(self, attempt: Attempt) -> None:
        cost = self._problem.costs[self.reached[attempt.trial]]
        end = self._now + cost / self._problem.last_step
        heapq.heappush(self._heap, (end, next(self._order), attempt.trial, attempt.attempt))

    def _report(self, run: _Running) -> list[Outcome]:
        """Report the next value; return the outcome if the attempt ends."""
        attempt, trial = run.attempt, run.attempt.trial
        at = self.reached[trial]
        value = float(self.curves[trial][at])
        self.reached[trial] = at + 1
        self.seen.append((trial, at + 1))
        report = messages.Report(trial, attempt.attempt, self._steps[at], {"value": value})
        run.reports.append(report)
        is_stopped = self._take is not None and trial in self._take([report])
        is_end = at + 1 == len(self.curves[trial])
        if not is_end and not is_stopped:
            self._follow(attempt)
            return []
        del self._running[trial]
        ended: dict[str, Any] = {
            "trial": trial,
            "attempt": attempt.attempt,
            "value": value,
            "started": run.started,
            "finished": self._now,
            "worker": "worker",
            "reports": tuple(run.reports),
        }
        return [TrialSucceeded(**ended) if is_end else TrialStopped(**ended, step=self._steps[at])]


@dataclass(frozen=True)
class CurveObjective:
    """Options of the objective of such a campaign: the problem in `PROBLEM`."""

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
    """The same objective with its own candidates."""

    arms: Candidates

    def candidates(self) -> Candidates:
        return self.arms


def run_campaign(problem: CurveProblem, name: str, setting: Setting) -> Record:
    """Run a campaign with the rule `name` of CAMPAIGNS until its budget of steps is used.

    Raises CampaignError if the campaign does not finish.
    """
    began, rule = time.process_time(), CAMPAIGNS[name]
    executor = TrainingExecutor(problem, setting.workers)
    stopping = {**rule, "last_step": sum(problem.costs)} if rule.get("rule") == "model" else rule
    token = PROBLEM.set(problem)
    try:
        with tempfile.TemporaryDirectory(prefix="curves-campaign-") as folder:
            settings = {
                "name": name,
                "seed": setting.seed,
                "objective": {
                    "name": f"{CurveObjective.__module__}:{CurveObjective.__qualname__}",
                    "deterministic": True,
                    "direction": "maximize",
                },
                "strategy": {"name": "bbkb"},
                "budget": {"evaluations": _MOST_EVALUATIONS, "steps": setting.trainings * problem.last_step},
                "workers": {"executor": "simulated", "count": setting.workers},
                "runs": folder,
                **({"early_stopping": stopping} if stopping else {}),
            }
            _finish(from_mapping(settings, origin=name), executor)
    finally:
        PROBLEM.reset(token)
    seen = within_budget(problem, executor, setting.trainings * problem.last_step, bool(rule))
    continuations = executor.attempts - len(executor.curves)
    return make_record(problem, name, setting, seen, executor.curves, continuations, time.process_time() - began)


def _finish(settings: Settings, executor: TrainingExecutor) -> None:
    parts = build(settings)
    settings = with_training(settings, parts.objective)
    run = create_run(settings, parts)
    store = EventStore(run.place)
    try:
        writer = take(store, run.name, settings=as_text(settings))
        engine = replay(parts.problem, store.read(run.name))
        opened = SessionOpened(
            time=executor.now(),
            epoch=writer.epoch,
            slots=executor.slots,
            settings=settings,
        )
        closed = Driver(engine, writer, executor).run(opened)
    finally:
        store.close()
    if closed.outcome != "finished":
        raise CampaignError(f"the campaign {settings.name} {closed.outcome}: {closed.reason}")


def within_budget(problem: CurveProblem, executor: TrainingExecutor, budget: int, is_stopped: bool) -> list[Seen]:
    """The reports within the budget; a campaign lets running trials finish after it.

    Without early stopping, no value is read before the end. A training then costs all of its steps
    at its end, or fewer if it ends early.
    """
    seen: list[Seen] = []
    used = 0
    for trial, reports in executor.seen:
        if is_stopped:
            used += problem.costs[reports - 1]
        elif reports == len(executor.curves[trial]):
            used += problem.cost_of(reports)
        else:
            continue
        if used > budget:
            break
        seen.append(Seen(used, trial, reports))
    return seen
