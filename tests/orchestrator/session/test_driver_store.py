"""The loop and its store: the times of writes, a store that is unreachable, a writer that is fenced
off."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from bbkb.orchestrator.campaign.commands import Close
from bbkb.orchestrator.campaign.events import RunState, SessionOutcome, TrialSucceeded
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.errors import FencedError, StoreError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.store.store import Writer
from bbkb.workers.executor import Executor
from tests.orchestrator.session.parabola import Campaign


def test_result_is_stored_before_anything_acts_on_it(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, slots=1, evaluations=8)
    inner = campaign.simulated_executor()
    stored_when_submitting: list[int] = []

    class Watched:
        slots = 1
        handed_out = acknowledged = 0

        def submit(self, trials: Sequence[Any]) -> None:
            stored = sum(isinstance(event, TrialSucceeded) for event in campaign.events())
            stored_when_submitting.append(stored)
            assert stored == self.handed_out == self.acknowledged
            inner.submit(trials)

        def next_outcomes(self, timeout: float | None) -> list[Any]:
            outcomes = inner.next_outcomes(timeout)
            self.handed_out += len(outcomes)
            return outcomes

        def acknowledge(self, attempts: Any) -> None:
            self.acknowledged += len(attempts)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    campaign.run(cast(Executor, Watched()))
    assert stored_when_submitting == list(range(8))


def test_writer_that_was_fenced_off_stops_without_writing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()

    def take_over(status: Status) -> None:
        if status.trials.succeeded == 3:
            campaign.store.claim("c", "a usurper")

    with pytest.raises(FencedError, match="a usurper"):
        campaign.driver(executor, take_over).run(campaign.session_event(executor))
    assert fold(campaign.events()).state == RunState.UNFINISHED


def fail_appends(monkeypatch: pytest.MonkeyPatch, calls: range, error: StoreError) -> None:
    """Make the appends with these numbers fail."""
    append, numbers = Writer.append, itertools.count()

    def append_or_fail(self: Writer, events: Any, position: int | None = None) -> None:
        if next(numbers) in calls:
            raise error
        append(self, events, position)

    monkeypatch.setattr(Writer, "append", append_or_fail)
    monkeypatch.setattr("bbkb.orchestrator.session.recorder._STORE_RETRY_SECONDS", 0.001)


def test_driver_retries_while_the_store_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(tmp_path)
    fail_appends(monkeypatch, range(3, 6), StoreError("the server restarts", is_transient=True))
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert len(fold(campaign.events()).succeeded) == 30


@pytest.mark.parametrize("is_transient", [True, False])
def test_session_ends_if_the_store_stays_unreachable_and_leaves_evaluations_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_transient: bool
) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    closed: list[Any] = []
    with monkeypatch.context() as patched:
        fail_appends(patched, range(5, 10**6), StoreError("the disk is full", is_transient))
        patched.setattr("bbkb.orchestrator.session.recorder.STORE_PATIENCE_SECONDS", 0.01)
        patched.setattr(executor, "close", closed.append)
        with pytest.raises(StoreError, match="the disk is full"):
            campaign.run(executor)
    assert closed == [True]
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
