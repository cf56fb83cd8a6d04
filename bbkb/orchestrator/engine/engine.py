"""The engine: what a strategy computes for a campaign, and how the results become events.

`campaign.policy.decide` returns the next command. `Engine.compute` carries out those that the strategy
answers: choose trials, refit the model, append candidates. It changes nothing, so it may run in a
thread while results arrive. `Engine.record` turns the result into events, and `Engine.take` applies
these and all other events. `Engine.restore` applies the events of a log or a saved file: it draws and
fits nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bbkb.objectives.objective import Candidates
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.goals import SINGLE, Goals
from bbkb.orchestrator.bandit.results import CurveUpdate, Observation
from bbkb.orchestrator.bandit.strategy import (
    AnyStrategy,
    Choose,
    Decision,
    EstimatesRewards,
    Grows,
    LearnsCurves,
    Pick,
    Recommends,
    StrategyState,
    begin,
    check_decision,
)
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    CandidatesGrown,
    Computed,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PickedTrial,
    Recommendation,
    SessionOpened,
    TrialsContinued,
)
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.policy import Ask, Begin, Grow, Tell, first_learned_step, turn_of_stopped_trials
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.trainings import Forecast, forecast_of
from bbkb.orchestrator.campaign.transitions import apply, damage_error
from bbkb.orchestrator.engine.pool import Appended, Pool
from bbkb.orchestrator.errors import BbkbError, CampaignError, place_of, trace_of

# Random streams derived from the seed. Equal seeds give equal picks only while the numbers stay as they
# are; 5 belongs to `settings.spaces`, 6 to `ask_tell.search`.
INIT = 0
TELL = 1
TRIALS = 2
BEGIN = 3
GROW = 4
MOST_FORECASTS = 50  # the largest number of stopped trials with forecasts in an event
TOLD = "result from elsewhere"  # the reason of trials whose results were not asked for

Computation = Ask | Tell | Begin | Grow


@dataclass(frozen=True)
class Problem:
    """What an engine searches, and how."""

    seed: int  # of all random numbers
    pool: Pool  # the initial candidates
    strategy: AnyStrategy
    is_deterministic: bool | None = None  # `objective.deterministic`
    goals: Goals = SINGLE  # the numbers of objectives and constraints

    @property
    def candidates(self) -> Candidates:
        """The initial candidates."""
        return self.pool.candidates

    def engine(self) -> "Engine":
        """Return the engine before the first event. Raises CampaignError if the strategy fails."""
        with strategy_errors("starting the strategy"):
            return Engine(self)


@contextmanager
def strategy_errors(activity: str) -> Iterator[None]:
    """Raise CampaignError, with the traceback, for an error that the strategy raises in `activity`."""
    try:
        yield
    except BbkbError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__} in {activity}: {error}{place_of(error)}"
        raise CampaignError(f"{reason}\n{trace_of(error)}") from error


# the kinds of events that change the model or the candidates of a campaign
OF_MODEL = frozenset({"campaign_created", "existing_taken", "session_opened", "model_refreshed", "candidates_grown"})


def replay(
    problem: Problem, events: Iterable[Event], of_model: Iterable[Event] = (), state: CampaignState | None = None
) -> "Engine":
    """Return the engine after the events of a log.

    `state` is the campaign's after its first events, if it is known. Of these events, only those `of_model` are then
    needed, whose kinds are `OF_MODEL`; `events` are those that follow.

    Raises StoreError if an event cannot follow the events before it.
    """
    engine = problem.engine()
    for event in of_model:
        restore_recorded(engine.restore_model, event)
    if state is not None:
        engine.state = state
    for event in events:
        restore_recorded(engine.restore, event)
    return engine


def restore_recorded(restore: Callable[[Event], None], event: Event) -> None:
    """Call a method of an engine with an event of a log. Raises StoreError if it cannot follow the events before it."""
    try:
        restore(event)
    except (BbkbError, MemoryError):  # caused by recorded settings, or by this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


@dataclass(frozen=True, slots=True)
class Chosen:
    """The strategy's answer to `Ask`, which requested at most `limit` picks."""

    decision: Decision
    limit: int


@dataclass(frozen=True, slots=True)
class Refitted:
    """The strategy's state after `Tell` or `Begin`, and the event that records it, without times."""

    model: StrategyState
    event: ModelRefreshed


Result = Chosen | Refitted | Appended


def kind_of(command: Computation) -> Computed:
    """Return the word for a computation in the log."""
    match command:
        case Ask():
            return "choosing"
        case Grow():
            return "growing"
        case _:
            return "refreshing"


class Engine:
    """A strategy, and three states after the same events: of the campaign (`state` before the first event),
    of its model and of its candidates."""

    def __init__(self, problem: Problem, state: CampaignState | None = None) -> None:
        self.strategy = problem.strategy
        self.seed = problem.seed
        self.pool = problem.pool
        self.goals = problem.goals
        self.is_deterministic = problem.is_deterministic  # the log may say otherwise
        self.state = state or CampaignState()
        self.model: StrategyState = self.strategy.init(self._arms(), self.rng(INIT))
        self._told: set[int] = set()  # trials whose results were not asked for

    def rng(self, *stream: int) -> np.random.Generator:
        """Return the generator of a random stream. It is derived when needed and never stored."""
        return np.random.default_rng([self.seed, *stream])

    def compute(self, command: Computation, state: CampaignState) -> Result:
        """Return the strategy's result for `command`, which follows from `state`.

        Raises ValueError if the strategy's choice is invalid, and CampaignError if the log requests
        candidates and the strategy does not.
        """
        match command:
            case Ask():
                return Chosen(self.choose(command), command.limit)
            case Tell() | Begin():
                return self._refit(command, state)
            case Grow(pending):
                appended = self.pool.growth(self.strategy, self.model, pending, self.rng(GROW, state.refresh.round))
                if appended is None:
                    raise CampaignError("the log requests further candidates, but the strategy does not")
                return appended

    def choose(self, command: Ask, among: Sequence[int] | None = None) -> Decision:
        """Return the strategy's decision, which picks arms `among` these if given; the strategy must then be
        able to append candidates. Raises ValueError if the decision is invalid."""
        model = self.model
        if among is not None and isinstance(self.strategy, Grows):
            others = np.setdiff1d(np.arange(len(self.pool)), among).tolist()
            nothing = np.empty((0, self.pool.candidates.features.shape[1]))
            model = self.strategy.extend(model, nothing, others)
        return check_decision(self.strategy.ask(model, command.pending, command.limit), len(self.pool))

    def record(self, result: Result, now: float = 0.0, seconds: float = 0.0) -> tuple[Event, ...]:
        """Return the events that record a result of `compute`, for `take`. The model is replaced here.

        `now`: the time at the end of the computation, which took `seconds`.
        """
        match result:
            case Chosen(decision, limit):
                picks = decision.picks if isinstance(decision, Choose) else ()
                prospect = decision.prospect if isinstance(decision, Choose) else None
                # a stopped trial that cannot continue any more is begun again as a new one
                paused = self.state.trainings.paused
                continued = tuple(pick.trial for pick in picks if pick.trial is not None and pick.trial in paused)
                chosen = BatchChosen(
                    time=now,
                    round=self.state.refresh.round,
                    picks=self.picked([pick for pick in picks if pick.trial not in paused]),
                    reason=decision.reason or "the strategy chooses nothing",
                    seconds=seconds,
                    limit=limit,
                    continued=continued,
                    gives_up=decision.gives_up if isinstance(decision, Choose) else (),
                    possible_gain=None if prospect is None else _number_or_none(prospect.gain),
                    noise=None if prospect is None else _number_or_none(prospect.noise),
                )
                if not continued:
                    return (chosen,)
                return chosen, TrialsContinued(time=now, trials=continued, reason="promising")
            case Refitted(model, event):
                self.model = model
                return (replace(event, time=now, seconds=seconds),)
            case Appended():
                grown = CandidatesGrown(
                    time=now,
                    round=self.state.refresh.round,
                    first=len(self.pool),
                    columns={name: tuple(column) for name, column in result.columns.items()},
                    retired=result.retired,
                    seconds=seconds,
                )
                return (grown,)

    def take(self, event: Event, log: list[Event]) -> None:
        """Append `event` to `log`, and apply it. An interrupt may leave an event that is only in `log`,
        but never one that is missing there."""
        state = apply(self.state, event)
        grown = self._grown(event)
        log.append(event)
        self._move(event, grown)
        self.state = state

    def restore(self, event: Event) -> None:
        """Apply `event`, which was read from a log or a file. Draws, fits and decides nothing.

        Raises CampaignError if the strategy cannot append candidates, and other errors if `event` cannot
        follow the events before it.
        """
        self.restore_model(event)
        self.state = apply(self.state, event)

    def restore_model(self, event: Event) -> None:
        """Apply `event` to the model and the candidates only. Raises as `restore` does."""
        grown = self._grown(event)
        if isinstance(event, ModelRefreshed):
            self.model = self.strategy.restore(self._with_curves(event.curves), event.observations, event.record)
        self._move(event, grown)

    def learned(self, command: Tell | Begin, state: CampaignState) -> StrategyState:
        """Return the strategy's state after it has learned the results in `command`."""
        if isinstance(command, Begin):
            begun: StrategyState = begin(self.strategy, self.model, command.existing, self.rng(BEGIN))
            return begun
        rng = self.rng(TELL, state.refresh.round + 1)
        before = self._with_curves(self._curve_update(state))
        after: StrategyState = self.strategy.tell(before, self._observations(command), rng)
        return after

    def _observations(self, command: Tell | Begin) -> tuple[Observation, ...]:
        if isinstance(command, Begin):
            return command.existing
        return tuple(
            replace(one.observation, is_existing=True) if one.trial in self._told else one.observation
            for one in command.finished
        )

    def picked(self, picks: Sequence[Pick]) -> tuple[PickedTrial, ...]:
        """Return the new trials of `picks`, with the next indices, and with their parameters, reasons
        and origins."""
        saved = self.state.trainings.saved
        return tuple(
            PickedTrial(
                trial=trial,
                arm=pick.arm,
                parameters=self.pool.candidates.parameters(pick.arm),
                mean=_number_or_none(pick.mean),
                width=_number_or_none(pick.width),
                variance=_number_or_none(pick.variance),
                reason=pick.reason,
                starts_from=None if pick.starts_from is None else (pick.starts_from, saved[pick.starts_from][0]),
            )
            for trial, pick in enumerate(picks, start=self.state.totals.chosen)
        )

    def _refit(self, command: Tell | Begin, state: CampaignState) -> Refitted:
        """Learn results. This may compute the posterior, which the next choice needs anyway."""
        model = self.learned(command, state)
        event = ModelRefreshed(
            time=0.0,
            round=state.refresh.round + 1,
            trials=() if isinstance(command, Begin) else tuple(one.trial for one in command.finished),
            observations=self._observations(command),
            curves=None if isinstance(command, Begin) else self._curve_update(state),
            dictionary_size=len(model.dictionary),
            record=self.strategy.recorded(model),
            seconds=0.0,
            wants_growth=self.pool.demand(self.strategy, model) is not None,
            recommended=self._recommendation(model, state.settings.goals),
            forecasts=self._forecasts(model, state),
        )
        return Refitted(model, event)

    def _curve_update(self, state: CampaignState) -> CurveUpdate | None:
        trainings = state.trainings
        if not trainings.learned_curves or not isinstance(self.strategy, LearnsCurves):
            return None
        return CurveUpdate(
            trainings.learned_curves,
            trainings.learned_paused,
            state.settings.last_step,
            turn_of_stopped_trials(state),
            first_learned_step(state),
        )

    def _with_curves(self, update: CurveUpdate | None) -> StrategyState:
        if update is None or not isinstance(self.strategy, LearnsCurves):
            return self.model
        with_curves: StrategyState = self.strategy.with_curves(self.model, update)
        return with_curves

    def _forecasts(self, model: StrategyState, state: CampaignState) -> tuple[Forecast, ...]:
        """Return the forecasts of the running trials and of the `MOST_FORECASTS` best stopped trials
        that can be continued."""
        trainings = state.trainings
        if not trainings.learned_curves or not isinstance(self.strategy, LearnsCurves):
            return ()
        paused = set(trainings.paused)
        trials = sorted(paused.union(trial for trial in state.running if trial in trainings.curves))
        expected = sorted(self.strategy.predict_trials(model, trials), key=lambda forecast: -forecast.mean)
        best = {each.trial for each in [each for each in expected if each.trial in paused][:MOST_FORECASTS]}
        return tuple(
            forecast_of(each, state.settings.goals)
            for each in expected
            if each.trial in best or each.trial not in paused
        )

    def _recommendation(self, model: StrategyState, goals: CampaignGoals) -> Recommendation | None:
        if not isinstance(self.strategy, Recommends):
            return None
        arm = self.strategy.recommend(model)
        if arm is None or not (finished := int(model.pulls.finished.counts[arm])):
            return None
        mean = float(model.pulls.reward_sums[arm]) / int(model.pulls.counts[arm])
        reward = self.strategy.estimate(model, arm) if isinstance(self.strategy, EstimatesRewards) else None
        return Recommendation(
            arm=arm,
            parameters=self.pool.candidates.parameters(arm),
            value=goals.value(mean),
            evaluations=finished,
            estimate=None if reward is None else goals.value(reward[0]),
            deviation=None if reward is None else reward[1],
        )

    def _grown(self, event: Event) -> tuple[StrategyState, Pool] | None:
        match event:
            case CandidatesGrown(columns=columns, retired=retired):
                appended = Appended(columns, retired)
            case ExistingTaken(outside=columns) if columns:
                appended = Appended(columns, tuple(range(len(self.pool), len(self.pool) + event.outside_count)))
            case _:
                return None
        if not isinstance(self.strategy, Grows):
            raise CampaignError("the log appends candidates, but the strategy in its settings cannot")
        pool, features, log_prior = self.pool.append(appended)
        model: StrategyState = self.strategy.extend(self.model, features, appended.retired, log_prior)
        return model, pool

    def _arms(self) -> Arms:
        return self.pool.arms(self.strategy, self.is_deterministic).with_goals(self.goals)

    def _move(self, event: Event, grown: tuple[StrategyState, Pool] | None) -> None:
        if grown is not None:
            self.model, self.pool = grown
        if isinstance(event, BatchChosen) and event.reason == TOLD:
            self._told.update(pick.trial for pick in event.picks)
        if not isinstance(event, CampaignCreated | SessionOpened):
            return
        is_deterministic = event.settings.objective.deterministic
        if is_deterministic != self.is_deterministic:
            self.is_deterministic = is_deterministic
            model: Any = self.model
            if isinstance(event, CampaignCreated):
                self.model = self.strategy.init(self._arms(), self.rng(INIT))
            elif (layout := getattr(model, "layout", None)) is not None:  # a resume has changed it
                now = self._arms().layout
                layout = replace(layout, repeats=now.repeats, is_deterministic=now.is_deterministic)
                self.model = replace(model, layout=layout)


def _number_or_none(number: float) -> float | None:
    return None if math.isnan(number) else number
