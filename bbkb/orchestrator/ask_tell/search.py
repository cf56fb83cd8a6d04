"""A search in memory: an engine, and the events so far.

The rules are the same as in every campaign: `policy.decide` decides when the strategy chooses, learns,
or appends candidates. There are no workers and no clock: an `ask` for n trials is a campaign with n
free slots, the caller evaluates the trials, and every event has the time 0. Reports of running trials are
learned before a choice, too. A loaded search continues exactly as the saved one would have.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import Parameters, as_given, as_levels
from bbkb.objectives.space import first_occurrences
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Choose, Grows, LearnsCurves, StrategyState
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CheckpointsRemoved,
    ComputingBegan,
    Event,
    ExistingTaken,
    PickedTrial,
    PlacesChanged,
    ReportsArrived,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialStopped,
    TrialSucceeded,
    TrialsWithdrawn,
)
from bbkb.orchestrator.campaign.policy import (
    Ask,
    Begin,
    Dispatch,
    Grow,
    Tell,
    decide,
    is_refresh_due,
    stop_cause,
)
from bbkb.orchestrator.campaign.settings import DEFAULT_STRATEGY, UNLIMITED, Budget, Settings
from bbkb.orchestrator.campaign.state import CampaignState, Run, Session
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.engine.engine import TOLD, Chosen, Computation, Engine, Problem, Result
from bbkb.orchestrator.engine.pool import GROWTH, Appended, Pool, plain_columns
from bbkb.workers.messages import FailureKind, Report

# the reasons of trials that the caller started without a choice by the strategy
PENDING = "pending elsewhere"
ENQUEUED = "enqueued"
FIXED = 6  # the random stream of candidates with given values
FIXED_NEAR = 64  # the number of evaluated arms to which they are similar
ROUNDED = 1e-6  # the largest difference of rounded numbers, as a share of a parameter's range
_ATTEMPT: Mapping[str, Any] = {"time": 0.0, "started": 0.0, "finished": 0.0, "worker": ""}
_FAILURE: Mapping[str, Any] = {"failure": FailureKind.ERROR, "message": "", "is_final": True}
_REFITTING = ComputingBegan(time=0.0, what="refreshing")


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The result of evaluating an arm (user's scale). If the evaluation failed, `value` is None."""

    arm: int
    value: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)  # the metrics besides the value
    trial: int | None = None  # the index of its trial; None before it was recorded


class Search:
    """A search over the arms of a pool.

    Args:
        strategy: chooses the arms.
        pool: the initial candidates and their space.
        settings: the seed, the goals, and the rules for trainings. There is no budget.
    """

    def __init__(self, strategy: AnyStrategy, pool: Pool, settings: Settings) -> None:
        is_asynchronous = getattr(strategy, "mode", None) == "async"
        growth = getattr(strategy, "refresh_growth", 0.0) if is_asynchronous else 0.0
        # the caller's `limit` bounds a batch
        options = {"name": DEFAULT_STRATEGY, "mode": "async", "refresh_growth": growth}
        settings = replace(settings, budget=Budget(evaluations=UNLIMITED), strategy=options)
        state = CampaignState(settings=settings, session=Session(epoch=1))
        self.engine = Engine(Problem(settings.seed, pool, strategy, goals=settings.goals.for_strategy), state)
        self.events: list[Event] = []
        self.results: list[ArmResult] = []  # in the order of their arrival
        self._arms: dict[bytes, int] = {}  # the features of the first `_count` candidates → arm
        self._count = 0
        self._view: StrategyState = self.engine.model
        self._view_of: tuple[object, ...] = ()  # the values from which `view` was computed

    @property
    def state(self) -> CampaignState:
        """The state of the campaign."""
        return self.engine.state

    @property
    def strategy(self) -> AnyStrategy:
        """The strategy."""
        return self.engine.strategy

    @property
    def candidates(self) -> Candidates:
        """The current candidates."""
        return self.engine.pool.candidates

    def parameters(self, arm: int) -> dict[str, Any]:
        """Return the configuration of an arm, with the values that the user gave."""
        return as_given(self.state.settings.space, self.candidates.parameters(arm))

    @property
    def view(self) -> StrategyState:
        """The strategy's state after all results, also those that the next refit will learn. Reading it
        has no effect."""
        state = self.state
        if not state.finished:
            return self.engine.model
        now = (self.engine.model, state.finished, state.trainings)
        if tuple(map(id, now)) != tuple(map(id, self._view_of)):
            self._view = self.engine.learned(Tell(tuple(state.finished)), apply(state, _REFITTING))
            self._view_of = now
        return self._view

    @property
    def pending(self) -> list[int]:
        """The arms of trials without a result, in the order in which the trials started."""
        return [run.trial.arm for run in self.state.running.values()]

    @property
    def paused(self) -> list[int]:
        """The arms of trials that may be continued, the longest trained first."""
        trainings = self.state.trainings
        trials = sorted(trainings.paused, key=lambda trial: (-trainings.step(trial), trial))
        return [trainings.paused[trial].trial.arm for trial in trials]

    def ask(self, limit: int, skip: int = 0) -> list[int]:
        """Return at most `limit` arms, which become pending; none if the strategy waits for
        results. `skip`: the number of arms to choose first and leave out, because other processes
        evaluate them."""
        self._prepare(skip + limit)
        while True:
            match decide(self.state, now=0.0):
                case Dispatch(trials):
                    self._dispatch([trial.id for trial in trials[:limit]])
                    return [trial.arm for trial in trials[:limit]]
                case Begin() | Tell() | Grow() as command:
                    self._compute(command)
                case Ask(pending):
                    # a campaign chooses for its free workers in groups, a caller gets as many as asked for
                    requested = skip + limit
                    decision = self.engine.choose(Ask(pending, requested))
                    if skip and isinstance(decision, Choose) and decision.picks:
                        if len(decision.picks) <= skip:
                            return []
                        requested = len(decision.picks)  # the next choice skips the same number again
                        decision = replace(decision, picks=decision.picks[skip:])
                    self._record(Chosen(decision, requested))
                case _:
                    return []

    def ask_with(self, fixed: Parameters, limit: int) -> list[int]:
        """Return at most `limit` arms with these values, as `ask` does. Candidates with them are appended:
        like the best evaluated arms otherwise, or drawn. Raises ObjectiveError if a value is impossible, or
        the strategy does not support appended candidates."""
        space = self.engine.pool.space
        if space is None or not isinstance(self.strategy, Grows):
            name = type(self.strategy).__name__
            raise ObjectiveError(f"fixed needs a strategy that supports appended candidates, got {name}; use bbkb")
        fixed = as_levels(space.parameters, fixed)
        rng = self.engine.rng(FIXED, self.state.totals.chosen)
        reward = self.state.settings.goals.reward
        rewards = {result.arm: reward(result.value) for result in self.results if result.value is not None}
        best = sorted(rewards, key=lambda arm: -rewards[arm])[:FIXED_NEAR]
        columns = {name: column[best] for name, column in self.candidates.columns.items()}
        codes = space.draw_with(fixed, rng, space.encode(columns) if best else None)[:GROWTH]
        columns = space.columns_of(codes[first_occurrences(codes)])
        for row in range(len(next(iter(columns.values())))):
            space.put(columns, row, fixed)
        known = self._numbered()
        drawn = space.candidates_of(columns)
        fresh = [row for row, features in enumerate(drawn.features) if features.tobytes() not in known]
        if fresh:
            self._record(Appended({name: tuple(column[fresh].tolist()) for name, column in columns.items()}, ()))
        self._prepare(limit)
        while isinstance(command := decide(self.state, now=0.0), Begin | Tell | Grow):
            self._compute(command)
        matching = np.ones(len(self.candidates), np.bool_)
        for name, value in fixed.items():
            matching &= np.array([each == value for each in self.candidates.columns[name].tolist()])
        decision = self.engine.choose(Ask(self.state.pending, limit), among=np.flatnonzero(matching).tolist())
        first = self.state.totals.chosen
        self._record(Chosen(decision, limit))
        trials = [trial for trial in self.state.backlog if trial.id >= first]
        self._dispatch([trial.id for trial in trials])
        return [trial.arm for trial in trials]

    def _prepare(self, free: int) -> None:
        """Set the number of slots such that `free` of them are free. If reports of running trials are not
        learned yet, and a refit is due when each of these trials counts as a result, refit."""
        slots = len(self.state.running) + free
        if slots != self.state.session.slots:
            self.take(PlacesChanged(time=0.0, slots=slots))
        curves = self.state.trainings.curves
        learned = set(map(id, self.state.trainings.learned_curves))
        reporting = sum(trial in curves and id(curves[trial]) not in learned for trial in self.state.running)
        if reporting and isinstance(self.strategy, LearnsCurves) and is_refresh_due(self.state, reporting):
            self._compute(Tell(tuple(self.state.finished)))

    def enqueue(self, arms: Sequence[int]) -> None:
        """Make the next calls of `ask` return `arms` first."""
        if arms:
            self._choose(arms, ENQUEUED)

    def know(self, existing: Sequence[ArmResult]) -> None:
        """Learn results known before the search: at least one, all with rewards."""
        values = tuple(result.value for result in existing if result.value is not None)
        arms = tuple(result.arm for result in existing)
        self.take(ExistingTaken(time=0.0, source="existing", arms=arms, values=values))
        self._compute(Begin(self.state.existing_observations))

    def mark_pending(self, arms: Sequence[int]) -> None:
        """Start trials of `arms`, which `ask` did not return; the paused trial of an arm continues."""
        self._start(arms, PENDING, shares=False)

    def tell(self, results: Sequence[ArmResult]) -> None:
        """Record results, in any order."""
        trials = self._start([result.arm for result in results], TOLD)
        for trial, result in zip(trials, results, strict=True):
            ended = {"trial": trial, "attempt": self.state.running[trial].trial.attempt, **_ATTEMPT}
            if result.value is None:
                self.take(TrialFailed(**ended, **_FAILURE))
            else:
                self.take(TrialSucceeded(**ended, value=result.value, metrics=result.metrics))

    def report(self, arm: int, step: int, value: float, metrics: Mapping[str, float]) -> bool:
        """Record the value and further metrics of the arm's trial at a step. Return False if the
        trial is stopped now."""
        (trial,) = self._start([arm], PENDING)
        values = {self.state.settings.goals.objectives[0].metric: value, **metrics}
        report = Report(trial, self.state.running[trial].trial.attempt, step, values)
        self.take(ReportsArrived(time=0.0, reports=(report,)))
        cause = stop_cause(self.state, trial)
        if cause is not None:
            self._stop(trial, cause)
        return cause is None

    def stop(self, arm: int) -> None:
        """End the arm's running or paused trial permanently."""
        running = self._running_trial(arm)
        if running is not None:
            self._stop(running, "ended by the caller")
        paused = self._paused_trial(arm)
        if paused is not None:
            self.take(CheckpointsRemoved(time=0.0, trials=(paused,)))

    def withdraw(self, arm: int) -> None:
        """End the arm's oldest running trial without a result; otherwise, its paused one."""
        running = self._running_trial(arm)
        if running is not None:
            self.take(TrialsWithdrawn(time=0.0, trials=(running,)))
        else:
            self.stop(arm)

    def last_step(self, arm: int) -> int:
        """Return the largest step that the arm's open trial has reported; 0 if there is none."""
        running = self._running_trial(arm)
        trial = self._paused_trial(arm) if running is None else running
        return 0 if trial is None else self.state.trainings.step(trial)

    def arms_of(self, configurations: Sequence[Parameters]) -> list[int]:
        """Return the arms of configurations. A configuration that is not a candidate becomes one.
        Raises ObjectiveError if a configuration does not belong to the space, or the strategy does
        not support appended candidates."""
        space = self.engine.pool.space
        if space is None:
            raise ValueError("candidates that are rows of an array are found by their index")
        rows: list[Candidates] = []
        for configuration in configurations:
            try:
                rows.append(space.candidate(configuration))
            except ObjectiveError:  # perhaps rounded to beyond a bound
                row = space.beyond(configuration)
                if self._open_arm_near(row) is None:
                    raise
                rows.append(row)
        arms = []
        for row in rows:
            key = row.features[0].tobytes()
            arm = self._numbered().get(key)
            if arm is None and (arm := self._open_arm_near(row)) is None:
                if not isinstance(self.strategy, Grows):
                    raise ObjectiveError(
                        f"{row.parameters(0)} is not a candidate, and the strategy does not support other ones"
                    )
                self._record(Appended(plain_columns(row), ()))
                arm = self._numbered()[key]
            arms.append(arm)
        return arms

    def take(self, event: Event) -> None:
        """Record `event`."""
        running = self.state.running
        self.engine.take(event, self.events)
        self._keep_result(event, running)

    def restore(self, event: Event) -> None:
        """Record `event` of an earlier search, without draws or fits."""
        running = self.state.running
        self.engine.restore(event)
        self.events.append(event)
        self._keep_result(event, running)

    def _keep_result(self, event: Event, running: Mapping[int, Run]) -> None:
        if isinstance(event, TrialSucceeded):
            self.results.append(ArmResult(running[event.trial].trial.arm, event.value, event.metrics, event.trial))
        elif isinstance(event, TrialFailed):
            self.results.append(ArmResult(running[event.trial].trial.arm, None, trial=event.trial))

    def _open_arm_near(self, row: Candidates) -> int | None:
        """Return the arm of the nearest open trial whose configuration equals `row` up to rounding."""
        arms = [*self.pending, *self.paused]
        distances = np.abs(self.candidates.features[arms] - row.features).max(axis=1)
        nearest = int(distances.argmin()) if arms else 0
        return arms[nearest] if arms and distances[nearest] <= ROUNDED else None

    def _numbered(self) -> Mapping[bytes, int]:
        """Return the arm of each candidate's features."""
        features = self.candidates.features
        for arm in range(self._count, len(features)):
            self._arms[features[arm].tobytes()] = arm
        self._count = len(features)
        return self._arms

    def _compute(self, command: Computation) -> None:
        if isinstance(command, Tell | Begin):
            self.take(_REFITTING)
        self._record(self.engine.compute(command, self.state))

    def _record(self, result: Result) -> None:
        for event in self.engine.record(result):
            self.take(event)

    def _choose(self, arms: Sequence[int], reason: str) -> None:
        """Queue new trials of `arms`, which the strategy did not choose."""
        trials = itertools.count(self.state.totals.chosen)
        parameters = self.candidates.parameters
        picks = tuple(PickedTrial(trial=next(trials), arm=arm, parameters=parameters(arm)) for arm in arms)
        round_ = self.state.refresh.round
        self.take(BatchChosen(time=0.0, round=round_, picks=picks, reason=reason, seconds=0.0, is_enqueued=True))

    def _start(self, arms: Sequence[int], reason: str, shares: bool = True) -> list[int]:
        """Return a running trial for each of `arms` (n,), which `ask` did not return. With `shares`,
        this is the arm's running trial if there is one. Otherwise the arm's paused trial continues,
        or a new trial starts."""
        state = self.state
        running = state.running.items() if shares else ()
        available: dict[int, list[int]] = {arm: [] for arm in arms}
        for trial, each in (*running, *state.trainings.paused.items()):
            if each.trial.arm in available:
                available[each.trial.arm].append(trial)
        known = [available[arm].pop(0) if available[arm] else None for arm in arms]
        new = [arm for arm, trial in zip(arms, known, strict=True) if trial is None]
        fresh = itertools.count(state.totals.chosen)
        trials = [next(fresh) if trial is None else trial for trial in known]
        if new:
            self._choose(new, reason)
        paused = state.trainings.paused
        continued = tuple(trial for trial in trials if trial in paused)
        if continued:
            self.take(TrialsContinued(time=0.0, trials=continued, reason="promising"))
        self._dispatch([trial for trial in trials if trial not in self.state.running])
        return trials

    def _dispatch(self, trials: Iterable[int]) -> None:
        """Start queued trials, if there are any."""
        queued = {trial.id: trial.attempt for trial in self.state.backlog}
        attempts = tuple((trial, queued[trial]) for trial in trials)
        if attempts:
            self.take(TrialsDispatched(time=0.0, attempts=attempts))

    def _stop(self, trial: int, cause: str) -> None:
        """Record that a running trial is stopped at the step of its last report."""
        state = self.state
        curve = state.trainings.curves.get(trial)
        self.take(
            TrialStopped(
                trial=trial,
                attempt=state.running[trial].trial.attempt,
                value=state.settings.goals.value(curve.rewards[-1]) if curve and curve.steps else None,
                step=state.trainings.step(trial),
                cause=cause,
                **_ATTEMPT,
            )
        )

    def _running_trial(self, arm: int) -> int | None:
        """Return the arm's oldest running trial, or None."""
        return next((trial for trial, run in self.state.running.items() if run.trial.arm == arm), None)

    def _paused_trial(self, arm: int) -> int | None:
        paused = self.state.trainings.paused
        return next((trial for trial, stopped in paused.items() if stopped.trial.arm == arm), None)
