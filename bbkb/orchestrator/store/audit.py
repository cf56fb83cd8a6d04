"""The checks that `verify` makes for each event, and its findings.

It reports every problem with its position, not only the first one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    ExistingTaken,
    SessionOpened,
    TrialsReopened,
)
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store.books import Books, PendingAttempt
from bbkb.orchestrator.store.event_store import EventStore
from bbkb.orchestrator.store.rows import Row
from bbkb.orchestrator.store.store import Extent
from bbkb.orchestrator.wording import moment, plural


@dataclass
class Audit:
    """Checks the events of a log one by one. `problems` are damage; `notes` are not."""

    store: EventStore
    campaign: str
    holder: str  # the process that runs the campaign; empty if none does
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    books: Books = field(default_factory=Books)
    state: CampaignState | None = field(default_factory=CampaignState)  # None after damage
    events: int = 0
    checksums: int = 0  # the number of events whose checksum was compared
    previous: int | None = 0  # the checksum of the previous event
    is_gap: bool = False  # whether events before the next one are missing
    epoch: int = 0
    time: float = float("-inf")

    @property
    def again(self) -> list[PendingAttempt]:
        """The attempts running at the end of the log; if no process runs them, those of a resume."""
        return self.books.attempts("running", 0 if self.holder else 1)

    @property
    def waiting(self) -> list[PendingAttempt]:
        """The attempts chosen, or failed and to be retried."""
        return self.books.attempts("waiting", 1)

    def lines(self) -> Iterator[str]:
        """Yield the findings as text."""
        yield (
            f"checked: {self.events} events of {self.campaign} in {plural(self.books.sessions, 'session')}, "
            f"{self.checksums} checksums"
        )
        if old := self.events - self.checksums:
            yield f"note: {old} events of an older version carry no checksum"
        yield from (f"note: {note}" for note in self.notes)
        yield from (f"problem: {problem}" for problem in self.problems)
        again = ", ".join(map(str, self.again)) or "nothing"
        yield f"running in {self.holder}: {again}" if self.holder else f"a resume would run again: {again}"
        yield f"waiting: {', '.join(map(str, self.waiting)) or 'nothing'}"
        yield f"ended and not yet in the model: {len(self.books.unlearned())}"
        yield f"damaged: {len(self.problems)} problems" if self.problems else "sound"

    def take(self, row: Row) -> None:
        """Check one event and record it."""
        self.events += 1
        self.checksums += row.checksum is not None
        event = self._read(row)
        if event is None:
            self.state = None
            return
        broken = [*self._check_order(row, event), *self.books.record(event)]
        self.problems += [f"event {row.position} ({row.kind}): {rule}" for rule in broken]
        self._check_clock(row, event)
        self._apply(row, event, is_wrong=bool(broken))

    def compare(self, extent: Extent) -> None:
        """Check that the log ends with the event that was written last, and that `campaign.apply`
        results in the same totals."""
        if extent.head is not None and not self.is_gap and self.previous != extent.head:
            self.problems.append("the log does not end with the event that was written last: its end was replaced")
        if self.state is None:
            self.notes.append("the counts of `status` were not compared: the log is damaged before its end")
        else:
            self.problems += self.books.differences(self.state)

    def _read(self, row: Row) -> Event | None:
        """Return the event; None if it is damaged or follows a gap, which is already reported."""
        previous = self.previous
        self.previous = row.checksum
        if self.is_gap:
            self.is_gap = False
            return None
        try:
            return self.store.event(self.campaign, row, previous)
        except StoreError as error:
            self.problems.append(str(error))
            return None

    def _check_order(self, row: Row, event: Event) -> list[str]:
        """Return the rules about epochs and sessions that the event breaks."""
        is_created = isinstance(event, CampaignCreated)
        is_opening = isinstance(event, SessionOpened)
        is_reopening = isinstance(event, TrialsReopened)  # written under its own claim
        is_enqueued = isinstance(event, BatchChosen) and event.is_enqueued
        is_early = is_enqueued or isinstance(event, CampaignCreated | ExistingTaken)
        opened: int = getattr(event, "epoch", row.epoch)
        rules = [
            (
                (row.position == 0) != is_created,
                "a log begins with the campaign's creation, and has only one",
            ),
            (
                row.epoch < self.epoch,
                f"its epoch must not fall, but {row.epoch} follows {self.epoch}",
            ),
            (
                row.epoch > self.epoch and not (is_opening or is_reopening),
                f"epoch {row.epoch} must begin with the opening of its session",
            ),
            (
                is_opening and not self.epoch < row.epoch == opened,
                f"a session must open a new epoch, got {opened} in epoch {row.epoch} after {self.epoch}",
            ),
            (is_early and row.epoch, "it belongs before the first session"),
            (
                not (is_early or is_opening or is_reopening or self.books.is_open),
                "no session is open",
            ),
        ]
        if is_reopening:
            self.books.is_open = False
        self.epoch = max(self.epoch, row.epoch)
        return [rule for is_broken, rule in rules if is_broken]

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
        except Exception as error:  # the campaign's state is unknown from here on
            self.problems.append(f"event {row.position} ({row.kind}) does not apply: {type(error).__name__}: {error}")
            self.state = None
