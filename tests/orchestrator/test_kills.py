"""A campaign of 300 evaluations on real Ray, killed at random moments and resumed until it is done.

Driver, central actor and worker are killed with SIGKILL. The processes are found by a mark in their environment, so
only those that this test started can be hit.
"""

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import BbkbError
from orchestrator.events import TrialSucceeded
from orchestrator.history import fold
from orchestrator.runs import open_run

EVALUATIONS = 300
REPOSITORY = Path(__file__).parents[2]

OBJECTIVE = """
import os, time

def evaluate(x, seed):
    with open({executions!r}, "a") as file:
        file.write(f"{{seed}}\\n")
    time.sleep(0.05)
    return 1.0 - (x - 0.3) ** 2
"""

CAMPAIGN = """
name: killed
objective: {callable: "killed_objective:evaluate"}
space: {x: {low: 0.0, high: 1.0}}
candidates: {size: 512}
strategy: {name: bbkb, kernel: {name: rbf, lengthscale: 0.5}, regularization: 0.5, ratio_threshold: 3}
budget: {evaluations: 300}
workers: {count: 2, timeout_seconds: 30}
"""


class Marked:
    """A `bbkb` command in a session of its own, and everything it started."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = f"BBKB_TEST_MARK={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        environment = {**os.environ, name: value, "PYTHONPATH": str(REPOSITORY), "RAY_TMPDIR": "/tmp"}
        self.output = (folder / f"output-{value}").open("w+")
        self.driver = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *arguments],
            cwd=folder,
            env=environment,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def processes(self, title: str) -> list[int]:
        """Pids of the marked processes whose command line begins with `title`."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and (entry / "cmdline").read_bytes().startswith(title.encode())
                    and self.mark.encode() in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile
                continue
        return found

    def end(self, seconds: float) -> int:
        """The exit code."""
        return self.driver.wait(seconds)

    def close(self) -> None:
        """Leave nothing behind, however the test went."""
        self.driver.kill()
        self.driver.wait()
        self.output.close()

    def said(self) -> str:
        """Everything printed so far."""
        return Path(self.output.name).read_text()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Marked]]:
    """Starts marked commands in the test's folder and ends them with the test."""
    with contextlib.ExitStack() as started:

        def start(*arguments: str) -> Marked:
            command = Marked(tmp_path, *arguments)
            started.callback(command.close)
            return command

        yield start


def successes(folder: Path) -> int:
    """Results in the log; 0 while the run is still being made."""
    found = list(folder.glob("runs/killed-*"))
    try:
        return sum(isinstance(event, TrialSucceeded) for run in found for event in open_run(run).events())
    except BbkbError:
        return 0


def reach(folder: Path, command: Marked, count: int) -> None:
    """Wait until the log has `count` results."""
    deadline = time.monotonic() + 120  # far more than a free machine takes
    while successes(folder) < count:
        assert command.driver.poll() is None, command.said()
        assert time.monotonic() < deadline, command.said()
        time.sleep(0.1)


@pytest.mark.timeout(600)  # five Ray clusters are started, one after the other
def test_a_campaign_killed_at_random_moments_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, launch: Callable[..., Marked]
) -> None:
    chance = random.Random()
    executions = tmp_path / "executions"
    (tmp_path / "killed_objective.py").write_text(OBJECTIVE.format(executions=str(executions)))
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    victims = ["worker", "actor", "driver", "worker", "actor", "driver"]
    marks = sorted(chance.sample(range(10, EVALUATIONS - 100), len(victims)))

    command = launch("run", "campaign.yaml")
    for victim, mark in zip(victims, marks, strict=True):
        reach(tmp_path, command, mark)
        if victim == "driver":
            command.driver.kill()
            assert command.end(30) == -signal.SIGKILL
        else:
            title = "ray::evaluate:killed" if victim == "worker" else "ray::Orchestrator"
            pids = wait_for(lambda title=title, command=command: command.processes(title))
            os.kill(chance.choice(pids), signal.SIGKILL)
            if victim == "worker":
                continue
            assert command.end(60) == 1
            assert "bbkb resume" in command.said()
        run = next(tmp_path.glob("runs/killed-*"))
        command = launch("resume", str(run))
    assert command.end(120) == 0, command.said()

    events = open_run(run).events()
    counted = collections.Counter(event.trial for event in events if isinstance(event, TrialSucceeded))
    assert sorted(counted) == list(range(EVALUATIONS))
    assert set(counted.values()) == {1}
    history = fold(events)
    assert [session.outcome for session in history.sessions] == ["killed"] * 4 + ["finished"]
    ran = collections.Counter(executions.read_text().split())
    attempts = sum(row.attempts for row in history.trials)
    assert EVALUATIONS <= ran.total() <= attempts  # nothing that had finished ran again
    assert attempts <= EVALUATIONS + 2 * len(victims)


def wait_for(found: Callable[[], list[int]], seconds: float = 20.0) -> list[int]:
    """The first non-empty answer of `found`."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer
