"""A search over arms: `ask` carries out the commands of a campaign in memory, `tell` records
results.

The rules are those of every campaign. `transitions.apply` folds the events into a state, and
`policy.decide` decides when the strategy chooses, learns, or appends candidates. An `ask` for n
trials is a campaign with n free slots. The events record what the strategy drew, fitted and
forecast, so a loaded search continues exactly as the saved one would have.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from objectives.conditions import Scalar
from objectives.objective import Candidates, ObjectiveError
from orchestrator.ask_tell.learner import GROW, INIT, Learner
from orchestrator.ask_tell.memory import ENQUEUED, PENDING, TOLD, ArmResult, MemoryCampaign, without_budget
from orchestrator.ask_tell.space_candidates import SpaceCandidates
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.growing import Grows
from orchestrator.bandit.strategy import AnyStrategy, Choose, Observation, StrategyState, refresh_growth
from orchestrator.campaign.commands import Ask, Begin, Dispatch, Grow, QueuedAttempt, Tell
from orchestrator.campaign.events import (
    CandidatesGrown,
    CheckpointsRemoved,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PlacesChanged,
    ReportsArrived,
    TrialsDispatched,
)
from orchestrator.campaign.policy import decide
from orchestrator.campaign.rules import Rules
from orchestrator.campaign.stops import stop_cause
from orchestrator.campaign.trainings.reports import StepReport
from orchestrator.candidates.pool import Appended

_NO_CHOICE = "the strategy chooses nothing"


class Search:
    """A search over arms.

    Args:
        learner: the strategy and its state.
        campaign: the events so far.
        candidates: the configurations of the arms, if they are those of a space.
    """

    def __init__(self, learner: Learner, campaign: MemoryCampaign, candidates: SpaceCandidates | None = None) -> None:
        self.learner = learner
        self.campaign = campaign
        self.candidates = candidates

    @classmethod
    def begin(
        cls, strategy: AnyStrategy, seed: int, arms: Arms, rules: Rules, candidates: SpaceCandidates | None = None
    ) -> Self:
        """Return a search without any event.

        Args:
            strategy: chooses the arms.
            seed: the seed of all random numbers. The same calls with the same seed give the same
                arms.
            arms: the candidates at the beginning.
            rules: goals, and the rules on trainings.
            candidates: the configurations of the arms, if they are those of a space.
        """
        model: StrategyState = strategy.init(arms, np.random.default_rng([seed, INIT]))
        return cls.of(strategy, seed, model, rules, candidates=candidates)

    @classmethod
    def of(
        cls,
        strategy: AnyStrategy,
        seed: int,
        model: StrategyState,
        rules: Rules,
        events: Sequence[Event] = (),
        candidates: SpaceCandidates | None = None,
    ) -> Self:
        """Return a search after `events`, which led to the strategy's state `model`."""
        campaign = MemoryCampaign(without_budget(rules, refresh_growth(strategy)), events)
        return cls(Learner(strategy, seed, model, campaign), campaign, candidates)

    @property
    def strategy(self) -> AnyStrategy:
        """The strategy that chooses the arms."""
        return self.learner.strategy

    @property
    def configurations(self) -> Candidates:
        """The current candidates of a space."""
        return _of_space(self.candidates).pool.candidates

    def ask(self, limit: int, skip: int = 0) -> list[int]:
        """Return at most `limit` arms, which become pending; none if the strategy waits for
        results. `skip`: the number of arms to choose first and leave out, because other processes
        evaluate them."""
        state = self.campaign.state
        slots = len(state.running) + skip + limit
        if slots != state.session.slots:
            self.take(PlacesChanged(time=0.0, slots=slots))
        while True:
            match decide(self.campaign.state, now=0.0):
                case Dispatch(assignments):
                    return self._dispatch(assignments[:limit])
                case Begin() | Tell():
                    self._learn()
                case Grow(pending):
                    self._grow(pending)
                case Ask(pending, picks):
                    chosen = self._choose(pending, picks, skip)
                    if chosen is None:
                        return []
                    if chosen:  # the decision of `decide`, without its cost
                        return self._dispatch(self.campaign.state.backlog, chosen)
                case _:
                    return []

    def enqueue(self, arms: Sequence[int]) -> None:
        """Make the next calls of `ask` return `arms` before any others."""
        if arms:
            self.campaign.choose(arms, ENQUEUED, is_enqueued=True)

    def know(self, existing: Sequence[Observation]) -> None:
        """Learn results that were known before the search: at least one, all with rewards."""
        self.take(existing_event(existing))
        self._learn()

    def mark_pending(self, arms: Sequence[int]) -> None:
        """Start trials of `arms`, which `ask` did not return; the paused trial of an arm continues."""
        self.campaign.start(arms, PENDING, shares=False)

    def tell(self, results: Sequence[ArmResult]) -> None:
        """Record results, in any order. Raises RewardSumError without recording any result if the
        rewards of an arm have no finite sum."""
        self.learner.check_sums([self._observation(result) for result in results])
        trials = self.campaign.start([result.arm for result in results], TOLD)
        for trial, result in zip(trials, results, strict=True):
            self.campaign.end(trial, result)

    def report(self, arm: int, step: int, value: float) -> bool:
        """Record the value of the arm's trial at a step. Return False if the trial is stopped
        now."""
        (trial,) = self.campaign.start([arm], PENDING)
        report = StepReport(trial, self.campaign.attempt(trial), step, value)
        self.take(ReportsArrived(time=0.0, reports=(report,)))
        cause = stop_cause(self.campaign.state, trial)
        if cause is not None:
            self.campaign.stop(trial, cause)
        return cause is None

    def stop(self, arm: int) -> None:
        """End the arm's running or paused trial permanently."""
        running = self.campaign.running_trial(arm)
        if running is not None:
            self.campaign.stop(running, "ended by the caller")
        paused = self.campaign.paused_trial(arm)
        if paused is not None:
            self.take(CheckpointsRemoved(time=0.0, trials=(paused,)))

    def arms_of(self, configurations: Sequence[Mapping[str, Scalar]]) -> list[int]:
        """Return the arms of configurations. A configuration that is not a candidate becomes one.
        Raises ObjectiveError if a configuration does not belong to the space, or the strategy does
        not support appended candidates."""
        candidates = _of_space(self.candidates)
        for appended in candidates.missing(configurations):
            if not isinstance(self.strategy, Grows):
                named = {name: column[0] for name, column in appended.columns.items() if column[0] is not None}
                raise ObjectiveError(f"{named} is not a candidate, and the strategy supports no others")
            self.append(appended)
        return [candidates.arm(configuration) for configuration in configurations]

    def append(self, appended: Appended) -> None:
        """Append the caller's candidates, or those that the model requested."""
        columns = {name: tuple(column) for name, column in appended.columns.items()}
        first = len(self.configurations)
        round_ = self.campaign.state.refresh.round
        self.take(
            CandidatesGrown(time=0.0, round=round_, first=first, columns=columns, retired=appended.retired, seconds=0.0)
        )

    def take(self, event: Event) -> None:
        """Record `event`, and update the strategy's state."""
        if isinstance(event, CandidatesGrown):
            self._extend(event)
        self.campaign.take(event)

    def repeat(self, event: Event) -> None:
        """Record `event` of an earlier search, without drawing or fitting anything."""
        if isinstance(event, ModelRefreshed):
            self.learner.restore(event.record)
        self.take(event)

    def _dispatch(self, assignments: Sequence[QueuedAttempt], chosen: Sequence[int] = ()) -> list[int]:
        """Start these trials. Return their arms, in the order in which the strategy has `chosen` the
        trials: in the backlog, continued trials follow the new ones."""
        attempts = {assignment.trial: assignment for assignment in assignments}
        started = [attempts[trial] for trial in chosen or attempts]
        self.take(TrialsDispatched(time=0.0, attempts=tuple((each.trial, each.attempt) for each in started)))
        return [each.arm for each in started]

    def _choose(self, pending: Sequence[int], limit: int, skip: int) -> list[int] | None:
        """Let the strategy choose. Return the trials in the order of choice; empty if the strategy
        waits for results, None if it has chosen only arms that are skipped."""
        decision = self.strategy.ask(self.learner.model, pending, limit)
        chosen = decision.picks if isinstance(decision, Choose) else ()
        picks = chosen[skip:]
        if chosen and not picks:
            return None
        state = self.campaign.state
        continued = tuple(
            pick.trial for pick in picks if pick.trial is not None and pick.trial in state.trainings.paused
        )
        self.campaign.choose(
            [pick.arm for pick in picks if pick.trial not in continued],
            decision.reason or _NO_CHOICE,
            # the number of arms that the next choice still skips
            limit=len(picks) if skip else limit,
            continued=continued,
        )
        if continued:
            self.campaign.resume(continued)
        new = itertools.count(state.totals.chosen)
        return [pick.trial if pick.trial is not None and pick.trial in continued else next(new) for pick in picks]

    def _learn(self) -> None:
        event = self.learner.learn()
        pool = None if self.candidates is None else self.candidates.pool
        grows = pool is not None and pool.demand(self.strategy, self.learner.model) is not None
        self.take(replace(event, wants_growth=grows))

    def _grow(self, pending: Sequence[int]) -> None:
        """Append the candidates that the model requests."""
        pool, model = None if self.candidates is None else self.candidates.pool, self.learner.model
        growth = None if pool is None else pool.demand(self.strategy, model)
        if pool is not None and growth is not None and isinstance(self.strategy, Grows):
            self.append(pool.growth(self.strategy, model, growth, pending, self.learner.rng(GROW, model.round)))

    def _extend(self, event: CandidatesGrown) -> None:
        if not isinstance(self.strategy, Grows):
            raise ValueError("the log appends candidates, and the strategy supports no others")
        features, log_prior = _of_space(self.candidates).append(Appended(event.columns, event.retired))
        self.learner.model = self.strategy.extend(self.learner.model, features, event.retired, log_prior)

    def _observation(self, result: ArmResult) -> Observation:
        """Return a result as rewards, which are maximized."""
        rules = self.campaign.rules
        if result.value is None:
            return Observation(result.arm, None)
        further = () if rules.goals.is_single else rules.goals.further(result.value, result.metrics)
        return Observation(result.arm, rules.sign * result.value, further)


def existing_event(existing: Sequence[Observation]) -> ExistingTaken:
    """Return the event that records existing results, all with rewards."""
    return ExistingTaken(
        time=0.0,
        source="existing",
        arms=tuple(result.arm for result in existing),
        values=tuple(result.reward for result in existing if result.reward is not None),
        unmatched=0,
        first_unmatched="",
    )


def _of_space(candidates: SpaceCandidates | None) -> SpaceCandidates:
    """Return the candidates of a space. Raises ValueError for rows of an array, which do not grow."""
    if candidates is None:
        raise ValueError("candidates that are rows of an array do not grow")
    return candidates
