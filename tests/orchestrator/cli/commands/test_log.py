"""The commands that show a run's log: when its process was last seen."""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import CampaignCreated, Event, ReportsArrived
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.cli.commands import status
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.lease import Identity
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore
from tests.orchestrator.campaign.short_logs import batch, created, dispatch, session, settings_of
from tests.reported import reported

HOUR = 3600.0
Bbkb = Callable[..., subprocess.CompletedProcess[str]]


def make_run(folder: Path, last_time: float) -> EventStore:
    """A run with one evaluation under way since `last_time`, and its store."""
    folder.mkdir()
    (folder / "campaign.yaml").write_text("store: sqlite\n", encoding="utf-8")
    begun: list[Event] = [session(time=last_time), batch(0, [0], time=last_time), dispatch((0, 1), time=last_time)]
    store = EventStore(f"sqlite:///{folder / 'campaign.sqlite'}")
    store.create(folder.name, [created(settings_of(), time=last_time, objective="o"), *begun])
    return store


def test_status_uses_the_heartbeat_during_long_evaluations(bbkb: Bbkb, tmp_path: Path) -> None:
    store = make_run(tmp_path / "c", time.time() - 5 * HOUR)
    store.claim("c", "somebody", "{}")
    shown = " ".join(bbkb(tmp_path, "status", "c").stdout.split())
    assert " s ago" in shown
    assert "5 h" not in shown.partition("last sign of life")[2].partition("ago")[0]
    assert "no evaluation of this campaign has ended yet" in shown


def test_status_says_that_the_process_of_an_open_session_has_ended(bbkb: Bbkb, tmp_path: Path) -> None:
    store = make_run(tmp_path / "c", time.time())
    store.claim("c", "here", Identity.of_this_process().to_text())
    assert "has ended" not in bbkb(tmp_path, "status", "c").stdout
    ended = subprocess.Popen(["sleep", "60"])
    identity = dataclasses.replace(Identity.of_this_process(), pid=ended.pid, started="1")
    ended.kill()
    ended.wait()
    store.claim("c", "gone", identity.to_text())
    shown = " ".join(bbkb(tmp_path, "status", "c").stdout.split())
    assert "its process has ended, last sign of life" in shown
    assert "; continue with bbkb resume" in shown
    assert "0 of " in shown
    plain = json.loads(bbkb(tmp_path, "status", "c", "--json").stdout)
    assert (plain["phase"], plain["in_flight"], plain["running"], plain["waiting"]) == ("ended", 0, [], 1)
    assert plain["activity"].startswith("its process has ended, last sign of life")


def test_status_of_a_session_that_closes_meanwhile_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = make_run(tmp_path / "c", time.time()).claim("c", "here", Identity.of_this_process().to_text())
    read = snapshots.current

    def read_and_close(run: Run, store: EventStore) -> tuple[CampaignCreated, CampaignState]:
        state = read(run, store)
        writer.release()
        return state

    monkeypatch.setattr(snapshots, "current", read_and_close)
    status.status(tmp_path / "c")
    assert "has ended" not in capsys.readouterr().out


def test_trial_status_prints_the_first_and_last_of_many_reports(bbkb: Bbkb, tmp_path: Path) -> None:
    store = make_run(tmp_path / "c", time.time())
    writer = store.claim("c", "somebody", "{}")
    reports = tuple(reported(step, step / 2, 0, 1) for step in range(1, 61))
    writer.append([ReportsArrived(time=time.time(), reports=reports)])
    lines = bbkb(tmp_path, "status", "c", "--trial", "0").stdout.splitlines()
    steps = [line for line in lines if line.startswith("  step") or "more" in line]
    assert steps[4:7] == ["  step 5: 2.5", "  … 35 more", "  step 41: 20.5"]
    assert steps[-1] == "  step 60: 30.0"
    assert len(json.loads(bbkb(tmp_path, "status", "c", "--trial", "0", "--json").stdout)["reports"]) == 60
