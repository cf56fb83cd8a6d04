"""Campaigns on a real Slurm cluster: preempted, out of time, with the head's node lost; no finished result is lost."""

import collections
import contextlib
import json
import shutil
import sqlite3
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.namespaces import missing
from tests.deploy.slurm import REPOSITORY, Slurm, bbkb, slurm
from tests.orchestrator.serve.conftest import TOKEN, running_server

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
workers: {{timeout_seconds: {timeout}}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="bs", dir="/tmp"))  # short: the path of a socket ends at 107 bytes
    with slurm(folder) as found:
        yield found
    shutil.rmtree(folder, ignore_errors=True)


def campaign(cluster: Slurm, name: str, evaluations: int, seconds: float, timeout: float) -> Path:
    """A folder that all nodes see, with a campaign file in it. `timeout`: `workers.timeout_seconds`."""
    folder = cluster.folder / name
    folder.mkdir()
    (folder / "sleeping.py").write_text(OBJECTIVE.format(seconds=seconds, folder=str(folder)))
    (folder / "campaign.yaml").write_text(CAMPAIGN.format(evaluations=evaluations, timeout=timeout))
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


def check_ports(listening: list[tuple[str, int, str]], job: str, address: str) -> None:
    """On the first node what listens is in the table of docs/security.md."""
    first = 20000 + int(job) % 1000 * 10
    inside = {(where, port) for where in ("127.0.0.1", address) for port in (first + 2, first + 3)}
    outside = {first, first + 4, 44217, 44227, *range(10002, 20000)}
    for where, port, program in listening:
        is_known = (
            (where == "*" and (port in outside or program in ("raylet", "ray::DashboardA")))
            or (where, port) in {*inside, ("127.0.0.1", first + 1)}
            or (where == address and program == "ray::RuntimeEnv")
            or program in ("slurmd", "srun", "slurmstepd")
        )
        assert is_known, f"docs/security.md does not name {where}:{port} of {program}"
    assert {("*", first), ("127.0.0.1", first + 2), (address, first + 2)} <= {one[:2] for one in listening}


def test_a_preempted_campaign_on_three_nodes_is_queued_again_and_finishes(cluster: Slurm) -> None:
    folder = campaign(cluster, "preempted", evaluations=30, seconds=3.0, timeout=20)
    job = cluster.submit("--nodes=3", "--cpus-per-task=2", "--time=20", str(SCRIPT), "campaign.yaml", cwd=folder)
    run = folder / "runs" / f"slurm-{job}"
    cluster.wait_for(job, lambda: succeeded(run) >= 8, "results")
    token = next((folder / "runs").glob(".slurm-*/token"))
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text() not in subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout
    urgent = cluster.submit("--partition=high", "--nodes=3", "--exclusive", "--time=5", "--wrap=sleep 2", cwd=folder)
    cluster.wait(urgent)
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.restarts(job) == 1
    check_complete(run, 30, repeated=0)
    assert {row["worker"].partition(":")[0] for row in rows(run)} == {"n1", "n2", "n3"}


def test_two_commands_start_a_campaign_that_is_watched_and_survives_a_lost_head_and_a_time_limit(
    cluster: Slurm,
) -> None:
    folder = campaign(cluster, "guide", evaluations=100, seconds=5.0, timeout=65)
    # the two commands of docs/clusters.md
    launch = ["bbkb", "launch", "slurm", "campaign.yaml", "--nodes", "3", "--cpus", "2", "--time", "10"]
    cluster.run(*launch, "--output", "campaign.sbatch", cwd=folder)
    job = cluster.submit("campaign.sbatch", cwd=folder)
    run = folder / "runs" / "sleeping"
    cluster.wait_for(job, lambda: succeeded(run) >= 6, "results")
    with running_server(str(folder / "runs")) as address:
        seen = watched(f"{address}/campaign/sleeping/events")
    assert seen["state"] == "running"
    assert 1 <= len(seen["running"]) <= 6
    assert seen["status"]["succeeded"] >= 6
    check_ports(cluster.listening("n1"), job, cluster.addresses["n1"])
    cluster.run("scontrol", "update", "nodename=n1", "state=DOWN", "reason=test")
    cluster.wait_for(job, lambda: not cluster.has_scripts("n1"), "end of what ran on the lost node")
    cluster.wait_for(job, lambda: cluster.state(job) == "PENDING", "job that was queued again")
    # from here on three minutes: Slurm's notice comes 100 s before the end (workers.timeout_seconds and 35 s) or up to
    # 30 s earlier, so after 50 to 80 s, in which six places finish fewer evaluations than are left
    cluster.run("scontrol", "update", f"jobid={job}", "timelimit=3")
    cluster.run("scontrol", "update", "nodename=n1", "state=RESUME")
    cluster.wait(job, 900.0)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.restarts(job) >= 2  # the lost node, and at least one time limit
    check_complete(run, 100, repeated=6)


def watched(url: str) -> dict[str, Any]:
    """The first update that a browser gets which knows the campaign's state."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60.0) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                update: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                if update["state"] not in ("reading", "queued"):
                    return update
    raise AssertionError("the server ended before the campaign's state was known")
