"""The bookkeeping of `verify`, event by event, and its findings.

It is separate from `campaign.apply` on purpose: if the two disagree about a log, one of them is
wrong, and that is reported too. Every problem is reported with its place, not only the first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.campaign.events import (
    AttemptEnded,
    BatchChosen,
    CampaignCreated,
    CandidatesGrown,
    CheckpointsRemoved,
    Event,
    ExistingTaken,
    ModelRefreshed,
    SessionClosed,
    SessionOpened,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialsReopened,
    TrialStopped,
    TrialSucceeded,
)
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.errors import StoreError
from orchestrator.store.event_store import EventStore
from orchestrator.store.rows import Row
from orchestrator.store.store import Extent
from orchestrator.wording import moment


@dataclass(frozen=True, slots=True)
class PendingAttempt:
    """An attempt that a resume would begin."""

    trial: int
    arm: int
    attempt: int

    def __str__(self) -> str:
        return f"trial {self.trial} (arm {self.arm}, attempt {self.attempt})"


@dataclass(frozen=True, slots=True)
class Findings:
    """What was checked and found. `problems` are damage, `notes` are not."""

    campaign: str
    events: int
    sessions: int
    checksums: int  # events whose checksum was compared
    holder: str  # the process that runs it now; empty: none
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    again: tuple[PendingAttempt, ...]  # running when the log ends
    waiting: tuple[PendingAttempt, ...]  # chosen, or failed with another attempt to come
    untold: int  # ended, and the strategy has not learned the result yet

    def lines(self) -> Iterator[str]:
        """Yield the findings as text."""
        yield (
            f"checked: {self.events} events of {self.campaign} in {self.sessions} sessions, {self.checksums} checksums"
        )
        yield from (f"note: {note}" for note in self.notes)
        yield from (f"problem: {problem}" for problem in self.problems)
        again = ", ".join(map(str, self.again)) or "nothing"
        yield (f"running in {self.holder}: {again}" if self.holder else f"a resume would run again: {again}")
        yield f"waiting: {', '.join(map(str, self.waiting)) or 'nothing'}"
        yield f"over and not yet in the model: {self.untold}"
        yield f"damaged: {len(self.problems)} problems" if self.problems else "sound"


@dataclass(slots=True)  # there is one for every trial of the log
class _Trial:
    arm: int
    state: Literal["waiting", "running", "over", "learned"] = "waiting"
    attempt: int = 0
    has_succeeded: bool = False
    is_stopped: bool = False
    has_no_checkpoint: bool = False


@dataclass
class Audit:
    """The bookkeeping with its `problems`; `state`: the fold of the same events by `apply`."""

    store: EventStore
    campaign: str
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    trials: dict[int, _Trial] = field(default_factory=dict)
    previous: int | None = 0  # checksum of the event before
    is_gap: bool = False  # whether that one is missing
    arms: int = 0
    events: int = 0
    sessions: int = 0
    checksums: int = 0
    epoch: int = 0
    round: int = 0
    time: float = float("-inf")
    is_open: bool = False
    state: CampaignState | None = field(default_factory=CampaignState)  # None: it can no longer be known

    def skip(self) -> None:
        """Note that events before the next one are missing, so its predecessor is unknown."""
        self.is_gap = True

    def take(self, row: Row) -> None:
        """Check one event and record it."""
        self.events += 1
        self.checksums += row.checksum is not None
        previous, self.previous = self.previous, row.checksum
        if self.is_gap:  # the broken chain is reported already
            self.is_gap, self.state = False, None
            return
        try:
            event = self.store.event(self.campaign, row, previous)
        except StoreError as error:
            self.problems.append(str(error))
            self.state = None
            return
        wrong = [*self._check_place(row, event), *self._book(event)]
        if event.kind != row.kind:
            wrong.append(f"its body says {event.kind}")
        self.problems += [f"event {row.position} ({row.kind}): {what}" for what in wrong]
        self._check_clock(row, event)
        self._apply(row, event, bool(wrong))

    def compare_head(self, extent: Extent) -> None:
        """Check that the last event is the one that was written last."""
        if extent.head is not None and not self.is_gap and self.previous != extent.head:
            self.problems.append("the log does not end with the event that was written last: its end was replaced")

    def compare(self) -> None:
        """Check that `campaign.apply` gives the same totals."""
        if self.state is None:
            self.notes.append("what `status` counts was not compared: the log is damaged before its end")
            return
        ours: Mapping[str, object] = {
            "trials": len(self.trials),
            "succeeded": sum(trial.has_succeeded for trial in self.trials.values()),
            "failed": sum(
                trial.state in ("over", "learned") and not trial.has_succeeded and not trial.is_stopped
                for trial in self.trials.values()
            ),
            "stopped early": sum(trial.is_stopped for trial in self.trials.values()),
            "running": {again.trial: again.attempt for again in self._attempts("running")},
            "waiting": {again.trial for again in self._attempts("waiting")},
            "not yet in the model": {number for number, trial in self.trials.items() if trial.state == "over"},
        }
        theirs: Mapping[str, object] = {
            "trials": self.state.totals.chosen,
            "succeeded": self.state.totals.succeeded,
            "failed": self.state.totals.failed,
            "stopped early": self.state.totals.stopped,
            "running": {trial: run.attempt for trial, run in self.state.running.items()},
            "waiting": {assignment.trial for assignment in self.state.backlog},
            "not yet in the model": {finished.trial for finished in self.state.finished},
        }
        self.problems += [
            f"{name}: the events count {count}, `status` counts {theirs[name]}"
            for name, count in ours.items()
            if count != theirs[name]
        ]

    def findings(self, holder: str) -> Findings:
        """Return all of it."""
        old = self.events - self.checksums
        notes = [f"{old} events of an older version carry no checksum"] if old else []
        return Findings(
            campaign=self.campaign,
            events=self.events,
            sessions=self.sessions,
            checksums=self.checksums,
            holder=holder,
            problems=tuple(self.problems),
            notes=(*notes, *self.notes),
            again=tuple(self._attempts("running", 0 if holder else 1)),
            waiting=tuple(self._attempts("waiting", 1)),
            untold=sum(trial.state == "over" for trial in self.trials.values()),
        )

    def _attempts(self, state: str, later: int = 0) -> list[PendingAttempt]:
        return [
            PendingAttempt(number, trial.arm, trial.attempt + later)
            for number, trial in self.trials.items()
            if trial.state == state
        ]

    def _check_place(self, row: Row, event: Event) -> Iterator[str]:
        """Yield what is wrong with a place: epochs never fall, and begin with a session."""
        if (row.position == 0) != isinstance(event, CampaignCreated):
            yield "a log begins with the campaign's creation, and has only one"
        if row.epoch < self.epoch:
            yield f"its epoch must not fall, but {row.epoch} follows {self.epoch}"
        if row.epoch > self.epoch and not isinstance(event, SessionOpened | TrialsReopened):
            yield f"epoch {row.epoch} must begin with the opening of its session"
        if isinstance(event, SessionOpened) and (event.epoch != row.epoch or row.epoch <= self.epoch):
            yield f"a session must open a new epoch, got {event.epoch} in epoch {row.epoch} after {self.epoch}"
        is_enqueued = isinstance(event, BatchChosen) and event.is_enqueued
        is_before = isinstance(event, CampaignCreated | ExistingTaken) or is_enqueued
        if is_before and row.epoch:
            yield "it belongs before the first session"
        if isinstance(event, TrialsReopened):
            self.is_open = False  # written under a separate claim
        elif not is_before and not isinstance(event, SessionOpened) and not self.is_open:
            yield "no session is open"
        self.epoch = max(self.epoch, row.epoch)

    def _book(self, event: Event) -> Iterator[str]:
        match event:
            case CampaignCreated():
                self.arms = event.arms
            case SessionOpened():
                yield from self._book_opening(event)
            case BatchChosen():
                yield from self._book_batch(event)
            case TrialsDispatched():
                yield from self._book_dispatch(event)
            case TrialSucceeded() | TrialFailed() | TrialStopped():
                yield from self._book_end(event)
            case TrialsReopened() | TrialsContinued():
                yield from self._book_return(event)
            case CheckpointsRemoved():
                yield from self._book_removal(event)
            case ModelRefreshed():
                yield from self._book_refresh(event)
            case CandidatesGrown():
                yield from self._book_growth(event)
            case SessionClosed():
                self.is_open = False
            case _:
                pass

    def _book_growth(self, event: CandidatesGrown) -> Iterator[str]:
        if event.first != self.arms:
            yield f"arm {self.arms} is next, got {event.first}"
        sizes = {len(column) for column in event.columns.values()}
        if len(sizes) > 1:
            yield f"candidates were appended with columns of different lengths: {sorted(sizes)}"
        self.arms += max(sizes, default=0)
        for arm in event.retired:
            if not 0 <= arm < event.first:
                yield f"arm {arm} was retired, which is none of the {event.first} arms before"

    def _book_opening(self, event: SessionOpened) -> Iterator[str]:
        self.sessions, self.is_open = self.sessions + 1, True
        for number in event.adopted:
            if number not in self.trials or self.trials[number].state != "running":
                yield f"trial {number} cannot be adopted: it was not running"
        for number, trial in self.trials.items():
            if trial.state == "running" and number not in event.adopted:
                trial.state = "waiting"

    def _book_batch(self, event: BatchChosen) -> Iterator[str]:
        for pick in event.picks:
            if pick.trial != len(self.trials):
                yield f"trial {len(self.trials)} is next, got {pick.trial}"
            if not 0 <= pick.arm < self.arms:
                yield f"trial {pick.trial} must be of one of {self.arms} arms, got arm {pick.arm}"
            if pick.trial not in self.trials:
                self.trials[pick.trial] = _Trial(pick.arm)

    def _book_dispatch(self, event: TrialsDispatched) -> Iterator[str]:
        for number, attempt in event.attempts:
            trial = self.trials.get(number)
            if trial is None:
                yield f"trial {number} was dispatched and never chosen"
                continue
            if trial.state != "waiting":
                yield f"trial {number} was dispatched while {trial.state}"
            if attempt != trial.attempt + 1:
                yield f"trial {number}: attempt {trial.attempt + 1} is next, got {attempt}"
            trial.state, trial.attempt = "running", attempt

    def _book_end(self, event: AttemptEnded) -> Iterator[str]:
        trial = self.trials.get(event.trial)
        if trial is None:
            yield f"an outcome of trial {event.trial}, which was never chosen"
            return
        if trial.state != "running" or trial.attempt != event.attempt:
            yield (
                f"an outcome of trial {event.trial}, attempt {event.attempt}, which is not running: its attempt "
                f"{trial.attempt} is {trial.state}"
            )
        trial.has_succeeded = trial.has_succeeded or isinstance(event, TrialSucceeded)
        trial.is_stopped = trial.is_stopped or isinstance(event, TrialStopped)
        is_over = not isinstance(event, TrialFailed) or event.is_final
        trial.state = "over" if is_over else "waiting"

    def _book_return(self, event: TrialsReopened | TrialsContinued) -> Iterator[str]:
        """Let trials that had failed, or had been stopped, wait for another attempt."""
        is_continued = isinstance(event, TrialsContinued)
        verb, rule = ("continued", "been stopped") if is_continued else ("reopened", "failed")
        for returned in event.trials:
            trial = self.trials.get(returned.trial)
            is_ended = trial is not None and trial.state in ("over", "learned") and not trial.has_succeeded
            if trial is None or not is_ended or trial.is_stopped != is_continued:
                yield f"trial {returned.trial} was {verb}, and had not {rule}"
                continue
            if (returned.arm, returned.attempt) != (trial.arm, trial.attempt):
                place = f"arm {returned.arm}, attempt {returned.attempt}"
                yield f"trial {returned.trial} was {verb} as {place}; it is another"
            if is_continued and trial.has_no_checkpoint:
                yield f"trial {returned.trial} was continued after its checkpoint was removed"
            trial.state, trial.is_stopped = "waiting", False

    def _book_removal(self, event: CheckpointsRemoved) -> Iterator[str]:
        for number in event.trials:
            trial = self.trials.get(number)
            if trial is None or trial.state not in ("over", "learned") or not trial.is_stopped:
                yield f"the checkpoint of trial {number} was removed, and it had not been stopped"
            else:
                trial.has_no_checkpoint = True

    def _book_refresh(self, event: ModelRefreshed) -> Iterator[str]:
        if event.round != self.round + 1:
            yield f"refresh {self.round + 1} is next, got {event.round}"
        self.round = event.round
        for number in event.trials:
            trial = self.trials.get(number)
            if trial is None or trial.state != "over":
                state = "unknown" if trial is None else trial.state
                yield f"trial {number} was learned by the strategy, and is {state}"
            else:
                trial.state = "learned"

    def _check_clock(self, row: Row, event: Event) -> None:
        if event.time < self.time:
            behind = self.time - event.time
            self.notes.append(
                f"event {row.position} ({row.kind}): the clock went back by {behind:.3f} s to {moment(event.time)} "
                "(two machines?); nothing depends on it"
            )
        self.time = event.time

    def _apply(self, row: Row, event: Event, is_wrong: bool) -> None:
        if self.state is None or is_wrong:
            self.state = None
            return
        try:
            self.state = apply(self.state, event)
        except Exception as error:  # any error: the audit found nothing, and the campaign cannot continue from here
            self.problems.append(f"event {row.position} ({row.kind}) does not apply: {type(error).__name__}: {error}")
            self.state = None
