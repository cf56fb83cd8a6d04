"""A campaign as a Ray job on a cluster that requires a token: submitted, drained, and resumed by the same command; and
the example for `ray up`."""

import collections
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml

from tests.deploy.live_ray import environment_of, head
from tests.deploy.namespaces import wait_for

TOKEN = "5eC7e7" * 10
EVALUATIONS = 24
CAMPAIGN = f"""
name: job
objective: {{callable: "slow.py:evaluate", direction: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
strategy: {{name: uniform}}
budget: {{evaluations: {EVALUATIONS}}}
workers: {{count: 2, timeout_seconds: 30}}
"""
OBJECTIVE = """
import time

def evaluate(x, seed):
    time.sleep(1.0)
    with open({file!r}, "a") as file:
        file.write(f"{{seed}}\\n")
    return x
"""
SCRIPT = """
from bbkb import Range, tune

def train(x):
    return 1.0 - (x - 0.3) ** 2

if __name__ == "__main__":
    own = {{"runs": {runs!r}, "run": "scripted", "strategy": {{"name": "uniform"}}}}
    result = tune(train, {{"x": Range(0.0, 1.0)}}, evaluations=12, workers=2, direction="maximize", settings=own)
    print("results:", len(result.rows()))
"""


@dataclass(frozen=True)
class Cluster:
    """A Ray with a dashboard, and commands with its token."""

    folder: Path
    dashboard: str
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        words = [sys.executable, "-m", *command]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self) -> str:
        """The number of the job that `bbkb launch ray-job` submits."""
        where = ["--address", self.dashboard, "--runs", str(self.folder / "runs"), "--run", "first"]
        printed = self.run("bbkb", "launch", "ray-job", "campaign/campaign.yaml", *where, "--submit")
        match = re.search(r"raysubmit_\w+", printed)
        assert match, printed
        return match[0]

    def submit_script(self) -> str:
        """The number of a job that runs tuning.py. Ray rejects the job while its agent on the head
        is starting."""
        words = ["job", "submit", "--address", self.dashboard, "--no-wait", "--working-dir", "campaign", "--"]
        command = [sys.executable, "-m", "ray.scripts.scripts", *words, sys.executable, "tuning.py"]
        for _ in range(6):
            done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
            if "No available agent" not in done.stdout + done.stderr:
                break
        match = re.search(r"raysubmit_\w+", done.stdout)
        assert match, done.stdout + done.stderr
        return match[0]

    def job(self, *command: str) -> str:
        return self.run("ray.scripts.scripts", "job", *command, "--address", self.dashboard)

    def status_of(self, job: str) -> dict[str, Any]:
        """Return the dashboard's record of a job."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.dashboard}/api/jobs/{job}", headers=headers)
        ) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def status(self, job: str) -> str:
        """As RUNNING, STOPPED, SUCCEEDED or FAILED."""
        return str(self.status_of(job)["status"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="bj", dir="/tmp"))  # short: the path of a socket ends at 107 bytes
    (folder / "campaign").mkdir()
    (folder / "campaign" / "slow.py").write_text(OBJECTIVE.format(file=str(folder / "executions")))
    (folder / "campaign" / "campaign.yaml").write_text(CAMPAIGN)
    (folder / "campaign" / "tuning.py").write_text(SCRIPT.format(runs=str(folder / "runs")))
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    commands = folder / "bin"  # `bbkb` and `ray`, as a node of a cluster has them
    commands.mkdir()
    for name, module in (("bbkb", "bbkb"), ("ray", "ray.scripts.scripts")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (commands / name).chmod(0o755)
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment = environment_of(folder, variables)
    variables["PATH"] = environment["PATH"] = f"{commands}:{environment['PATH']}"
    try:
        with head(folder, **variables) as ports:
            yield Cluster(folder, f"http://127.0.0.1:{ports['dashboard-port']}", environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def count_successes(cluster: Cluster) -> int:
    if not (cluster.folder / "runs" / "first" / "campaign.sqlite").exists():
        return 0
    return int(json.loads(cluster.run("bbkb", "status", "runs/first", "--json"))["succeeded"])


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_job_drains_when_stopped_and_the_same_command_resumes_it(cluster: Cluster) -> None:
    first = cluster.submit()

    def has_results() -> bool:
        assert cluster.status(first) != "FAILED", cluster.job("logs", first)
        return count_successes(cluster) >= 4

    wait_for(has_results, "results", 300.0)
    processes = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert TOKEN not in processes
    cluster.job("stop", first)
    wait_for(lambda: cluster.status(first) == "STOPPED", "end of the first job", 120.0)
    status = json.loads(cluster.run("bbkb", "status", "runs/first", "--json"))
    assert (status["outcome"], status["reason"]) == ("interrupted", "stopped on request, after its running evaluations")
    assert 4 <= status["succeeded"] < EVALUATIONS
    second = cluster.submit()
    wait_for(lambda: cluster.status(second) == "SUCCEEDED", "end of the second job", 300.0)
    cluster.run("bbkb", "verify", "runs/first")
    assert count_successes(cluster) == EVALUATIONS
    executions = collections.Counter((cluster.folder / "executions").read_text().split())
    assert executions.total() == EVALUATIONS  # evaluations in flight at the stop ran to their end, once
    assert cluster.status_of(second)["metadata"]["job_name"] == "first"
    assert "runs/first" in cluster.job("logs", second)
    _check_token_is_nowhere(cluster)


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_script_that_tunes_a_function_runs_as_a_job(cluster: Cluster) -> None:
    job = cluster.submit_script()
    wait_for(lambda: cluster.status(job) in ("SUCCEEDED", "FAILED"), "end of the script", 300.0)
    logs = cluster.job("logs", job)
    assert cluster.status(job) == "SUCCEEDED", logs
    assert "results: 12" in logs
    cluster.run("bbkb", "verify", "runs/scripted")


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_dashboard_answers_nothing_without_the_token(cluster: Cluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{cluster.dashboard}/api/jobs/")
    with refused.value as answer:
        assert answer.code == 401


def _check_token_is_nowhere(cluster: Cluster) -> None:
    """Check that the token is only in its own file, and not in the run, in Ray's logs or in printed
    output."""
    files = [path for path in cluster.folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.name == "report.html" for path in files)
    assert any(path.name == "run.log" for path in files)
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == [cluster.folder / "token"]


FILE = Path(__file__).parents[2] / "deploy" / "ray-cluster.yaml"
SCHEMA = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"


def test_schema_of_ray_accepts_the_cluster_file() -> None:
    cluster = yaml.safe_load(FILE.read_text())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(cluster, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**cluster, "min_wokers": 2}, schema)


@pytest.mark.parametrize("key", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_machines_start_ray_with_a_token_and_our_settings(key: str) -> None:
    starts = [command for command in yaml.safe_load(FILE.read_text())[key] if "ray start" in command]
    assert len(starts) == 1
    assert "RAY_AUTH_MODE=token" in starts[0]
    assert ". ~/ray.env" in starts[0]
