"""Runs that are named: found again, never started twice, on every database; snapshots hold the state of their log."""

import errno
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import CampaignCreated, Event
from bbkb.orchestrator.campaign.settings import Settings, plain
from bbkb.orchestrator.campaign.state import CampaignState, Clock, Session
from bbkb.orchestrator.errors import RunError, StoreError
from bbkb.orchestrator.session.build import Parts, build
from bbkb.orchestrator.session.open import create_run, first_events, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store import runs, snapshots
from tests.orchestrator.events import fold
from tests.orchestrator.store.raw import change
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present


@pytest.fixture
def settings(tmp_path: Path, database_url: str, campaign: str) -> Settings:
    return from_mapping(
        {
            "name": "sine",
            "objective": {"name": "sine"},
            "candidates": {"size": 20},
            "strategy": {"name": "uniform"},
            "budget": {"evaluations": 5},
            "store": "sqlite" if database_url.startswith("sqlite") else database_url,
            "runs": str(tmp_path / "runs"),
            "run": campaign,
        }
    )


def with_keys(settings: Settings, **keys: Any) -> Settings:
    return from_mapping({**plain(settings), **keys})


@pytest.fixture
def parts(settings: Settings) -> Parts:
    return build(settings)


def start(settings: Settings, parts: Parts, began: str = "a test") -> runs.Run:
    return runs.create(settings, first_events(settings, parts), began)


def test_find_returns_a_named_run_that_has_begun(settings: Settings, parts: Parts) -> None:
    assert runs.find(settings) is None
    begun = start(settings, parts)
    assert begun.folder == Path(settings.runs).resolve() / str(settings.run)
    assert runs.find(settings) == begun == runs.open_run(begun.folder)
    assert runs.find(with_keys(settings, run=None)) is None


def test_create_rejects_an_existing_named_run(settings: Settings, parts: Parts) -> None:
    start(settings, parts)
    begun = present(runs.find(settings))
    before = begun.settings_file.read_bytes()
    with pytest.raises(RunError, match=r"is in .* already"):
        start(with_keys(settings, seed=7), parts)
    assert begun.settings_file.read_bytes() == before


def test_create_reuses_a_named_folder_without_a_log(settings: Settings, parts: Parts) -> None:
    (Path(settings.runs) / str(settings.run)).mkdir(parents=True)
    assert runs.find(settings) is None
    assert len(start(settings, parts).events()) == 1


def test_find_returns_a_campaign_in_a_database_without_its_folder(
    settings: Settings, parts: Parts, tmp_path: Path, database_url: str
) -> None:
    settings = with_keys(settings, store=database_url)  # of a file that is not in the run's folder, or of a server
    start(settings, parts)
    run = present(runs.find(with_keys(settings, runs=str(tmp_path / "elsewhere"))))
    assert run.folder == tmp_path / "elsewhere" / str(settings.run)
    assert not run.folder.exists()
    runs.make_folder(run.folder)
    assert run.folder.is_dir()
    assert len(run.events()) == 1


def test_create_rejects_a_link_as_the_runs_folder(settings: Settings, parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    named, root = with_keys(settings, run="one"), Path(settings.runs)
    root.mkdir(exist_ok=True)
    (root / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="one must not be a link"):
        start(named, parts)
    assert not list((tmp_path / "elsewhere").iterdir())
    (root / "two").symlink_to(root / "two")
    with pytest.raises(RunError, match="is a link to itself"):
        start(with_keys(settings, run="two"), parts)
    with pytest.raises(RunError, match="is a link to itself"):
        runs.open_run(root / "two")


def test_create_reports_a_folder_that_cannot_be_created(settings: Settings, parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot be created .*: set `runs:`"):
        start(with_keys(settings, runs=str(tmp_path / "file")), parts)


def test_create_makes_private_files_and_leaves_nothing_after_an_error(
    settings: Settings, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = start(with_keys(settings, run=None), parts)
    assert stat.S_IMODE(begun.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in begun.folder.iterdir()} == {0o600}

    def raise_disk_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(RunError, match=r"cannot be written: No space left on device; free some space"):
        start(with_keys(settings, run=None, name="other"), parts)
    assert [path.name for path in Path(settings.runs).iterdir()] == [begun.folder.name]


def test_renamed_folder_keeps_its_campaign(settings: Settings, parts: Parts, tmp_path: Path) -> None:
    begun = start(with_keys(settings, run=None), parts)
    renamed = runs.open_run(begun.folder.rename(tmp_path / "renamed"))
    assert renamed.name == begun.name
    assert len(renamed.events()) == 1


def test_run_writes_and_shows_no_password(settings: Settings, parts: Parts, database_url: str) -> None:
    complete = database_url.replace("postgresql://tester@", "postgresql://tester:hunter2@")
    with_password = with_keys(settings, store=complete)
    begun = "bbkb run x.yaml --set store=postgresql://tester:hunter2@db/results"
    run = start(with_password, parts, begun)
    written = [path.read_bytes() for path in run.folder.iterdir()]
    with run.store() as store:
        written += [row.body.encode() for row in store.rows(run.name, 0)]
    assert not [content for content in written if b"hunter2" in content]
    assert "hunter2" not in repr(run)
    assert "hunter2" not in str(plain(with_password))


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


def test_snapshot_restores_an_equal_state_at_any_position(run: runs.Run, log: list[Event]) -> None:
    with run.store() as store:
        writer = store.claim("c", "test")
        for position in range(1, len(log) + 1, 7):
            state = fold(*log[:position])
            snapshots.save(writer, position, state)
            assert snapshots.load(store, "c") == (position, state)
            assert snapshots.current(run, store) == fold(*log)


def test_snapshot_restores_infinities_and_nan(run: runs.Run, log: list[Event]) -> None:
    state = replace(fold(*log), clock=Clock(elapsed_seconds=math.inf, busy_seconds=-math.inf))
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
        assert snapshots.current(run, store) == fold(*log)


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_log_without_its_last_events_is_rejected(run: runs.Run, log: list[Event], has_snapshot: bool) -> None:
    with run.store() as store:
        snapshots.save(
            store.claim("c", "test"), len(log) if has_snapshot else 1, fold(*(log if has_snapshot else log[:1]))
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
        assert snapshots.load(store, new_run.name) == (len(events), fold(*events))
