"""The strategy's three computations: choose trials, refit the model, append candidates.

A computation has two halves. `run` computes; it may run in a background thread while the campaign
receives results, so it reads only values that do not change. `conclude` runs in the loop's thread
when `run` has returned, and turns the result into events and a new `Search`. It receives the
campaign at the end of the computation, the executor's time, and the seconds that it took.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from bbkb.orchestrator.bandit.checks import check_decision
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Pick, StrategyState, begin
from bbkb.orchestrator.campaign.commands import Ask, Begin, Grow, Tell
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CandidatesGrown,
    Computed,
    ContinuedTrial,
    Event,
    ModelRefreshed,
    TrialsContinued,
)
from bbkb.orchestrator.campaign.state import ACTIVITIES, CampaignState
from bbkb.orchestrator.candidates.pool import Appended, Pool
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.session.outcome_events import number_or_none, trials_of_picks
from bbkb.orchestrator.session.problem import (
    BEGIN,
    GROW,
    TELL,
    Problem,
    forecasts_of,
    recommendation_of,
    with_growth,
    with_told_curves,
)


@dataclass(frozen=True)
class Search:
    """The strategy's side of a session: its problem, its state and the current candidates."""

    problem: Problem
    model: StrategyState
    pool: Pool


# the events that record a computation, in order, and the search after it
Conclusion = tuple[tuple[Event, ...], Search]


@dataclass(frozen=True)
class Choice:
    """The strategy chooses trials."""

    kind: ClassVar[Computed] = "choosing"  # recorded in the log when the computation begins
    activity: ClassVar[str] = ACTIVITIES["choosing"]  # displayed during the computation
    search: Search
    command: Ask

    def run(self, campaign: CampaignState) -> Decision:
        """Return the strategy's decision. Raises ValueError if it is invalid."""
        decision = self.search.problem.strategy.ask(self.search.model, self.command.pending, self.command.limit)
        return check_decision(decision, len(self.search.pool.candidates))

    def conclude(
        self, result: Decision, campaign: CampaignState, now: float, seconds: float
    ) -> Conclusion:  # fmt: skip
        """Record the new trials, and the stopped trials that the strategy continues or gives up."""
        picks = result.picks if isinstance(result, Choose) else ()
        prospect = result.prospect if isinstance(result, Choose) else None
        new_picks = tuple(pick for pick in picks if pick.trial is None)
        continued = tuple(pick for pick in picks if pick.trial is not None)
        chosen = BatchChosen(
            time=now,
            round=campaign.refresh.round,
            picks=trials_of_picks(new_picks, campaign, self.search.pool.candidates),
            reason=result.reason,
            seconds=seconds,
            limit=self.command.limit,
            continued=tuple(pick.trial for pick in continued if pick.trial is not None),
            gives_up=result.gives_up if isinstance(result, Choose) else (),
            possible_gain=None if prospect is None else number_or_none(prospect.gain),
            noise=None if prospect is None else number_or_none(prospect.noise),
        )
        if not continued:
            return (chosen,), self.search
        return (chosen, continuation(campaign, continued, "promising", now)), self.search


def continuation(
    campaign: CampaignState, picks: Sequence[Pick], reason: Literal["promising", "finish"], now: float
) -> TrialsContinued:
    """Return the event that queues stopped trials again, except those that cannot continue."""
    paused = campaign.trainings.paused
    trials = tuple(
        ContinuedTrial(
            trial=pick.trial,
            arm=paused[pick.trial].arm,
            attempt=paused[pick.trial].attempt,
            parameters=paused[pick.trial].parameters,
            mean=number_or_none(pick.mean),
            width=number_or_none(pick.width),
            variance=number_or_none(pick.variance),
        )
        for pick in picks
        if pick.trial is not None and pick.trial in paused
    )
    return TrialsContinued(time=now, trials=trials, reason=reason)


@dataclass(frozen=True)
class Refresh:
    """The strategy learns results: it gets a new state with its random draws, and forecasts."""

    kind: ClassVar[Computed] = "refreshing"
    search: Search
    command: Tell | Begin  # `Begin` learns results from before the campaign

    @property
    def activity(self) -> str:
        """The text displayed during the computation."""
        return "learning known results" if isinstance(self.command, Begin) else "refitting the model"

    def run(self, campaign: CampaignState) -> tuple[StrategyState, ModelRefreshed]:
        """Return the new state of the strategy, and its event without times.

        This may compute the posterior, which the next choice needs anyway.
        """
        problem = self.search.problem
        pool = self.search.pool
        round_number = campaign.refresh.round + 1
        finished = () if isinstance(self.command, Begin) else self.command.finished
        model: StrategyState
        if isinstance(self.command, Begin):
            model = begin(problem.strategy, self.search.model, self.command.existing, problem.rng(BEGIN))
        else:
            before = with_told_curves(problem, self.search.model, campaign)
            observations = [one.observation for one in finished]
            model = problem.strategy.tell(before, observations, problem.rng(TELL, round_number))
        return model, ModelRefreshed(
            time=0.0,
            round=round_number,
            trials=tuple(one.trial for one in finished),
            dictionary_size=len(model.dictionary),
            record=problem.strategy.recorded(model),
            seconds=0.0,
            wants_growth=pool.demand(problem.strategy, model) is not None,
            recommended=recommendation_of(problem, pool, model, campaign.rules.sign),
            forecasts=forecasts_of(problem, model, campaign),
        )

    def conclude(
        self,
        result: tuple[StrategyState, ModelRefreshed],
        campaign: CampaignState,
        now: float,
        seconds: float,
    ) -> Conclusion:
        """Record the refresh."""
        model, event = result
        return (replace(event, time=now, seconds=seconds),), replace(self.search, model=model)


@dataclass(frozen=True)
class Growth:
    """New candidates are drawn around the arms that the strategy proposes."""

    kind: ClassVar[Computed] = "growing"
    activity: ClassVar[str] = ACTIVITIES["growing"]
    search: Search
    command: Grow

    def run(self, campaign: CampaignState) -> Appended:
        """Return the new candidates and the arms that they replace.

        Raises CampaignError if the strategy does not request candidates but the log says so.
        """
        search = self.search
        rng = search.problem.rng(GROW, campaign.refresh.round)
        appended = search.pool.growth(search.problem.strategy, search.model, self.command.pending, rng)
        if appended is None:
            raise CampaignError("the log requests further candidates, but the strategy does not")
        return appended

    def conclude(
        self, result: Appended, campaign: CampaignState, now: float, seconds: float
    ) -> Conclusion:  # fmt: skip
        """Record the new candidates, and add them to the strategy's state and to the pool."""
        search = self.search
        event = CandidatesGrown(
            time=now,
            round=campaign.refresh.round,
            first=len(search.pool.candidates),
            columns={name: tuple(column) for name, column in result.columns.items()},
            retired=result.retired,
            seconds=seconds,
        )
        model, pool = with_growth(search.problem, search.model, search.pool, event)
        return (event,), Search(search.problem, model, pool)


Computation = Choice | Refresh | Growth


def computation_for(command: Ask | Tell | Begin | Grow, search: Search) -> Computation:
    """Return the computation that carries out `command`."""
    match command:
        case Ask():
            return Choice(search, command)
        case Tell() | Begin():
            return Refresh(search, command)
        case Grow():
            return Growth(search, command)
