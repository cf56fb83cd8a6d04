"""The campaign as a pure state machine: `apply` folds events into a state, `decide` says what to do about it.

`decide` depends on the state alone, so nothing has to be remembered about commands under way: after a crash the log
is folded with `apply` and `decide` gives the same next command. Whatever a command leads to comes back as an event.
Nothing here does I/O, reads a clock or computes a posterior.

The state holds what is open (chosen, running, not yet told) and totals, never one entry a finished trial: its size and
the cost of a step do not grow with the number of evaluations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from orchestrator.bandit.strategy import Observation
from orchestrator.commands import Ask, Assignment, Await, Begin, Close, Command, Dispatch, Finished, Stop, Tell
from orchestrator.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    ExistingTaken,
    ModelRefreshed,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from workers.messages import Failure, FailureKind, Outcome

# A worker that dies is never the evaluation's fault, but an evaluation that has cost this many workers is set aside.
WORKERS_ONE_TRIAL_MAY_COST = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """What bounds a campaign. `evaluations` counts trials, failed ones included, so that a campaign always ends."""

    evaluations: int
    seconds: float | None = None  # in sessions; pauses do not count
    target: float | None = None
    is_maximized: bool = True
    retries: int = 2
    failures_before_giving_up: int = 10  # in one session, with no success in it

    @classmethod
    def of(cls, settings: Mapping[str, Any], slots: int) -> "Rules":
        """Read them from a resolved campaign file."""
        budget, workers = settings["budget"], settings["workers"]
        hours = budget.get("hours")
        return cls(
            evaluations=budget["evaluations"],
            seconds=None if hours is None else hours * 3600.0,
            target=budget.get("target"),
            is_maximized=settings["objective"].get("direction", "maximize") == "maximize",
            retries=workers.get("retries", 2),
            failures_before_giving_up=max(10, 2 * slots),
        )

    def allows_retry(self, kind: FailureKind, losses: "Losses") -> bool:
        """Whether a trial that has failed as `losses` count (this failure included) is tried again."""
        match kind:
            case FailureKind.CANCELLED:
                return True  # given back, not failed
            case FailureKind.WORKER_LOST:
                return losses.workers < WORKERS_ONE_TRIAL_MAY_COST
            case FailureKind.INVALID_VALUE:
                return False  # the same parameters and seed would give it again
            case FailureKind.TIMEOUT | FailureKind.OUT_OF_MEMORY:
                return losses.charged <= min(1, self.retries)  # seldom cured by trying again, and dear
            case FailureKind.ERROR:
                return losses.charged <= self.retries


@dataclass(frozen=True, slots=True)
class Losses:
    """Failed attempts of an open trial: those that count against its retries, and workers that it cost."""

    charged: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt under way."""

    arm: int
    attempt: int
    since: float


@dataclass(frozen=True, slots=True)
class Best:
    """The best value so far, on the user's scale."""

    trial: int
    arm: int
    value: float


Phase = Literal["created", "running", "stopping", "closed"]


@dataclass(frozen=True, slots=True)
class CampaignState:
    """Where a campaign stands. Equal logs give equal states."""

    rules: Rules = field(default_factory=lambda: Rules(evaluations=0))
    phase: Phase = "created"
    slots: int = 0
    epoch: int = 0
    trials: int = 0  # chosen so far; also the next trial's id
    round: int = 0  # refreshes so far
    batches: int = 0
    batch_size: int = 0
    dictionary_size: int = 0
    stock: tuple[Assignment, ...] = ()  # chosen and not running, in order
    running: Mapping[int, Running] = field(default_factory=lambda: MappingProxyType({}))
    losses: Mapping[int, Losses] = field(default_factory=lambda: MappingProxyType({}))  # of open trials
    finished: tuple[Finished, ...] = ()  # over, not told to the strategy yet
    existing: ExistingTaken | None = None  # known before the campaign, not told to the strategy yet
    existing_count: int = 0
    existing_unmatched: int = 0
    succeeded: int = 0
    failed: int = 0
    session_succeeded: int = 0
    session_failed: int = 0
    session_first_failure: str = ""
    best: Best | None = None
    stalled: str = ""  # why the strategy chose nothing, until it is told something
    stop_reason: str = ""
    close_reason: str = ""
    outcome: str = ""
    last_time: float = 0.0
    elapsed_seconds: float = 0.0  # in sessions
    capacity_seconds: float = 0.0  # slots × seconds in sessions
    busy_seconds: float = 0.0  # of attempts that ended

    @property
    def remaining(self) -> int:
        """Trials that may still be chosen."""
        return max(0, self.rules.evaluations - self.trials)

    @property
    def existing_observations(self) -> tuple[Observation, ...]:
        """What was known before the campaign and is not told to the strategy yet, to be maximised."""
        if self.existing is None:
            return ()
        sign = 1.0 if self.rules.is_maximized else -1.0
        pairs = zip(self.existing.arms, self.existing.values, strict=True)
        return tuple(Observation(arm, sign * value) for arm, value in pairs)


def apply(state: CampaignState, event: Event) -> CampaignState:
    """The state after `event`. Total: every event of a valid log applies."""
    state = _pass_time(state, event)
    match event:
        case CampaignCreated():
            return state
        case ExistingTaken():
            return replace(state, existing=event, existing_count=len(event.arms), existing_unmatched=event.unmatched)
        case SessionOpened():
            return _open_session(state, event)
        case BatchChosen():
            chosen = tuple(Assignment(pick.trial, pick.arm, attempt=1) for pick in event.picks)
            return replace(
                state,
                trials=state.trials + len(chosen),
                stock=state.stock + chosen,
                batches=state.batches + bool(chosen),
                batch_size=len(chosen) or state.batch_size,
                stalled="" if chosen else event.reason,
            )
        case TrialsDispatched():
            return _dispatch(state, event)
        case TrialSucceeded():
            return _succeed(state, event)
        case TrialFailed():
            return _fail(state, event)
        case ModelRefreshed():
            told = set(event.trials)
            return replace(
                state,
                round=event.round,
                dictionary_size=event.dictionary_size,
                finished=tuple(finished for finished in state.finished if finished.trial not in told),
                existing=None,  # the first refresh of all is theirs
                stalled="",
            )
        case StopRequested():
            return replace(state, phase="stopping", stop_reason=event.reason)
        case SessionClosed():
            return replace(state, phase="closed", outcome=event.outcome, close_reason=event.reason)


def _pass_time(state: CampaignState, event: Event) -> CampaignState:
    if isinstance(event, SessionOpened) or state.phase in ("created", "closed"):
        return replace(state, last_time=event.time)
    seconds = max(0.0, event.time - state.last_time)
    return replace(
        state,
        last_time=max(event.time, state.last_time),
        elapsed_seconds=state.elapsed_seconds + seconds,
        capacity_seconds=state.capacity_seconds + seconds * state.slots,
    )


def _open_session(state: CampaignState, event: SessionOpened) -> CampaignState:
    """What was running died with the session before: it goes first now, under a new attempt."""
    lost = tuple(Assignment(trial, run.arm, run.attempt + 1) for trial, run in sorted(state.running.items()))
    return replace(
        state,
        rules=Rules.of(event.settings, event.slots),
        phase="running",
        slots=event.slots,
        epoch=event.epoch,
        stock=lost + state.stock,
        running=MappingProxyType({}),
        session_succeeded=0,
        session_failed=0,
        session_first_failure="",
        stop_reason="",
        close_reason="",
        outcome="",
        stalled="",
    )


def _dispatch(state: CampaignState, event: TrialsDispatched) -> CampaignState:
    sent = dict(event.attempts)
    started = {
        assignment.trial: Running(assignment.arm, sent[assignment.trial], event.time)
        for assignment in state.stock
        if assignment.trial in sent
    }
    return replace(
        state,
        stock=tuple(assignment for assignment in state.stock if assignment.trial not in sent),
        running=MappingProxyType({**state.running, **started}),
    )


def _succeed(state: CampaignState, event: TrialSucceeded) -> CampaignState:
    arm = state.running[event.trial].arm
    sign = 1.0 if state.rules.is_maximized else -1.0
    best = state.best
    if best is None or sign * event.value > sign * best.value:
        best = Best(event.trial, arm, event.value)
    finished = Finished(event.trial, Observation(arm, sign * event.value))
    return replace(
        _end_attempt(state, event, is_over=True),
        finished=(*state.finished, finished),
        succeeded=state.succeeded + 1,
        session_succeeded=state.session_succeeded + 1,
        best=best,
    )


def _fail(state: CampaignState, event: TrialFailed) -> CampaignState:
    run = state.running[event.trial]
    after = _end_attempt(state, event, is_over=event.is_final)
    if not event.is_final:
        losses = add_loss(state.losses.get(event.trial, Losses()), FailureKind(event.failure))
        return replace(
            after,
            stock=(Assignment(event.trial, run.arm, run.attempt + 1), *state.stock),
            losses=MappingProxyType({**state.losses, event.trial: losses}),
        )
    return replace(
        after,
        finished=(*state.finished, Finished(event.trial, Observation(run.arm, None))),
        failed=state.failed + 1,
        session_failed=state.session_failed + 1,
        session_first_failure=state.session_first_failure or f"{event.failure}: {event.message}",
    )


def _end_attempt(state: CampaignState, event: TrialSucceeded | TrialFailed, is_over: bool) -> CampaignState:
    running = {trial: run for trial, run in state.running.items() if trial != event.trial}
    losses = {trial: loss for trial, loss in state.losses.items() if not is_over or trial != event.trial}
    return replace(
        state,
        running=MappingProxyType(running),
        losses=MappingProxyType(losses),
        busy_seconds=state.busy_seconds + max(0.0, event.finished - event.started),
    )


def add_loss(losses: Losses, kind: FailureKind) -> Losses:
    """`losses` after one more failed attempt of this kind."""
    match kind:
        case FailureKind.WORKER_LOST:
            return replace(losses, workers=losses.workers + 1)
        case FailureKind.CANCELLED:
            return losses
        case _:
            return replace(losses, charged=losses.charged + 1)


def is_expected(state: CampaignState, outcome: Outcome) -> bool:
    """Whether this is the first outcome of an attempt that is running; a late or doubled one is not."""
    run = state.running.get(outcome.trial)
    return run is not None and run.attempt == outcome.attempt


def is_final(state: CampaignState, failure: Failure) -> bool:
    """Whether this failure ends its trial for good under the session's rules."""
    losses = add_loss(state.losses.get(failure.trial, Losses()), failure.kind)
    return not state.rules.allows_retry(failure.kind, losses)


def decide(state: CampaignState, now: float) -> Command:
    """What to do next. `now` is read for the time budget only; an open session is assumed."""
    if state.phase == "running":
        reason = _stop_reason(state, now)
        if reason:
            return Stop(reason)
        if state.existing is not None:
            return Begin(state.existing_observations)
        free = state.slots - len(state.running)
        if state.stock and free > 0:
            return Dispatch(state.stock[:free])
    if state.running:
        return Await()
    if state.phase == "stopping":
        return _close_stopped(state)
    if state.finished:
        return Tell(state.finished)
    return _between_batches(state)


def _stop_reason(state: CampaignState, now: float) -> str:
    rules = state.rules
    if rules.target is not None and state.best is not None:
        sign = 1.0 if rules.is_maximized else -1.0
        if sign * state.best.value >= sign * rules.target:
            return "target reached"
    if rules.seconds is not None and state.elapsed_seconds + max(0.0, now - state.last_time) >= rules.seconds:
        return "time budget spent"
    if state.session_succeeded == 0 and state.session_failed >= rules.failures_before_giving_up:
        return "everything fails"
    return ""


def _between_batches(state: CampaignState) -> Command:
    """Nothing is running and the strategy knows everything: choose, or end."""
    if state.remaining and not state.stalled:
        return Ask(pending=(), limit=state.remaining)
    if state.succeeded == 0:
        return Close("failed", _nothing_succeeded(state))
    return Close("finished", state.stalled or "budget spent")


def _close_stopped(state: CampaignState) -> Command:
    """A stopped session leaves half a batch untold: told now, a resume could not go on with the same batch."""
    if state.stop_reason == "everything fails":
        return Close("failed", _nothing_succeeded(state))
    if state.stop_reason == "interrupted":
        return Close("interrupted", "interrupted")
    return Close("finished", state.stop_reason)


def _nothing_succeeded(state: CampaignState) -> str:
    return (
        f"all {state.session_failed} evaluations of this session failed; the first one with "
        f"{state.session_first_failure or 'no message'}"
    )
