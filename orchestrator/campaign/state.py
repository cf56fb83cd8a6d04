"""The state of a campaign, as a frozen value, and what can be computed from it.

The state holds what is open (chosen, running, not yet learned from) and totals, but no entry for a
finished trial: its size and the cost of a step do not grow with the number of evaluations.
`transitions.apply` folds events into it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.bandit.strategy import Observation
from orchestrator.campaign.attempts import Best, EndedAttempt, RunningAttempt
from orchestrator.campaign.commands import FinishedTrial, QueuedAttempt
from orchestrator.campaign.early_stopping import Rungs
from orchestrator.campaign.endings import Phase, SessionOutcome, StopReason
from orchestrator.campaign.events import (
    ExistingTaken,
    Recommendation,
)
from orchestrator.campaign.front import Front
from orchestrator.campaign.idle import Cause, IdleSeconds
from orchestrator.campaign.immutable_queue import ImmutableQueue
from orchestrator.campaign.learned import LearnedModel
from orchestrator.campaign.rules import AttemptFailures, Rules
from orchestrator.campaign.steps import Steps
from orchestrator.campaign.stop_when import Gains
from orchestrator.campaign.training import StopCause, Training, TrainingRule
from workers.messages import Failure, FailureKind, Outcome

_MOST_REMARKS = 10
LARGEST_FINISH_SHARE = 1 / 3  # of a budget of steps, for completing the best trials


@dataclass(frozen=True, slots=True)
class Mark:
    """Worker-seconds up to `time`: in all, and those that neither an evaluation nor a known cause
    of idle time explains."""

    time: float
    capacity: float
    missing: float


@dataclass(frozen=True)
class CampaignState:
    """The state of a campaign. Equal logs give equal states."""

    rules: Rules = field(default_factory=lambda: Rules(evaluations=0))
    phase: Phase = Phase.CREATED
    slots: int = 0
    epoch: int = 0
    trials: int = 0  # chosen so far; also the next trial's id
    round: int = 0  # refreshes so far
    batches: int = 0
    batch_size: int = 0
    computing: str = ""  # "choosing", "refreshing" or "growing" while the strategy computes
    wants_growth: bool = False  # candidates are to be appended before anything more is chosen
    computing_since: float = 0.0
    choosing_seconds: float = 0.0  # seconds of the strategy's last computations, on the executor's clock
    refreshing_seconds: float = 0.0
    fitting_seconds: float = 0.0  # the first choice after a refresh, in which the new posterior is fitted
    refreshed_time: float = 0.0
    is_fresh: bool = False  # nothing was chosen since the last refresh
    dictionary_size: int = 0
    learned: LearnedModel | None = None  # the fitted model in the last refresh
    backlog: Sequence[QueuedAttempt] = field(default_factory=ImmutableQueue)  # chosen and not running, in order
    running: Mapping[int, RunningAttempt] = field(default_factory=lambda: MappingProxyType({}))
    attempt_failures: Mapping[int, AttemptFailures] = field(
        default_factory=lambda: MappingProxyType({})
    )  # of open trials
    workers_lost: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))  # in a row, by arm
    quarantined: tuple[int, ...] = ()  # arms that are set aside because they ended too many workers
    finished: Sequence[FinishedTrial] = field(default_factory=ImmutableQueue)  # ended, and not learned yet
    existing: ExistingTaken | None = None  # existing results that the strategy has not learned yet
    existing_count: int = 0
    existing_best: Best | None = None
    existing_unmatched: int = 0
    remarks: tuple[str, ...] = ()  # on metrics that were left out and on the strategy, without repetitions
    succeeded: int = 0
    failed: int = 0
    stopped: int = 0  # early; neither succeeded nor failed
    steps: Steps = field(default_factory=Steps)  # that trials reported, where the budget counts them
    training: Training = field(default_factory=Training)  # of trials that report values at steps
    rungs: Rungs = field(default_factory=Rungs)  # what trials reported at the steps that early stopping compares
    session_succeeded: int = 0
    session_failed: int = 0
    session_first_failure: str = ""
    session_dispatched: int = 0
    best: Best | None = None  # of the trials: of the first objective, among those that satisfy all constraints
    front: Front = field(default_factory=Front)  # empty with one objective and no constraint
    gains: Gains = field(default_factory=Gains)  # past and further ones, with one objective and no constraint
    recommended: Recommendation | None = None  # by the newest refresh, where values are noisy
    is_batch_open: bool = False  # the last choice filled its limit, so the batch may have more picks
    stalled: str = ""  # why the strategy chooses nothing until it learns a result
    stop_reason: StopReason | None = None
    close_reason: str = ""
    outcome: SessionOutcome | None = None
    last_time: float = 0.0
    elapsed_seconds: float = 0.0  # in sessions
    capacity_seconds: float = 0.0  # slots × seconds in sessions
    busy_seconds: float = 0.0  # of attempts that ended
    success_seconds: float = 0.0  # of those that succeeded
    longest_seconds: float = 0.0  # the longest of these
    outcome_interval_seconds: float = 0.0  # mean time between two outcomes, recently
    last_outcome: float | None = None  # when, in this session
    recent: tuple[EndedAttempt, ...] = ()  # the newest last
    idle: IdleSeconds = field(default_factory=IdleSeconds)
    marks: tuple[Mark, ...] = ()  # of this session's last minutes, the newest last

    @property
    def remaining(self) -> int:
        """Trials that may still be chosen."""
        return max(0, self.rules.evaluations - self.trials)

    @property
    def missing_best(self) -> str:
        """The reason when there is no best result."""
        first, _, _traceback = self.session_first_failure.partition("\n")
        if self.front.results or not first:
            return self.front.missing_best
        return f"{self.front.missing_best}; the first one of the newest session failed with {first}"

    @property
    def best_known(self) -> Best | None:
        """The best value of all, existing data included; of equals the trial's."""
        own, known, sign = self.best, self.existing_best, self.rules.sign
        if own is None or known is None:
            return own or known
        return known if sign * known.value > sign * own.value else own

    @property
    def learned_count(self) -> int:
        """Trials that have ended and that the strategy has learned from."""
        return self.succeeded + self.failed + self.stopped - len(self.finished)

    @property
    def unspent(self) -> int:
        """Trials that may still be dispatched: fewer than are chosen when a resume has lowered the
        budget."""
        return max(0, self.rules.evaluations - self.succeeded - self.failed - self.stopped - len(self.running))

    @property
    def free(self) -> int:
        """Workers without an evaluation."""
        return max(0, self.slots - len(self.running))

    @property
    def training_end(self) -> int | None:
        """The step at which a training ends: as given, else the largest one that was seen; None
        before any report."""
        given = None if self.rules.training is None else self.rules.training.last_step
        return given or self.training.largest_step or None

    @property
    def pending(self) -> tuple[int, ...]:
        """Arms of the trials that are chosen and that the strategy has not learned from, in the
        order chosen."""
        arms = {trial: run.arm for trial, run in self.running.items()}
        arms.update((assignment.trial, assignment.arm) for assignment in self.backlog)
        arms.update((finished.trial, finished.observation.arm) for finished in self.finished)
        return tuple(arms[trial] for trial in sorted(arms))

    def memory_factor(self, trial: int) -> float:
        """Return how much more memory than usual the next attempt of `trial` may use."""
        attempt_failures = self.attempt_failures.get(trial)
        factor = self.rules.memory_factor
        return 1.0 if attempt_failures is None or factor is None else float(factor**attempt_failures.out_of_memory)

    @property
    def existing_observations(self) -> tuple[Observation, ...]:
        """Results known before the campaign that the strategy has not learned from yet, to be
        maximised."""
        if self.existing is None:
            return ()
        pairs = zip(self.existing.arms, self.existing.values, strict=True)
        return tuple(Observation(arm, self.rules.sign * value, is_existing=True) for arm, value in pairs)

    def observations_of(self, trials: Iterable[int]) -> list[Observation]:
        """Return what is known of these finished trials, in the order in which they finished."""
        learned = set(trials)
        return [finished.observation for finished in self.finished if finished.trial in learned]


def idle_cause(state: CampaignState) -> Cause:
    """Return why workers that are free now have nothing to do."""
    if state.phase is Phase.STOPPING or (not state.remaining and not state.backlog):
        return "campaign_end"
    if not state.session_dispatched:
        return "start_up"
    if state.backlog:
        return "dispatch"
    if state.computing:
        return "refit"
    if not state.rules.is_asynchronous:
        return "batch_end"
    return "drift_budget" if state.stalled else "dispatch"


def stop_cause(state: CampaignState, trial: int) -> StopCause | None:
    """Return why the campaign's rule stops this running trial, after the reports that are in
    `state`; None: it goes on."""
    rule, training = state.rules.stopping, state.rules.training
    if rule is None or trial not in state.running:
        return None
    is_worse = state.rungs.stops(rule, trial)
    if training is None:
        return StopCause.WORSE_THAN_OTHERS if is_worse else None
    curve = state.training.curves.get(trial)
    kept_for = trials_to_finish(state)
    if kept_for and trial not in kept_for and state.rules.steps is not None:
        return StopCause.FINISH
    return training.cause_of_stop(
        trial,
        () if curve is None else curve.steps,
        is_continued=trial in state.training.continued,
        is_worse=is_worse,
        is_hopeless=lambda: _is_hopeless(state, trial),
        is_finishing=trial in kept_for or trial in state.training.finishing,
    )


def first_steps(state: CampaignState, trial: int) -> int | None:
    """Return the step at which a worker ends the next attempt of `trial`, because it is a short
    first training; None: it ends only when it is told to."""
    rule = state.rules.training
    is_first = rule is not None and trial < rule.first_trials and trial not in state.training.continued
    return rule.first_steps if rule is not None and is_first else None


def trials_to_finish(state: CampaignState) -> tuple[int, ...]:
    """Return the unfinished trials that the rest of the budget is for, the most promising one
    first; none while there is more.

    They are the best `finish` ones, as many as a third of the budget pays for and can be completed,
    at least one. The rest of a budget of steps is for them only; near the end of a budget of hours
    they are the next to be trained.
    """
    rule, rules, end = state.rules.training, state.rules, state.training_end
    if rule is None or not rule.finish or not rule.resumes or end is None:
        return ()
    if rules.steps is None and rules.seconds is None:
        return ()
    most, best = rule.finish, None if state.best is None else state.best.value
    if rules.steps is not None:
        left = rules.steps - state.steps.total
        if left > end * (most + len(state.running)):
            return ()  # for speed
        most = max(1, min(most, round(rules.steps * LARGEST_FINISH_SHARE / end)))
    wanted = state.training.best_unfinished(state.running, rules.sign, best)[:most]
    needed = [max(0, end - _steps_to_keep(state, rule, trial)) for trial in wanted]
    if rules.steps is not None:
        others = sum(trial not in wanted for trial in state.running)  # each is stopped at its next report
        if wanted and left <= sum(needed) + others:
            while len(wanted) > 1 and sum(needed[: len(wanted)]) > left:
                wanted.pop()
            return tuple(wanted)
    elapsed, each = state.elapsed_seconds, state.training.seconds_per_step
    if rules.seconds is not None and each and rules.seconds - elapsed <= max(needed, default=0) * each:
        return tuple(wanted)
    return ()


def _steps_to_keep(state: CampaignState, rule: TrainingRule, trial: int) -> int:
    """Return the steps of an unfinished trial that need not be trained again."""
    paused = state.training.paused.get(trial)
    if paused is not None:
        return paused.step if rule.continues else 0
    curve = state.training.curves.get(trial)
    at = 0 if curve is None else curve.step
    return at if rule.continues or trial not in state.training.continued else state.steps.open.get(trial, 0)


def _is_hopeless(state: CampaignState, trial: int) -> bool:
    """Return whether even the optimistic forecast of `trial` is worse than the best value."""
    forecast, best, sign = state.training.forecasts.get(trial), state.best, state.rules.sign
    return forecast is not None and best is not None and sign * forecast.high < sign * best.value


def knows_remark(state: CampaignState, remark: str) -> bool:
    """Return whether this remark on an evaluation need not be recorded: it is known, or there are
    enough remarks."""
    return remark in state.remarks or len(state.remarks) >= _MOST_REMARKS


def is_expected(state: CampaignState, outcome: Outcome) -> bool:
    """Return whether this is the first outcome of an attempt that is running; a late or doubled one
    is not."""
    return is_running(state, outcome.trial, outcome.attempt)


def is_running(state: CampaignState, trial: int, attempt: int) -> bool:
    """Return whether this attempt runs."""
    run = state.running.get(trial)
    return run is not None and run.attempt == attempt


def is_final(state: CampaignState, failure: Failure) -> bool:
    """Return whether this failure ends its trial under the session's rules, without a further
    attempt."""
    attempt_failures = state.attempt_failures.get(failure.trial, AttemptFailures()).after(failure.kind)
    arm = state.running[failure.trial].arm
    workers_lost = state.workers_lost.get(arm, 0) + (failure.kind is FailureKind.WORKER_LOST)
    return not state.rules.allows_retry(failure.kind, attempt_failures, workers_lost)
