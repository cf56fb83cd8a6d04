"""A glance agrees with the event store, or it leaves the log to the event store."""

import functools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.history.overview import overview_of, read_overview
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.glance import glance
from bbkb.orchestrator.store.notes import new_note
from bbkb.orchestrator.store.runs import Run
from tests.orchestrator.synthetic_log import SyntheticLog

EVENTS = SyntheticLog(trials=30, failure_share=0.3, sessions=2).events()
LAST = len(EVENTS) - 1
OPENED = max(position for position, event in enumerate(EVENTS) if event.kind == "session_opened")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with a snapshot of its end and a note."""
    run = Run(tmp_path, f"sqlite:///{tmp_path / 'campaign.sqlite'}", "demo")
    with run.store() as store:
        store.create(run.name, EVENTS[:1])
        writer = store.claim(run.name, "test")
        writer.append(EVENTS[1:])
        snapshots.save(writer, len(EVENTS), functools.reduce(apply, EVENTS, CampaignState()))
        store.add_note(run.name, new_note(tags=["seen"]))
    return run


def test_glance_agrees_with_the_event_store(run: Run) -> None:
    seen = glance(run.store_url, run.name)
    assert seen is not None
    with run.store() as store:
        assert (seen.created, seen.state) == snapshots.current(run, store)
        assert seen.settings == run.recorded_settings(store)
        assert seen.notes == store.notes(run.name)
        assert seen.holding == store.holding(run.name)
        assert seen.length == store.length(run.name)
        assert overview_of(seen.created, seen.state, seen.settings, seen.notes) == read_overview(run, store)
    assert sorted(path.name for path in run.folder.iterdir()) == ["campaign.sqlite"]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM bbkb_events WHERE position = 0",
        f"DELETE FROM bbkb_events WHERE position = {LAST}",
        f"INSERT INTO bbkb_events SELECT campaign, {LAST + 1}, epoch, kind, body, 1, version FROM bbkb_events LIMIT 1",
        "UPDATE bbkb_events SET body = '{}' WHERE position = 0",
        "UPDATE bbkb_events SET body = body || ' ' WHERE position = 0",
        f"UPDATE bbkb_events SET body = x'ff' WHERE position = {OPENED}",
        f"UPDATE bbkb_events SET checksum = 1 WHERE position = {LAST}",
        "UPDATE bbkb_campaigns SET length = 'many'",
        "UPDATE bbkb_campaigns SET length = length + 1",
        "UPDATE bbkb_snapshots SET position = position - 1",
        "UPDATE bbkb_snapshots SET head = 1",
        "UPDATE bbkb_snapshots SET body = replace(body, '1', '2')",
        "UPDATE bbkb_snapshots SET version = 'older'",
        "DELETE FROM bbkb_snapshots",
        "UPDATE bbkb_schema SET version = 99",
        "UPDATE bbkb_notes SET tags = '{'",
        "DROP TABLE bbkb_holders",
    ],
)
def test_glance_leaves_unusual_logs_to_the_event_store(run: Run, statement: str) -> None:
    with closing(sqlite3.connect(run.folder / "campaign.sqlite")) as database, database:
        assert database.execute(statement).rowcount != 0
    assert glance(run.store_url, run.name) is None


def test_glance_leaves_other_stores_to_the_event_store(run: Run) -> None:
    assert glance(run.store_url, "another") is None
    assert glance("postgresql://host/database", run.name) is None
    assert glance(f"{run.store_url}-missing", run.name) is None
    file = run.folder / "campaign.sqlite"
    file.write_bytes(file.read_bytes()[:5000])
    assert glance(run.store_url, run.name) is None
