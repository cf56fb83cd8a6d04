"""The central actor on a cluster that was joined: it restarts itself, needs no watcher, and ends
with the campaign."""

import collections
import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from bbkb.orchestrator.campaign.events import (
    Event,
    SessionClosed,
    SessionOutcome,
    StopReason,
    StopRequested,
    TrialSucceeded,
)
from bbkb.orchestrator.errors import BbkbError, CampaignError, RunError
from bbkb.orchestrator.running.coordinator.remote import RemoteSession
from bbkb.orchestrator.running.coordinator.starting import (
    SESSIONS_WITHOUT_PROGRESS,
    check_progress,
    ending_since,
    has_stop_request,
)
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.workers.on_ray.internals import NAMESPACE
from tests.orchestrator.events import batch, created, dispatch, fold, session, success
from tests.present import present
from tests.waiting import is_alive, wait_until

REPOSITORY = Path(__file__).parents[4]
Bbkb = Callable[..., subprocess.CompletedProcess[str]]

OBJECTIVE = """
import os, time

def evaluate(x, seed):
    with open({executions!r}, "a") as file:
        file.write(f"{{seed}}\\n")
    time.sleep({seconds})
    return 1.0 - (x - 0.3) ** 2
"""

CAMPAIGN = """
name: central
objective: {{callable: "{module}:evaluate", direction: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
candidates: {{size: 64}}
strategy: {{name: uniform}}
budget: {{evaluations: {evaluations}}}
workers: {{count: 2, timeout_seconds: 60, kind: {kind}}}
"""


CLOSED = SessionClosed(time=0.0, outcome=SessionOutcome.INTERRUPTED, reason="interrupted")


def log_of(folder: Path, *events: Event) -> Run:
    """A run with these events after the first one."""
    run = Run(folder, folder / "campaign.sqlite", "c")
    with run.store() as store:
        store.create("c", [created({}), *events])
    return run


def test_session_closed_before_the_actor_exists_belongs_to_another_actor(tmp_path: Path) -> None:
    run = log_of(tmp_path, session(), CLOSED)
    assert ending_since(run, 3) is None
    with run.store() as store:
        writer = store.claim("c", "test")
        writer.append([session()])
        assert ending_since(run, 3) is None
        writer.append([CLOSED])
    assert ending_since(run, 3) == ("interrupted", "interrupted")


def test_actor_that_dies_repeatedly_gives_up_unless_something_was_evaluated() -> None:
    evaluated: list[Event] = [batch(0, [1]), dispatch((0, 1)), success(0)]
    without_progress: list[Event] = [session()] * SESSIONS_WITHOUT_PROGRESS
    check_progress(fold(created({}), *without_progress[1:]).session)
    check_progress(fold(created({}), *without_progress, *evaluated, *without_progress[1:]).session)
    with pytest.raises(CampaignError, match=f"in {SESSIONS_WITHOUT_PROGRESS} sessions in a row"):
        check_progress(fold(created({}), session(), *evaluated, *without_progress).session)


@pytest.mark.parametrize(("reason", "is_request"), [("interrupted", True), ("time budget spent", False)])
def test_stop_request_survives_the_actor_that_received_it(tmp_path: Path, reason: str, is_request: bool) -> None:
    run = log_of(tmp_path, session(), StopRequested(time=0.0, reason=StopReason(reason)), CLOSED)
    with run.store() as store:
        assert has_stop_request(store, "c", 0) == is_request
        assert not has_stop_request(store, "c", 3)


@pytest.fixture
def make(
    tmp_path: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Run]]:
    """Creates a run whose objective records its executions; afterwards, removes its remains from
    the cluster."""
    monkeypatch.chdir(tmp_path)
    created: list[Run] = []

    def build_run(evaluations: int, seconds: float, kind: str = "actor") -> Run:
        write_campaign(tmp_path, evaluations, seconds, kind)
        settings = load(tmp_path / "campaign.yaml")
        created.append(create_run(settings, build(settings)))
        return created[-1]

    yield build_run
    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["namespace"] == NAMESPACE:
            with contextlib.suppress(ValueError):  # it has ended since it was listed
                ray.kill(ray.get_actor(named["name"], NAMESPACE), no_restart=True)


def start(run: Run) -> RemoteSession:
    return RemoteSession.start(run, load(run.settings_file), is_detached=True)


def write_campaign(folder: Path, evaluations: int, seconds: float, kind: str) -> None:
    module = f"central_objective_{folder.name.replace('-', '_')}"
    executions = str(folder / "executions")
    (folder / f"{module}.py").write_text(OBJECTIVE.format(executions=executions, seconds=seconds))
    campaign = CAMPAIGN.format(module=module, evaluations=evaluations, kind=kind)
    (folder / "campaign.yaml").write_text(campaign)


def executions(folder: Path) -> collections.Counter[str]:
    file = folder / "executions"
    return collections.Counter(file.read_text().split() if file.exists() else [])


def successes(run: Run) -> int:
    return sum(isinstance(event, TrialSucceeded) for event in run.events())


def check_each_trial_ran_once(run: Run, folder: Path, trials: int) -> None:
    ended = [event.trial for event in run.events() if isinstance(event, TrialSucceeded)]
    assert sorted(ended) == list(range(trials))
    assert list(executions(folder).values()) == [1] * trials


def central_process() -> list[int]:
    """The central actor's process: the one of this test's cluster, whose token no other process
    has."""
    token = f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']}".encode()
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(
                (b"ray::Orchestrator", b"ray::coordinator:")
            ):
                processes += [int(entry.name)] * (token in (entry / "environ").read_bytes())
        except OSError:  # it ended meanwhile
            continue
    return processes


def is_there(run: Run) -> bool:
    named = ray.util.list_named_actors(all_namespaces=True)
    return {"namespace": NAMESPACE, "name": f"bbkb {run.name}"} in named


def test_session_runs_to_its_end_and_its_actor_disappears(make: Callable[..., Run]) -> None:
    run = make(evaluations=5, seconds=0.0)
    session = start(run)
    assert session.result() == ("finished", "budget spent")
    status = present(session.status())
    assert (status.trials.succeeded, status.phase) == (5, "closed")
    wait_until(lambda: not is_there(run))


def test_ray_exports_the_campaigns_figures_for_prometheus(make: Callable[..., Run]) -> None:
    run = make(evaluations=5, seconds=0.0)
    session = start(run)
    wait_until(lambda: session.wait(0.5))
    (node,) = ray.nodes()
    line = f'ray_bbkb_evaluations_total{{.*campaign="{run.name}".*status="succeeded".*}} 5.0'

    def is_exported() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics") as answer:
            return re.search(line, answer.read().decode()) is not None

    wait_until(is_exported)
    session.result()


@pytest.mark.essential
def test_resume_finishes_campaign_whose_actor_was_killed_and_repeats_no_evaluation(
    make: Callable[..., Run], bbkb: Bbkb, tmp_path: Path, ray_cluster: str
) -> None:
    run = make(evaluations=8, seconds=0.5)
    session = start(run)
    wait_until(lambda: successes(run) >= 2)
    processes = wait_until(central_process)
    ray.kill(ray.get_actor(f"bbkb {run.name}", NAMESPACE), no_restart=True)
    with pytest.raises(BbkbError):
        session.result()
    wait_until(lambda: not any(map(is_alive, processes)))  # Ray does not wait for their end
    assert successes(run) < 8
    done = bbkb(tmp_path, "resume", str(run.folder), "--address", ray_cluster)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished: budget spent" in done.stdout
    check_each_trial_ran_once(run, tmp_path, trials=8)


def test_killed_actor_restarts_and_no_evaluation_runs_twice(make: Callable[..., Run], tmp_path: Path) -> None:
    run = make(evaluations=12, seconds=0.7)
    session = start(run)
    for mark in (2, 6):
        wait_until(functools.partial(lambda least: successes(run) >= least, mark))
        os.kill(wait_until(central_process)[0], signal.SIGKILL)
    assert session.result() == ("finished", "budget spent")
    check_each_trial_ran_once(run, tmp_path, trials=12)


def test_last_status_is_shown_while_the_actor_does_not_answer(make: Callable[..., Run]) -> None:
    session = start(make(evaluations=100, seconds=0.2))
    before = present(wait_until(session.status))
    (pid,) = wait_until(central_process)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert not session.wait(0.1)
        status = present(session.status())
        assert status.activity == "waiting for the coordinator, which is restarting or busy"
        assert status.trials.done >= before.trials.done
    finally:
        os.kill(pid, signal.SIGCONT)
    session.stop(now=True)
    assert session.result()[0] == "interrupted"


def test_running_run_does_not_start_twice_but_can_be_watched_and_stopped(make: Callable[..., Run]) -> None:
    run = make(evaluations=500, seconds=0.3)
    session = start(run)
    wait_until(lambda: successes(run) >= 1)
    with pytest.raises(RunError, match="must not be run twice"):
        start(run)
    watcher = RemoteSession(run, ray.get_actor(f"bbkb {run.name}", NAMESPACE), length=0, built=[])
    assert not watcher.wait(0.1)
    watcher.stop(now=False)
    stopped = ("interrupted", "stopped on request, after its running evaluations")
    assert watcher.result() == stopped
    assert session.result() == stopped  # though the other watcher has removed the actor


def test_finished_session_is_replaced_by_the_next_one(make: Callable[..., Run]) -> None:
    run = make(evaluations=3, seconds=0.0)
    session = start(run)
    assert wait_until(lambda: session.wait(0.5))
    assert is_there(run)  # it keeps its answer for a watcher
    assert start(run).result() == ("finished", "budget spent")


def test_mistake_in_the_run_is_raised_as_an_error_of_bbkb(make: Callable[..., Run]) -> None:
    run = make(evaluations=3, seconds=0.0)
    text = run.settings_file.read_text()
    session_settings = text.replace("size: 64", "size: 32")
    run.settings_file.write_text(session_settings)
    with pytest.raises(BbkbError, match="candidates"):
        start(run).result()


@pytest.mark.parametrize("kind", ["task", "actor"])
def test_campaign_continues_when_its_driver_is_killed(
    make: Callable[..., Run], tmp_path: Path, ray_cluster: str, kind: str
) -> None:
    write_campaign(tmp_path, 12, 0.5, kind)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "bbkb", "run", "campaign.yaml", "--address", ray_cluster]
    with (tmp_path / "said").open("wb") as output:
        driver = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: executions(tmp_path).total() >= 2)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert f"joining the Ray cluster at {ray_cluster}" in (tmp_path / "said").read_text()
    assert "starting Ray" not in (tmp_path / "said").read_text()
    run = open_run(next(tmp_path.glob("runs/central-*")))
    last = wait_until(lambda: [event for event in run.events() if isinstance(event, SessionClosed)])[-1]
    assert (last.outcome, last.reason) == ("finished", "budget spent")
    check_each_trial_ran_once(run, tmp_path, trials=12)
    check_token_is_nowhere(tmp_path)


def check_token_is_nowhere(folder: Path) -> None:
    """Check that the store, the log, the output and the command lines of this machine do not
    contain the secret."""
    token = os.environ["RAY_AUTH_TOKEN"].encode()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"campaign.sqlite", "run.log", "said"} <= {path.name for path in files}
    for path in (*files, *Path("/proc").glob("[0-9]*/cmdline")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone meanwhile
            assert token not in path.read_bytes(), path
