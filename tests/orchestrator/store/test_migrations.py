"""Logs of older versions are read and continued; those of newer ones are rejected."""

import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bbkb.orchestrator.campaign.endings import StopReason
from bbkb.orchestrator.campaign.events import SessionClosed, StopRequested
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.errors import StoreError
from bbkb.orchestrator.store.event_store import EventStore
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.verify import verify
from bbkb.orchestrator.store.versions import EVENT_VERSION, TABLES_VERSION
from tests.orchestrator.store.raw import change

RECORDED = sorted(path for path in (Path(__file__).parent / "recorded").iterdir() if path.is_dir())


@pytest.fixture(params=RECORDED, ids=lambda path: path.name)
def recorded_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run of version 0.1, unchanged."""
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


def test_run_of_version_0_1_is_read_verified_and_continued(recorded_run: Path) -> None:
    run = open_run(recorded_run)
    before = run.events()
    with run.store() as store:
        assert verify(store, run.name).problems == []
    done = CliRunner().invoke(app, ["resume", str(recorded_run), "--set", "budget.evaluations=24"])
    assert done.exit_code == 0, done.output
    events = run.events()
    assert events[: len(before)] == before
    assert isinstance(events[-1], SessionClosed)
    with run.store() as store:
        findings = verify(store, run.name)
        assert findings.problems == []
        assert [row.version for row in store.rows(run.name, 0)] == [None] * len(before) + [EVENT_VERSION] * (
            len(events) - len(before)
        )


def test_run_of_version_0_1_continues_after_any_kill(recorded_run: Path, tmp_path: Path) -> None:
    run = open_run(recorded_run)
    length = len(run.events())
    for position in (3, length // 2, length - 1):
        copy = Path(shutil.copytree(recorded_run, tmp_path / f"{position}" / recorded_run.name))
        change(
            copy / "campaign.sqlite",
            f"DELETE FROM bbkb_events WHERE position >= {position}; UPDATE bbkb_campaigns SET length = {position}",
        )
        done = CliRunner().invoke(app, ["resume", str(copy)])
        assert done.exit_code == 0, done.output
        with open_run(copy).store() as store:
            assert verify(store, run.name).problems == []


def test_tables_of_a_newer_version_are_rejected_with_remedy(recorded_run: Path) -> None:
    with open_run(recorded_run).store() as store:
        store.make_tables()
    change(recorded_run / "campaign.sqlite", f"UPDATE bbkb_schema SET version = {TABLES_VERSION + 1}")
    with pytest.raises(StoreError, match=rf"have version {TABLES_VERSION + 1}.*a newer bbkb wrote it; upgrade bbkb"):
        open_run(recorded_run).events()
    done = CliRunner().invoke(app, ["resume", str(recorded_run)])
    assert isinstance(done.exception, StoreError)


def test_event_of_a_newer_version_is_rejected_with_remedy(tmp_path: Path) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")
    store.create("c", [StopRequested(time=0.0, reason=StopReason.INTERRUPTED)])
    import bbkb.orchestrator.store.rows as rows

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "EVENT_VERSION", EVENT_VERSION + 1)
        store.claim("c", "a newer version").append([StopRequested(time=1.0, reason=StopReason.INTERRUPTED)])
    with pytest.raises(StoreError, match=rf"event 1 \(stop_requested\).*has version {EVENT_VERSION + 1}.*upgrade"):
        list(store.read("c"))
    store.close()


def test_database_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")
    store.make_tables()
    store.create("c", [StopRequested(time=0.0, reason=StopReason.INTERRUPTED)])
    for path in tmp_path.iterdir():  # with SQLite's own, -wal and -shm
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    store.close()
