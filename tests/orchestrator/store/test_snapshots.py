"""A snapshot holds the state of its log, or it is not used."""

import functools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import CampaignCreated, Event
from bbkb.orchestrator.campaign.state import CampaignState, Clock, Session
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store import runs, snapshots
from tests.orchestrator.store.raw import change
from tests.orchestrator.synthetic_log import SyntheticLog


@pytest.fixture
def log() -> list[Event]:
    return SyntheticLog(trials=60, failure_share=0.3, sessions=3).events()


@pytest.fixture
def run(tmp_path: Path, log: list[Event]) -> runs.Run:
    (created, *later) = log
    assert isinstance(created, CampaignCreated)
    stored_run = runs.Run(tmp_path, f"sqlite:///{tmp_path / 'c.sqlite'}", "c")
    with stored_run.store() as store:
        store.create("c", [created])
        store.claim("c", "test").append(later)
    return stored_run


def fold(events: list[Event]) -> CampaignState:
    return functools.reduce(apply, events, CampaignState())


def test_snapshot_restores_an_equal_state_at_any_position(run: runs.Run, log: list[Event]) -> None:
    with run.store() as store:
        writer = store.claim("c", "test")
        for position in range(1, len(log) + 1, 7):
            state = fold(log[:position])
            snapshots.save(writer, position, state)
            assert snapshots.load(store, "c") == (position, state)
            assert snapshots.current(run, store) == fold(log)


def test_snapshot_restores_infinities_and_nan(run: runs.Run, log: list[Event]) -> None:
    state = replace(fold(log), clock=Clock(elapsed_seconds=math.inf, busy_seconds=-math.inf))
    with run.store() as store:
        snapshots.save(store.claim("c", "test"), len(log), state)
        assert snapshots.load(store, "c") == (len(log), state)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE bbkb_snapshots SET body = 'damaged'",
        "UPDATE bbkb_snapshots SET body = replace(body, '99', '98')",
        "UPDATE bbkb_snapshots SET position = ':'",
        "UPDATE bbkb_snapshots SET version = 'another'",
        "UPDATE bbkb_snapshots SET head = head + 1",
        "UPDATE bbkb_snapshots SET position = position - 1",
        "DELETE FROM bbkb_snapshots",
    ],
)
def test_snapshot_that_does_not_match_is_not_used(run: runs.Run, log: list[Event], damage: str, tmp_path: Path) -> None:
    with run.store() as store:
        snapshots.save(store.claim("c", "test"), len(log) // 2, CampaignState(session=Session(slots=99)))
        change(tmp_path / "c.sqlite", damage)
        assert snapshots.current(run, store) == fold(log)


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_log_without_its_last_events_is_rejected(run: runs.Run, log: list[Event], has_snapshot: bool) -> None:
    with run.store() as store:
        snapshots.save(
            store.claim("c", "test"), len(log) if has_snapshot else 1, fold(log if has_snapshot else log[:1])
        )
        change(run.folder / "c.sqlite", f"DELETE FROM bbkb_events WHERE position >= {len(log) - 3}")
        with pytest.raises(StoreError, match=f"event {len(log) - 3} of 'c' is missing"):
            snapshots.current(run, store)


def test_session_writes_a_snapshot_at_its_end(tmp_path: Path) -> None:
    settings = from_mapping(
        {
            "name": "left",
            "objective": {"name": "branin"},
            "candidates": {"size": 50},
            "strategy": {"name": "uniform"},
            "budget": {"evaluations": 20},
            "workers": {"executor": "simulated", "count": 4},
            "runs": str(tmp_path),
        }
    )
    new_run = create_run(settings, build(settings))
    open_session(new_run, settings).run()
    events = new_run.events()
    with new_run.store() as store:
        assert snapshots.load(store, new_run.name) == (len(events), fold(events))
