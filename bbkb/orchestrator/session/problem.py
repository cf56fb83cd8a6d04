"""A campaign's problem (candidates, strategy, seed), and the two states that follow from its log:
those of the campaign and of the strategy."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bbkb.objectives.objective import Candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.checks import check_decision
from bbkb.orchestrator.bandit.goals import SINGLE, Goals
from bbkb.orchestrator.bandit.growing import Grows
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.results import CurveUpdate
from bbkb.orchestrator.bandit.sparse.all_arms import PlacedArms
from bbkb.orchestrator.bandit.strategy import (
    AnyStrategy,
    Decision,
    EstimatesRewards,
    LearnsCurves,
    Recommends,
    StrategyState,
)
from bbkb.orchestrator.campaign.events import CandidatesGrown, Event, ModelRefreshed, Recommendation
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.stops import first_learned_step, turn_of_stopped_trials
from bbkb.orchestrator.campaign.trainings.reports import Forecast, forecast_of
from bbkb.orchestrator.campaign.transitions import apply_recorded
from bbkb.orchestrator.candidates.pool import Appended, Pool, arms_of
from bbkb.orchestrator.errors import BbkbError, CampaignError, place_of, trace_of
from bbkb.orchestrator.session.resources import Resources

# Random streams derived from the campaign's seed. The numbers of streams must never change; stream
# 5 belongs to `settings.spaces`.
INIT = 0
TELL = 1
TRIALS = 2
BEGIN = 3
GROW = 4
MOST_FORECASTS = 50  # the largest number of stopped trials with forecasts in an event


@dataclass(frozen=True)
class Problem:
    """A campaign's candidates, strategy and seed."""

    name: str  # the campaign's name
    seed: int  # the seed of all random numbers
    candidates: Candidates  # the initial candidates
    strategy: AnyStrategy
    sharded_arms: PlacedArms | None = None  # their features, if several processes hold them
    space: SearchSpace | None = None  # the source of new candidates; None if their set is fixed
    limit: int = 0  # the largest number of candidates if there is a `space`
    trial_folders: Path | None = None  # the parent of the trials' own folders; None if they have none
    outputs: Path | None = None  # the folder for the output of attempts; None if it is not saved
    is_deterministic: bool = False  # whether no arm is evaluated twice
    goals: Goals = SINGLE  # the numbers of objectives and constraints
    # the resources of each trial if parameters determine them
    resources: Resources | None = None
    threads: int = 1  # the threads of BLAS for the strategy's computations

    def arms(self) -> Arms:
        """Return the candidates in the format of strategies.

        While the candidates grow, an arm of a continuous space is not pulled again, because a
        neighbor provides as much information. In a fixed set, it may be pulled again: otherwise
        noisy rewards would drive the search away from the best arms, and the published algorithms
        also allow it.
        """
        candidates = self.candidates
        is_calibrated = model_of(self.strategy) is not None
        may_repeat = candidates.repeats or self.space is None or not is_calibrated
        arms = arms_of(candidates, may_repeat and not self.is_deterministic)
        placed = arms if self.sharded_arms is None else replace(arms, features=self.sharded_arms)
        return placed.with_goals(self.goals)

    @property
    def pool(self) -> Pool:
        """The initial candidates, and the space of additional ones."""
        return Pool(self.candidates, self.space, self.limit)

    def rng(self, *stream: int) -> np.random.Generator:
        """Return the generator of a random stream. It is derived when needed and never stored."""
        return np.random.default_rng([self.seed, *stream])


@dataclass(frozen=True)
class Progress:
    """The states of the campaign, its strategy and its candidates after the same events."""

    campaign: CampaignState
    model: StrategyState  # the strategy's state
    pool: Pool

    def choose(self, problem: Problem, limit: int) -> Decision:
        """Return the strategy's next decision. Raises CampaignError if it fails or is invalid."""
        with _strategy_errors("choosing a batch"):
            decision = problem.strategy.ask(self.model, self.campaign.pending, limit)
            return check_decision(decision, len(self.pool.candidates))


def recommendation_of(
    problem: Problem, pool: Pool, model: StrategyState, sign: float
) -> Recommendation | None:  # fmt: skip
    """Return the strategy's recommendation; None if the best observed trial is recommended."""
    if problem.is_deterministic or not isinstance(problem.strategy, Recommends):
        return None
    arm = problem.strategy.recommend(model)
    if arm is None or not (finished := int(model.pulls.finished.counts[arm])):
        return None
    mean = float(model.pulls.reward_sums[arm]) / int(model.pulls.counts[arm])
    parameters = pool.candidates.parameters(arm)
    reward = problem.strategy.estimate(model, arm) if isinstance(problem.strategy, EstimatesRewards) else None
    return Recommendation(
        arm=arm,
        parameters=parameters,
        value=0.0 + sign * mean,  # 0 instead of −0
        evaluations=finished,
        estimate=None if reward is None else sign * reward[0],
        deviation=None if reward is None else reward[1],
    )


def begin_progress(problem: Problem) -> Progress:
    """Return the states of the campaign and the strategy before the first event.

    Raises CampaignError if the strategy raises an error.
    """
    with _strategy_errors("starting the strategy"):
        model = problem.strategy.init(problem.arms(), problem.rng(INIT))
    return Progress(CampaignState(), model, problem.pool)


@contextmanager
def _strategy_errors(activity: str) -> Iterator[None]:
    try:
        yield
    except BbkbError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__} in {activity}: {error}{place_of(error)}"
        raise CampaignError(f"{reason}\n{trace_of(error)}") from error


def advance(problem: Problem, progress: Progress, event: Event) -> Progress:
    """Return both states after the next event of the log. Draws and decides nothing."""
    model = progress.model
    pool = progress.pool
    if isinstance(event, CandidatesGrown):
        model, pool = with_growth(problem, model, pool, event)
    if isinstance(event, ModelRefreshed):
        observations = [*progress.campaign.observations_of(event.trials), *progress.campaign.existing_observations]
        learned = with_told_curves(problem, model, progress.campaign)
        model = problem.strategy.restore(learned, observations, event.record)
    return Progress(apply_recorded(progress.campaign, event), model, pool)


def with_told_curves(problem: Problem, model: StrategyState, campaign: CampaignState) -> StrategyState:
    """Return the strategy's state with the learning curves for the refresh in progress."""
    trainings = campaign.trainings
    if not trainings.learned_curves or not isinstance(problem.strategy, LearnsCurves):
        return model
    update = CurveUpdate(
        trainings.learned_curves,
        trainings.learned_paused,
        campaign.rules.last_step,
        turn_of_stopped_trials(campaign),
        first_learned_step(campaign),
    )
    state: StrategyState = problem.strategy.with_curves(model, update)
    return state


def forecasts_of(problem: Problem, model: StrategyState, campaign: CampaignState) -> tuple[Forecast, ...]:
    """Return the forecasts of the running trials and of the `MOST_FORECASTS` best stopped trials
    that can be continued."""
    trainings = campaign.trainings
    if not trainings.learned_curves or not isinstance(problem.strategy, LearnsCurves):
        return ()
    paused = set(trainings.paused)
    trials = sorted(paused.union(trial for trial in campaign.running if trial in trainings.curves))
    expected = sorted(problem.strategy.predict_trials(model, trials), key=lambda forecast: -forecast.mean)
    best = {
        forecast.trial for forecast in [forecast for forecast in expected if forecast.trial in paused][:MOST_FORECASTS]
    }
    return tuple(
        forecast_of(forecast, campaign.rules.sign)
        for forecast in expected
        if forecast.trial in best or forecast.trial not in paused
    )


def with_growth(
    problem: Problem, model: StrategyState, pool: Pool, event: CandidatesGrown
) -> tuple[StrategyState, Pool]:
    """Return the strategy's state and the pool with the appended candidates of `event`.

    Raises CampaignError if the strategy cannot append candidates.
    """
    if not isinstance(problem.strategy, Grows):
        raise CampaignError("the log appends candidates, but the strategy in its settings cannot")
    pool, features, log_prior = pool.append(Appended(event.columns, event.retired))
    return problem.strategy.extend(model, features, event.retired, log_prior), pool


def replay(problem: Problem, events: Iterable[Event]) -> Progress:
    """Rebuild the states of campaign and strategy from the events of a log."""
    progress = begin_progress(problem)
    for event in events:
        progress = advance(problem, progress, event)
    return progress
