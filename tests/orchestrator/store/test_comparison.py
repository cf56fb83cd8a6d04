"""Tests of `orchestrator.store.verify.compare`: a log and a copy of it, event by event."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from orchestrator.campaign.endings import SessionOutcome
from orchestrator.campaign.events import SessionClosed
from orchestrator.errors import RunError
from orchestrator.store.event_store import EventStore
from orchestrator.store.rows import encode
from orchestrator.store.verify import LogComparison, compare


def stop(number: int) -> SessionClosed:
    return SessionClosed(time=float(number), outcome=SessionOutcome.FINISHED, reason=f"number {number}")


@pytest.fixture
def log(tmp_path: Path) -> EventStore:
    store = EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")
    store.create("c", [stop(0)])
    store.claim("c", "me").append([stop(number) for number in range(1, 1500)])
    store.close()
    return store


def copy_store(tmp_path: Path) -> EventStore:
    return EventStore(f"sqlite:///{shutil.copy(tmp_path / 'c.sqlite', tmp_path / 'copy.sqlite')}")


def test_copy_equals_the_beginning_of_a_longer_log(log: EventStore, tmp_path: Path) -> None:
    copy = copy_store(tmp_path)
    assert compare(log, copy, "c") == LogComparison(1500)
    log.claim("c", "me").append([stop(1500), stop(1501)])
    compared = compare(log, copy, "c")
    assert compared == LogComparison(1500, newer=2)
    assert compared.is_same
    behind = compare(copy, log, "c")
    assert behind == LogComparison(1500, older=2)
    assert not behind.is_same


def test_comparison_reveals_a_change_with_recomputed_checksums(log: EventStore, tmp_path: Path) -> None:
    copy = copy_store(tmp_path)
    changed = [stop(number if number != 700 else 7) for number in range(1, 1500)]
    rows, head = encode("c", 1, 1, changed, log.checksum_before("c", 1) or 0)
    with sqlite3.connect(tmp_path / "c.sqlite") as raw:
        raw.executemany("UPDATE bbkb_events SET body = :body, checksum = :checksum WHERE position = :position", rows)
        raw.execute("UPDATE bbkb_campaigns SET head = ?", (head,))
    raw.close()
    assert len(list(log.read("c"))) == 1500  # the chain itself is sound
    compared = compare(log, copy, "c")
    assert compared == LogComparison(700, difference=700)
    assert not compared.is_same


def test_comparison_rejects_a_copy_of_another_run(log: EventStore, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is it a copy of another run"):
        compare(log, copy_store(tmp_path), "d")
