"""A search over arms: `ask` carries out the commands of a campaign in memory, and `tell` records
results.

The rules are the same as in every campaign. `transitions.apply` folds the events into a state, and
`policy.decide` decides when the strategy chooses, learns, or appends candidates. An `ask` for n
trials is a campaign with n free slots. The events record everything that the strategy drew, fitted
and forecast, so a loaded search continues exactly as the saved one would have.
"""

from collections.abc import Iterable, Mapping, Sequence

from bbkb.objectives.conditions import Scalar
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.orchestrator.ask_tell.learner import GROW, Learner
from bbkb.orchestrator.ask_tell.memory import ENQUEUED, PENDING, TOLD, ArmResult, MemoryCampaign
from bbkb.orchestrator.bandit.checks import check_decision
from bbkb.orchestrator.bandit.growing import Grows
from bbkb.orchestrator.bandit.strategy import AnyStrategy, Choose, StrategyState, refresh_growth
from bbkb.orchestrator.campaign.commands import Ask, Begin, Dispatch, Grow, Tell
from bbkb.orchestrator.campaign.events import (
    CandidatesGrown,
    CheckpointsRemoved,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PlacesChanged,
    ReportsArrived,
)
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.rules import Rules
from bbkb.orchestrator.campaign.stops import stop_cause
from bbkb.orchestrator.campaign.trainings.reports import StepReport
from bbkb.orchestrator.candidates.pool import Appended, Pool, plain_columns

_NO_CHOICE = "the strategy chooses nothing"


class Search:
    """A search over arms.

    Args:
        strategy: chooses the arms.
        seed: the seed of all random numbers. The same calls with the same seed return the same
            arms.
        model: the strategy's state after `events`.
        rules: goals, and the rules for trainings.
        pool: the initial candidates and their space; None if the arms are rows of an array.
        events: the events so far.
    """

    def __init__(
        self,
        strategy: AnyStrategy,
        seed: int,
        model: StrategyState,
        rules: Rules,
        pool: Pool | None = None,
        events: Iterable[Event] = (),
    ) -> None:
        self.strategy = strategy
        self.campaign = MemoryCampaign(rules, refresh_growth(strategy), events)
        self.learner = Learner(strategy, seed, model, self.campaign)
        self.pool = pool
        self._arms = {} if pool is None else {row.tobytes(): arm for arm, row in enumerate(pool.candidates.features)}

    @property
    def candidates(self) -> Candidates:
        """The candidates of a space; raises ValueError if they are the rows of an array."""
        if self.pool is None:
            raise ValueError("candidates that are rows of an array do not grow")
        return self.pool.candidates

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
                    self.campaign.dispatch(each.trial for each in assignments[:limit])
                    return [each.arm for each in assignments[:limit]]
                case Begin() | Tell():
                    self.take(self.learner.learn(self.pool))
                case Grow(pending):
                    self._grow(pending)
                case Ask(pending, count):
                    started = self._choose(pending, count, skip)
                    if started is not None:
                        return started
                case _:
                    return []

    def enqueue(self, arms: Sequence[int]) -> None:
        """Make the next calls of `ask` return `arms` first."""
        if arms:
            self.campaign.choose(arms, ENQUEUED, is_enqueued=True)

    def know(self, existing: Sequence[ArmResult]) -> None:
        """Learn results known before the search: at least one, all with rewards."""
        self.take(existing_event(existing))
        self.take(self.learner.learn(self.pool))

    def mark_pending(self, arms: Sequence[int]) -> None:
        """Start trials of `arms`, which `ask` did not return; the paused trial of an arm continues."""
        self.campaign.start(arms, PENDING, shares=False)

    def tell(self, results: Sequence[ArmResult]) -> None:
        """Record results, in any order."""
        trials = self.campaign.start([result.arm for result in results], TOLD)
        for trial, result in zip(trials, results, strict=True):
            self.campaign.end(trial, result)

    def report(self, arm: int, step: int, value: float, metrics: Mapping[str, float]) -> bool:
        """Record the value and further metrics of the arm's trial at a step. Return False if the
        trial is stopped now."""
        trial = self.record(arm, step, value, metrics)
        cause = stop_cause(self.campaign.state, trial)
        if cause is not None:
            self.campaign.stop(trial, cause)
        return cause is None

    def record(self, arm: int, step: int, value: float, metrics: Mapping[str, float]) -> int:
        """Record the value and further metrics of the arm's trial at a step. Return the trial."""
        (trial,) = self.campaign.start([arm], PENDING)
        report = StepReport(trial, self.campaign.state.running[trial].attempt, step, value)
        further = ((trial, step, dict(metrics)),) if metrics else ()
        self.take(ReportsArrived(time=0.0, reports=(report,), metrics=further))
        return trial

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
        if self.pool is None or self.pool.space is None:
            raise ValueError("candidates that are rows of an array are found by their index")
        rows = [self.pool.space.candidate(configuration) for configuration in configurations]
        for row in rows:
            if _key(row) in self._arms:
                continue
            if not isinstance(self.strategy, Grows):
                raise ObjectiveError(
                    f"{row.parameters(0)} is not a candidate, and the strategy does not support other ones"
                )
            self.append(Appended(plain_columns(row), ()))
        return [self._arms[_key(row)] for row in rows]

    def append(self, appended: Appended) -> None:
        """Append the caller's candidates, or those that the model requested."""
        self.take(
            CandidatesGrown(
                time=0.0,
                round=self.campaign.state.refresh.round,
                first=len(self.candidates),
                columns={name: tuple(column) for name, column in appended.columns.items()},
                retired=appended.retired,
                seconds=0.0,
            )
        )

    def take(self, event: Event) -> None:
        """Record `event`, and append its candidates to the strategy's state."""
        if isinstance(event, CandidatesGrown):
            if self.pool is None or not isinstance(self.strategy, Grows):
                raise ValueError("the log appends candidates, but this search does not support appended candidates")
            first = len(self.pool.candidates)
            self.pool, features, log_prior = self.pool.append(Appended(event.columns, event.retired))
            self._arms.update({row.tobytes(): arm for arm, row in enumerate(features, start=first)})
            self.learner.model = self.strategy.extend(self.learner.model, features, event.retired, log_prior)
        self.campaign.take(event)

    def repeat(self, event: Event) -> None:
        """Record `event` of an earlier search, without draws or fits."""
        if isinstance(event, ModelRefreshed):
            self.learner.restore(event.record)
        self.take(event)

    def _grow(self, pending: Sequence[int]) -> None:
        """Append the candidates that the model requests."""
        model = self.learner.model
        rng = self.learner.rng(GROW, model.round)
        appended = None if self.pool is None else self.pool.growth(self.strategy, model, pending, rng)
        if appended is not None:
            self.append(appended)

    def _choose(self, pending: Sequence[int], limit: int, skip: int) -> list[int] | None:
        """Let the strategy choose, and start its trials except the first `skip`. Return their arms;
        None if the strategy waits for results."""
        model = self.learner.model
        decision = check_decision(self.strategy.ask(model, pending, limit), len(model.pulls.counts))
        reason = decision.reason or _NO_CHOICE
        if not (isinstance(decision, Choose) and decision.picks):
            self.campaign.choose((), reason, limit=limit)
            return None
        picks = decision.picks[skip:]
        if not picks:
            return []
        arms = [pick.arm for pick in picks]
        paused = self.campaign.state.trainings.paused
        trials = [pick.trial if pick.trial in paused else None for pick in picks]
        continued = tuple(trial for trial in trials if trial is not None)
        requested = len(picks) if skip else limit  # the next choice skips the same number again
        self.campaign.run(arms, trials, reason, limit=requested, continued=continued)
        return arms


def _key(row: Candidates) -> bytes:
    key: bytes = row.features[0].tobytes()
    return key


def existing_event(existing: Sequence[ArmResult]) -> ExistingTaken:
    """Return the event that records existing results, all with rewards."""
    return ExistingTaken(
        time=0.0,
        source="existing",
        arms=tuple(result.arm for result in existing),
        values=tuple(result.value for result in existing if result.value is not None),
        unmatched=0,
        first_unmatched="",
    )
