"""Campaigns on a real Slurm cluster: preempted, out of time, with the head's node lost; no finished result is lost."""

import collections
import contextlib
import json
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.launchers.slurm import Allocation, script_for
from orchestrator.settings.model import load
from tests.deploy.namespaces import missing
from tests.deploy.slurm import REPOSITORY, Slurm, bbkb, slurm

_ABSENT = missing("slurmctld", "slurmd", "munged", "sbatch")
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(_ABSENT), reason=_ABSENT), pytest.mark.timeout(900)]
SCRIPT = REPOSITORY / "deploy" / "slurm" / "bbkb.sbatch"

OBJECTIVE = """
import os, time

def evaluate(x, seed):
    time.sleep({seconds})
    with open(os.path.join({folder!r}, "executions"), "a") as file:
        file.write(f"{{seed}}\\n")
    return 1.0 - (x - 0.3) ** 2
"""
CAMPAIGN = """
name: sleeping
objective: {{callable: "sleeping:evaluate"}}
space: {{x: {{low: 0.0, high: 1.0}}}}
candidates: {{size: 256}}
strategy: {{name: uniform}}
budget: {{evaluations: {evaluations}}}
workers: {{timeout_seconds: 20}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="bs", dir="/tmp"))  # short: the path of a socket ends at 107 bytes
    with slurm(folder) as found:
        yield found
    shutil.rmtree(folder, ignore_errors=True)


def campaign(cluster: Slurm, name: str, evaluations: int, seconds: float) -> Path:
    """A folder that all nodes see, with a campaign file in it."""
    folder = cluster.folder / name
    folder.mkdir()
    (folder / "sleeping.py").write_text(OBJECTIVE.format(seconds=seconds, folder=str(folder)))
    (folder / "campaign.yaml").write_text(CAMPAIGN.format(evaluations=evaluations))
    return folder


def rows(run: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(bbkb("export", str(run), "--format", "json"))
    return found


def succeeded(run: Path) -> int:
    """Results in the log so far, read as they lie there: cheap enough to ask again and again."""
    file = run / "campaign.sqlite"
    if not file.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'bbkb_events'").fetchone()
        query = "SELECT count(*) FROM bbkb_events WHERE kind = 'trial_succeeded'"
        return int(connection.execute(query).fetchone()[0]) if tables[0] else 0


def check_complete(run: Path, evaluations: int, repeated: int) -> None:
    """The run is whole and sound; at most `repeated` evaluations ran to their end more than once."""
    assert succeeded(run) == evaluations
    bbkb("verify", str(run))
    executions = collections.Counter((run.parents[1] / "executions").read_text().split())
    assert len(executions) == evaluations
    assert executions.total() <= evaluations + repeated
    assert list(run.parent.rglob("token")) == []


def test_a_preempted_campaign_on_three_nodes_is_queued_again_and_finishes(cluster: Slurm) -> None:
    folder = campaign(cluster, "preempted", evaluations=48, seconds=3.0)
    job = cluster.submit("--nodes=3", "--cpus-per-task=2", "--time=20", str(SCRIPT), "campaign.yaml", cwd=folder)
    run = folder / "runs" / f"slurm-{job}"
    cluster.wait_for(lambda: succeeded(run) >= 8, "results")
    token = next((folder / "runs").glob(".slurm-*/token"))
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text() not in subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout
    urgent = cluster.submit("--partition=high", "--nodes=3", "--exclusive", "--time=5", "--wrap=sleep 2", cwd=folder)
    cluster.wait(urgent)
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.restarts(job) == 1
    check_complete(run, 48, repeated=0)
    assert {row["worker"].partition(":")[0] for row in rows(run)} == {"n1", "n2", "n3"}


def test_a_campaign_that_runs_out_of_time_is_queued_again_until_it_is_done(cluster: Slurm) -> None:
    folder = campaign(cluster, "limited", evaluations=108, seconds=4.0)
    file, path = folder / "campaign.yaml", folder / "limited.sbatch"
    settings = load(file, [f"runs={folder / 'runs'}"])
    allocation = Allocation(nodes=2, cpus=2, time="3")
    path.write_text(script_for(allocation, settings, [str(file)], "limited", cluster.folder / "bin").text)
    job = cluster.submit(str(path), cwd=folder)
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.restarts(job) >= 1
    check_complete(folder / "runs" / "limited", 108, repeated=0)


def test_a_campaign_whose_head_is_lost_goes_on_on_other_nodes(cluster: Slurm) -> None:
    folder = campaign(cluster, "lost", evaluations=24, seconds=3.0)
    job = cluster.submit("--nodes=2", "--cpus-per-task=2", "--time=20", str(SCRIPT), "campaign.yaml", cwd=folder)
    run = folder / "runs" / f"slurm-{job}"
    cluster.wait_for(lambda: succeeded(run) >= 6, "results")
    cluster.run("scontrol", "update", "nodename=n1", "state=DOWN", "reason=test")
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    check_complete(run, 24, repeated=4)
