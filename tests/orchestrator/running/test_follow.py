"""A run in another process, watched, stopped and checked with the commands a person types."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from bbkb.orchestrator.campaign.events import SessionClosed, SessionOutcome, TrialSucceeded
from bbkb.orchestrator.errors import BbkbError
from bbkb.orchestrator.report.terminal import PlainView, View
from bbkb.orchestrator.running import follow as following
from bbkb.orchestrator.running.follow import SessionEnd, follow
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.lease import Identity, take
from bbkb.orchestrator.store.runs import Run, open_run
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[3]
Bbkb = Callable[..., subprocess.CompletedProcess[str]]

CAMPAIGN = """
name: slow
objective: {callable: "slow:f", direction: maximize}
space: {x: {low: 0, high: 1}}
candidates: {size: 50}
strategy: {name: uniform}
budget: {evaluations: 50000}
workers: {executor: inline, count: 1}
"""


def process(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bbkb", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_end(command: "subprocess.Popen[str]") -> tuple[int, str]:
    """Return the exit code and the output."""
    output, _ = command.communicate(timeout=240)
    assert "Traceback" not in output, output
    return command.returncode, output


def code_and_output(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    """Return the exit code and the output of a command that was run in this process."""
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def running_campaign(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", Run]]:
    """A campaign in another process that has a few results."""
    (tmp_path / "slow.py").write_text("import time\ndef f(x):\n    time.sleep(0.1)\n    return x\n")
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    command = process(tmp_path, "run", "campaign.yaml")
    try:
        wait_until(lambda: results(tmp_path) >= 2)
        yield command, open_run(next(tmp_path.glob("runs/*")))
    finally:
        command.kill()
        command.communicate()


def results(folder: Path) -> int:
    """Return the number of results in the log; 0 until the run exists."""
    try:
        return sum(
            isinstance(event, TrialSucceeded) for run in folder.glob("runs/*") for event in open_run(run).events()
        )
    except BbkbError:
        return 0


@pytest.mark.thorough
def test_live_run_is_locked_watched_and_stopped_from_another_process(
    bbkb: Bbkb, tmp_path: Path, running_campaign: tuple["subprocess.Popen[str]", Run]
) -> None:
    command, run = running_campaign
    folder = str(run.folder)
    before = run.settings_file.read_text()
    code, output = code_and_output(bbkb(tmp_path, "resume", folder, "--set", "budget.evaluations=60000"))
    assert code == 2
    assert f"process {command.pid} runs it since" in output
    assert run.settings_file.read_text() == before  # a rejected resume changes nothing

    watching = process(tmp_path, "attach", folder)
    code, output = code_and_output(bbkb(tmp_path, "verify", folder))
    assert (code, output.splitlines()[-1]) == (0, "sound")
    assert watching.stdout is not None
    assert "/50000 done" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    code, output = wait_for_end(watching)
    assert (code, "the run continues" in output) == (130, True)

    watching = process(tmp_path, "attach", folder)
    code, output = code_and_output(bbkb(tmp_path, "stop", folder))
    assert code == 0
    assert "asked" in output
    assert "bbkb resume" in output
    assert wait_for_end(command)[0] == 130
    code, output = wait_for_end(watching)
    assert (code, "interrupted" in output) == (130, True)
    assert isinstance(run.events()[-1], SessionClosed)

    code, output = code_and_output(bbkb(tmp_path, "stop", folder))
    assert (code, "no process has run" in output) == (2, True)
    code, output = code_and_output(bbkb(tmp_path, "attach", folder))  # over: how it ended
    assert (code, "outcome" in output) == (130, True)


@pytest.mark.thorough
def test_killed_run_is_free_at_once_and_attach_says_how_to_resume(
    bbkb: Bbkb, tmp_path: Path, running_campaign: tuple["subprocess.Popen[str]", Run]
) -> None:
    command, run = running_campaign
    command.kill()
    command.wait()
    code, output = code_and_output(bbkb(tmp_path, "attach", str(run.folder)))
    assert code == 1
    assert f"process {command.pid}, which did, died without recording an outcome" in output
    assert "bbkb resume" in output
    finished = results(tmp_path)
    resumed = process(tmp_path, "resume", str(run.folder))
    try:
        wait_until(lambda: results(tmp_path) > finished)
        assert code_and_output(bbkb(tmp_path, "stop", str(run.folder), "--now"))[0] == 0
        assert wait_for_end(resumed)[0] == 130
    finally:
        resumed.kill()
        resumed.communicate()


class Lines:
    """Records the lines of a view."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, text: Any, soft_wrap: bool = True) -> None:
        self.lines.append(str(text))

    def view(self) -> View:
        return PlainView(cast(Console, self))  # it only calls the method `print` of a console


@pytest.mark.thorough
def test_watch_waits_for_a_dead_holder_and_follows_the_next_one(
    running_campaign: tuple["subprocess.Popen[str]", Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, run = running_campaign
    shown, naps = Lines(), iter(range(1000))
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        match next(naps):
            case 1:
                command.kill()
                command.wait()
            case 5:
                take(store, run.name, me=Identity.of_this_process())  # a restarted actor, this very process
            case 9:
                closed = SessionClosed(time=time.time(), outcome=SessionOutcome.INTERRUPTED, reason="a test")
                store.append(run.name, store.holding(run.name).epoch, [closed])
                store.release(run.name, store.holding(run.name).epoch)
            case _:
                pass

    with run.store() as store:
        ending = follow(run, store, shown.view(), "drain", sleep=sleep, clock=lambda: now)
    assert ending == SessionEnd("interrupted", "a test")
    assert any("is gone: waiting up to" in line for line in shown.lines)
    assert now < following.RESTART_SECONDS


@pytest.mark.thorough
def test_watch_ends_if_the_holder_stays_dead(running_campaign: tuple["subprocess.Popen[str]", Run]) -> None:
    command, run = running_campaign
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    command.kill()
    command.wait()
    with run.store() as store:
        ending = follow(run, store, Lines().view(), sleep=sleep, clock=lambda: now)
    assert ending.outcome == ""
    assert f"process {command.pid} is gone" in ending.reason
    assert now >= following.RESTART_SECONDS


@pytest.mark.parametrize("is_taken_up", [True, False])
def test_watch_waits_for_a_restarting_actor_before_it_reports_no_holder(tmp_path: Path, is_taken_up: bool) -> None:
    settings = from_mapping(
        {"name": "c", "objective": {"name": "branin"}, "budget": {"evaluations": 5}, "runs": str(tmp_path)}
    )
    run = create_run(settings, build(settings))
    now, messages = [0.0], list[str]()
    with run.store() as store:
        gone = replace(Identity.of_this_process(), pid=2**30)  # more than any process's number
        store.claim(run.name, "a dead actor", gone.to_text())

        def sleep(seconds: float) -> None:
            now[0] += seconds
            if is_taken_up and now[0] > 5.0:
                store.claim(run.name, "the actor, restarted", Identity.of_this_process().to_text())

        why = following.reason_not_to_follow(run, store, messages.append, sleep, lambda: now[0])
    assert "a dead actor is gone: waiting up to 15 s for its coordinator to restart" in messages
    assert (why is None) == is_taken_up
    if why is not None:
        assert now[0] >= 15.0
        assert f"bbkb resume {run.folder}" in why
