"""Campaigns on a real Slurm cluster: preempted, out of time, with the head's node lost; no finished
result is lost."""

import contextlib
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbkb import load
from tests.deploy.namespaces import missing
from tests.deploy.slurm import NODES, REPOSITORY, Slurm, bbkb, slurm
from tests.orchestrator.report.conftest import running_server
from tests.orchestrator.report.test_serve import ask

_ABSENT = missing("slurmctld", "slurmd", "munged", "sbatch")
pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(_ABSENT), reason=_ABSENT), pytest.mark.timeout(900)]
SCRIPT = REPOSITORY / "deploy" / "slurm" / "bbkb.sbatch"

EVALUATIONS = 250  # more than six places finish, at three seconds each, before everything has happened to a campaign
OBJECTIVE = """
import os, socket, time

def evaluate(x, seed):
    with open(os.path.join({folder!r}, "seconds")) as file:
        time.sleep(float(file.read()))
    with open(os.path.join({folder!r}, "executions"), "a") as file:
        file.write(f"{{seed}} {{socket.gethostname()}}\\n")
    return 1.0 - (x - 0.3) ** 2
"""
CAMPAIGN = f"""
name: sleeping
objective: {{callable: "sleeping:evaluate", direction: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
candidates: {{size: 256}}
strategy: {{name: uniform}}
budget: {{evaluations: {EVALUATIONS}}}
workers: {{timeout_seconds: 20}}
"""


GANG = """
import os, socket, time
from tests.workers.gangs.gang_objectives import add_up

def train(x, seed, machine):
    total = add_up(1.0, machine.rank, machine.count, machine.addresses[0], machine.port)
    with open(os.path.join({folder!r}, "executions"), "a") as file:
        file.write(f"{{seed}} {{socket.gethostname()}} {{machine.rank}}\\n")
    time.sleep(2.0)
    return total if machine.rank == 0 else None
"""
GANGS = """
name: gangs
objective: {callable: "gang:train", direction: maximize}
space: {x: {low: 0.0, high: 1.0}}
candidates: {size: 256}
strategy: {name: uniform}
budget: {evaluations: 12}
workers: {machines: 2, cpus: 1, timeout_seconds: 60}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="bs", dir="/tmp"))  # short: the path of a socket ends at 107 bytes
    with slurm(folder) as text:
        yield text
    shutil.rmtree(folder, ignore_errors=True)


def campaign(cluster: Slurm, name: str) -> Path:
    """A folder that all nodes see, with the file of a campaign whose evaluations take three
    seconds."""
    folder = cluster.folder / name
    folder.mkdir()
    (folder / "sleeping.py").write_text(OBJECTIVE.format(folder=str(folder)))
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    set_seconds(folder, 3.0)
    return folder


def set_seconds(folder: Path, seconds: float) -> None:
    """Set the duration of the evaluations that begin from now on."""
    draft = folder / "seconds.draft"
    draft.write_text(str(seconds))
    draft.replace(folder / "seconds")


def nodes(folder: Path) -> set[str]:
    """Return the nodes on which evaluations have ended so far."""
    file = folder / "executions"
    return {line.split()[1] for line in file.read_text().splitlines()} if file.exists() else set()


def shorten_time_limit(cluster: Slurm, job: str) -> None:
    """Give a running job the shortest time limit, in minutes, that has not passed. Slurm's notice
    arrives within a minute."""
    cluster.run("scontrol", "update", f"jobid={job}", f"timelimit={cluster.running_seconds(job) // 60 + 2}")


def count_successes(run: Path) -> int:
    """Return the number of results in the log, read directly from the database to be cheap."""
    file = run / "campaign.sqlite"
    if not file.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'bbkb_events'").fetchone()
        query = "SELECT count(*) FROM bbkb_events WHERE kind = 'trial_succeeded'"
        return int(connection.execute(query).fetchone()[0]) if tables[0] else 0


def check_complete(run: Path, repeated: int) -> None:
    """Check that the run is complete and its log sound, and that at most `repeated` evaluations
    were completed more than once."""
    assert count_successes(run) == EVALUATIONS
    bbkb("verify", str(run))
    lines = (run.parents[1] / "executions").read_text().splitlines()
    assert len({line.split()[0] for line in lines}) == EVALUATIONS
    assert len(lines) <= EVALUATIONS + repeated
    assert list(run.parent.rglob("token")) == []


def check_ports(listening_sockets: list[tuple[str, int, str]], job: str, address: str) -> None:
    """All ports open on the first node are in the table of docs/security.md."""
    first = 20000 + int(job) % 1000 * 10
    inside = {(where, port) for where in ("127.0.0.1", address) for port in (first + 2, first + 3)}
    outside = {first, first + 4, 44217, 44227, *range(10002, 20000)}
    for where, port, program in listening_sockets:
        is_known = (
            (where == "*" and (port in outside or program in ("raylet", "ray::DashboardA")))
            or (where, port) in {*inside, ("127.0.0.1", first + 1)}
            or (where == address and program == "ray::RuntimeEnv")
            or program in ("slurmd", "srun", "slurmstepd")
        )
        assert is_known, f"docs/security.md does not name {where}:{port} of {program}"
    assert {("*", first), ("127.0.0.1", first + 2), (address, first + 2)} <= {
        socket[:2] for socket in listening_sockets
    }


def test_preempted_campaign_on_three_nodes_is_requeued_and_finishes(cluster: Slurm) -> None:
    folder = campaign(cluster, "preempted")
    job = cluster.submit("--nodes=3", "--cpus-per-task=2", "--time=20", str(SCRIPT), "campaign.yaml", cwd=folder)
    cluster.wait_for(job, lambda: nodes(folder) == set(NODES), "results of all nodes")
    token = next((folder / "runs").glob(".slurm-*/token"))
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text() not in subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout
    urgent = cluster.submit("--partition=high", "--nodes=3", "--exclusive", "--time=5", "--wrap=sleep 2", cwd=folder)
    cluster.wait(urgent)
    set_seconds(folder, 0.0)
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.restarts(job) == 1
    check_complete(folder / "runs" / f"slurm-{job}", repeated=0)


def test_campaign_survives_a_lost_head_and_a_time_limit_while_watched(cluster: Slurm) -> None:
    folder = campaign(cluster, "guide")
    # the two commands of docs/guide/clusters.md
    launch = ["bbkb", "launch", "slurm", "campaign.yaml", "--nodes", "3", "--cpus", "2", "--time", "10"]
    cluster.run(*launch, "--output", "campaign.sbatch", cwd=folder)
    job = cluster.submit("campaign.sbatch", cwd=folder)
    run = folder / "runs" / "sleeping"
    cluster.wait_for(job, lambda: count_successes(run) >= 6, "results")
    with running_server(str(folder / "runs")) as address:
        shown = ask(f"{address}/campaign/sleeping/snapshot")
    assert shown["state"] == "running"
    assert 1 <= len(shown["running"]) <= 6
    assert shown["progress"]["done"] >= 6
    check_ports(cluster.listening_sockets("n1"), job, cluster.addresses["n1"])
    cluster.run("scontrol", "update", "nodename=n1", "state=DOWN", "reason=test")
    cluster.wait_for(job, lambda: not cluster.has_scripts("n1"), "end of what ran on the lost node")
    cluster.wait_for(job, lambda: cluster.state(job) == "PENDING", "job that was queued again")
    before = count_successes(run)
    cluster.run("scontrol", "update", "nodename=n1", "state=RESUME")
    cluster.wait_for(job, lambda: count_successes(run) >= before + 6, "results after the lost node")
    shorten_time_limit(cluster, job)
    cluster.wait_for(job, lambda: cluster.restarts(job) == 2, "job that was queued again at its time limit")
    cluster.run("scontrol", "update", f"jobid={job}", "timelimit=10")
    set_seconds(folder, 0.0)
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    assert cluster.restarts(job) == 2
    check_complete(run, repeated=6)


def test_trials_on_two_nodes_each_run_on_three_nodes(cluster: Slurm) -> None:
    folder = cluster.folder / "gangs"
    folder.mkdir()
    (folder / "gang.py").write_text(GANG.format(folder=str(folder)))
    (folder / "campaign.yaml").write_text(GANGS)
    launch = ["bbkb", "launch", "slurm", "campaign.yaml", "--nodes", "3", "--cpus", "2", "--time", "10"]
    text = cluster.run(*launch, "--output", "campaign.sbatch", cwd=folder)
    assert "3 nodes, 1 CPU on each of 2 machines an evaluation" in " ".join(text.split())
    job = cluster.submit("campaign.sbatch", cwd=folder)
    cluster.wait(job)
    assert cluster.state(job) == "COMPLETED"
    run = folder / "runs" / "gangs"
    bbkb("verify", str(run))
    values = [trial.value for trial in load(run).trials]
    assert values == [3.0] * 12  # 1 + 2: both machines took part
    machines: dict[str, dict[str, str]] = {}
    for line in (folder / "executions").read_text().splitlines():
        seed, host, rank = line.split()
        machines.setdefault(seed, {})[rank] = host
    assert len(machines) == 12
    assert {len({*hosts.values()}) for hosts in machines.values()} == {2}, machines
    assert {host for hosts in machines.values() for host in hosts.values()} == set(NODES)
