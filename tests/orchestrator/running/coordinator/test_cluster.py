"""What the coordinator needs of its cluster: capacity, environment, metrics."""

import functools
import itertools
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb import Campaign
from bbkb.orchestrator.campaign.state import LABELS, CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.running.coordinator import cluster, environment
from bbkb.orchestrator.running.coordinator.cluster import connect, cores, disconnect
from bbkb.orchestrator.running.coordinator.environment import _token_file
from bbkb.orchestrator.running.coordinator.starting import DESCRIPTIONS, totals_of
from bbkb.orchestrator.session.recorder import Span
from bbkb.orchestrator.store.lease import Identity
from tests.examples import examples
from tests.orchestrator.runs import bbkb
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[4]

STARTS = """
import os
import time
import ray
from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect

@ray.remote(max_retries=0, num_cpus=0)
def crash():
    print("a worker talks")
    os._exit(1)

cluster = connect(None, workers=64, cpus=1.0, gpus=0.0, dashboard=True)
try:
    ray.get(crash.remote())
except ray.exceptions.WorkerCrashedError:
    print("crashed")
print(cluster.is_ours, cluster.is_connected_here)
print(cluster.dashboard_url)
token = os.environ["RAY_AUTH_TOKEN_PATH"]
mode = oct(os.stat(token).st_mode & 0o777)
print(ray.cluster_resources()["CPU"], os.environ["RAY_AUTH_MODE"], any(token in note for note in cluster.notes), mode)
session = ray._private.worker._global_node.get_session_dir_path()
print(oct(os.stat(session).st_mode & 0o777))
print("RAY_AUTH_TOKEN" in os.environ, any(open(token).read() in note for note in cluster.notes))
print(cluster.notes[0])
disconnect(cluster, keeps=True)
print("the next one takes it:", connect(None, workers=2, cpus=1.0, gpus=0.0, dashboard=True) is cluster)
disconnect(cluster)
disconnect(cluster)
print(ray.is_initialized())
"""

TELLS_SETTINGS = """
import os
import ray
from ray._raylet import Config
from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect

cluster = connect(None, workers=1, cpus=1.0, gpus=0.0, dashboard=False)

@ray.remote(num_cpus=0)
def print_much():
    for _ in range(20):
        print("x" * 2**20)
    return os.environ["RAY_ROTATION_MAX_BYTES"], os.environ["RAY_ROTATION_BACKUP_COUNT"]

print(*ray.get(print_much.remote()))
print(Config.health_check_failure_threshold())
print(Config.health_check_period_ms(), Config.health_check_timeout_ms(), Config.grpc_client_keepalive_time_ms())
disconnect(cluster)
"""

ENDS_DURING_A_REPORT = """
import gc
import ray
from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect

cluster = connect(None, workers=1, cpus=1.0, gpus=0.0, dashboard=False)
gc.disable()
garbage = [ray.put(0)]
garbage.append(garbage)
del garbage
held = [ray.put(1)]
core = ray._private.worker.global_worker.core_worker


class CollectedDuringShutdown:
    def __getattr__(self, name):
        return getattr(core, name)

    def shutdown_driver(self):
        core.shutdown_driver()
        gc.collect()  # as the report may at this moment


ray._private.worker.global_worker.core_worker = CollectedDuringShutdown()
disconnect(cluster, waits=False, held=held)
del held
print("reported")
"""

JOINS = """
import sys
import ray
from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect

cluster = connect(None, workers=100, cpus=1.0, gpus=0.0, dashboard=True)
print(cluster.is_ours, cluster.is_connected_here, cluster.address == sys.argv[1])
print(*cluster.notes)
disconnect(cluster)
"""

# what `ray.init` returns
CONTEXT = SimpleNamespace(dashboard_url=None, address_info={"session_dir": "/nowhere"})


LOSES_PROCESS = """
import sys
import time
import psutil
from bbkb import BbkbError, Range, load, tune

def objective(x):
    time.sleep(0.5)
    return x

def kill(result):
    for child in psutil.Process().children(recursive=True):
        if child.name().startswith(sys.argv[1]):
            child.kill()

space = {"x": Range(0.0, 1.0)}
common = {"direction": "maximize", "workers": 1, "progress": False}
try:
    tune(objective, space, evaluations=500, run="lost", on_result=kill, **common)
except BbkbError as error:
    print(error)
known = len(load("runs/lost").rows())
resumed = tune(objective, space, evaluations=known + 1, run="lost", resume=True, **common)
print(len(resumed) > known >= 1)
"""


def run(script: str, *arguments: str, **environment: str) -> list[str]:
    """Return the lines that `script` prints. Any other output on either stream is a failure."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**inherited, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


@pytest.mark.thorough
def test_end_of_ray_does_not_end_a_process_that_still_reports() -> None:
    assert run(ENDS_DURING_A_REPORT) == ["reported"]


@pytest.mark.thorough
def test_cluster_started_here_is_silent_reused_and_leaves_no_trace_at_home(
    short_folder: str,
) -> None:
    home = Path(short_folder, "home")
    home.mkdir()
    lines = run(STARTS, HOME=str(home), RAY_TMPDIR=short_folder, TMPDIR=short_folder)
    assert lines[0] == "crashed"
    assert lines[1] == "True True"
    assert lines[2].startswith("http://127.0.0.1:")
    assert lines[3] == "64.0 token True 0o600"
    assert lines[4] == "0o700"
    assert lines[5] == "False False"
    assert lines[6].startswith("64 CPUs asked for, ")
    assert lines[7:] == ["the next one takes it: True", "False"]
    assert not list(Path(short_folder).glob("bbkb-token-*"))
    assert list(home.iterdir()) == []


# the raylet ends after the death of its agent, and says so to Ray's other processes
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["raylet", "ray::RuntimeEnv"])
def test_lost_raylet_ends_the_session_with_a_remedy(
    name: str, short_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(short_folder)
    lines = run(LOSES_PROCESS, name, RAY_TMPDIR=short_folder)
    assert lines[0].startswith(("Ray's process raylet on this machine has ended", "the coordinator died"))
    assert lines[0].endswith(f"Every finished result is in the log: bbkb resume {short_folder}/runs/lost")
    assert lines[-1] == "True", "the next campaign of the process starts another Ray"


def test_settings_for_other_nodes_are_those_of_a_cluster_started_here() -> None:
    lines = (REPOSITORY / "deploy" / "ray.env").read_text().splitlines()
    shipped = dict(line.split("=") for line in lines if line and not line.startswith("#"))
    assert shipped.items() <= cluster.ENVIRONMENT.items()
    assert {name for name in cluster.ENVIRONMENT if "health" in name or "keepalive" in name} <= shipped.keys()


@pytest.mark.thorough
def test_users_environment_overrides_ours_and_output_of_workers_is_bounded(short_folder: str) -> None:
    settings = {"RAY_ROTATION_MAX_BYTES": "1048576", "RAY_health_check_period_ms": "1234"}
    lines = run(TELLS_SETTINGS, RAY_TMPDIR=short_folder, **settings)
    assert lines == ["1048576 1", "100", "1234 5000 20000"]
    written_bytes = sum(file.stat().st_size for file in Path(short_folder).glob("**/worker-*.out*"))
    assert 2**20 <= written_bytes <= 4 * 2**20  # of 20 MiB that were printed


def test_cluster_named_by_the_environment_is_joined_and_left_running(ray_cluster: str) -> None:
    protected = {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    assert run(JOINS, ray_cluster, RAY_ADDRESS=ray_cluster, **protected) == [
        "False True True",
        "the cluster has 4 CPUs, 100 workers ask for 100: some will wait",
    ]
    assert ray.cluster_resources()["CPU"] == 4.0


@pytest.mark.parametrize(("mode", "warnings"), [("token", 0), ("disabled", 1), (None, 1)])
def test_joining_a_cluster_without_a_token_causes_a_warning(
    mode: str | None, warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    assert len(cluster._open_notes("head:6379")) == warnings


def test_open_connection_is_used_and_not_closed(ray_cluster: str) -> None:
    joined = connect("no.such.host:1", workers=1, cpus=1.0, gpus=3.0, dashboard=False)
    assert (joined.address, joined.is_ours, joined.is_connected_here) == (ray_cluster, False, False)
    assert joined.notes == ("the cluster has 2 GPUs, 1 worker asks for 3: some will wait",)
    disconnect(joined)
    assert ray.is_initialized()


@pytest.fixture
def without_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)


@pytest.mark.usefixtures("without_connection")
@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port", ":6379", "127.0.0.1:99999"])
def test_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(UserError, match=r"--address .* must be host:port"):
        connect(address, workers=1, cpus=1.0, gpus=0.0, dashboard=False)


@pytest.mark.usefixtures("without_connection")
def test_address_without_a_cluster_is_rejected_with_a_remedy() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: no other process can take the port meanwhile
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(UserError, match=f"must name a running Ray cluster, got {address}: .*`ray start --head`"):
            connect(address, workers=1, cpus=1.0, gpus=0.0, dashboard=False)


@pytest.mark.usefixtures("without_connection")
def test_run_on_a_cluster_that_rejects_it_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def refuse(_name: str, **_: Any) -> None:
        raise ConnectionError("the token is wrong")

    monkeypatch.setattr(cluster, "_init", refuse)
    monkeypatch.setattr(environment, "_PROBE_SECONDS", 0.2)  # this server does not respond
    monkeypatch.chdir(tmp_path)
    campaign = "name: n\nobjective: {name: sine}\nbudget: {evaluations: 1}\nworkers: {count: 1}\n"
    Path("campaign.yaml").write_text(campaign)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match="got the token is wrong"):
            bbkb("run", "campaign.yaml", "--address", address)
        with pytest.raises(UserError, match="got the token is wrong"):
            Campaign.from_file("campaign.yaml").run(address=address)
    with pytest.raises(UserError, match="one evaluation must fit on one node, got CPU 1, GPU 64"):
        Campaign.from_file("campaign.yaml", ["workers.gpus=64"]).run()
    assert not Path("runs").exists()


@pytest.mark.usefixtures("without_connection")
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RuntimeError("Version mismatch: The cluster was started with:\n  Ray: 2.1\n  Python: 3.9"), "same|versions"),
        (ConnectionError("GCS is silent"), "RAY_AUTH_MODE=token"),
        (ray.exceptions.AuthenticationError("no token"), "RAY_AUTH_MODE=token"),
    ],
)
def test_cluster_that_rejects_the_token_is_a_users_error_with_a_remedy(
    error: Exception, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_name: str, **_: Any) -> None:
        raise error

    monkeypatch.setattr(cluster, "_init", refuse)
    monkeypatch.setattr(environment, "_PROBE_SECONDS", 0.2)  # this server does not respond
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match=remedy):
            connect(address, workers=1, cpus=1.0, gpus=0.0, dashboard=False)


@pytest.mark.usefixtures("without_connection")
def test_tls_on_one_side_only_is_a_users_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.setattr(environment, "_PROBE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match=f"RAY_USE_TLS must be 0 .* {address} has no TLS"):
            connect(address, workers=1, cpus=1.0, gpus=0.0, dashboard=False)


@pytest.mark.parametrize(
    ("error", "expected", "words"),
    [
        (RuntimeError("Failed."), UserError, "got Failed; free disk space .* less busy"),
        (Exception("Failed."), UserError, "got Failed; "),  # Ray's error after half a minute
        (KeyError("mistake"), KeyError, "mistake"),
    ],
)
@pytest.mark.usefixtures("without_connection")
def test_failed_start_of_ray_is_a_users_error_but_a_programming_error_is_not(
    error: Exception, expected: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_name: str, **_: Any) -> None:
        raise error

    monkeypatch.setattr(cluster, "_init", refuse)
    with pytest.raises(expected, match=words):
        connect(None, workers=1, cpus=1.0, gpus=0.0, dashboard=False)


@pytest.mark.usefixtures("without_connection")
@pytest.mark.parametrize(("said", "used"), [("", str(cores())), ("1", "1")])
def test_ray_may_start_without_its_dashboard_and_starts_processes_concurrently_unless_the_user_limits_them(
    said: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "RAY_worker_maximum_startup_concurrency"
    monkeypatch.setenv(name, said)
    if not said:
        monkeypatch.delenv(name)
    asked: dict[str, Any] = {}
    monkeypatch.setattr(cluster, "_init", lambda _name, **options: asked.update(options) or CONTEXT)
    monkeypatch.setattr(cluster, "_gcs_address", lambda: "here")
    monkeypatch.setattr(ray, "cluster_resources", dict)
    connect(None, workers=1, cpus=0.0, gpus=0.0, dashboard=True)
    assert asked["include_dashboard"] is None
    assert os.environ[name] == used


@pytest.mark.parametrize(("raylets", "lost"), [(1, "raylet"), (3, "")])
def test_the_only_raylet_is_necessary_but_none_of_several(
    raylets: int, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of several nodes in one process loses one of them."""
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(raylets)]
    monkeypatch.setattr(cluster, "children", lambda: {process.pid: "raylet" for process in processes})
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(cluster, "_gcs_address", lambda: f"a cluster with {raylets} nodes")
    try:
        assert cluster.lost_process() == ""
        processes[-1].kill()
        os.waitid(os.P_PID, processes[-1].pid, os.WEXITED | os.WNOWAIT)
        assert cluster.lost_process() == lost
    finally:
        for process in processes:
            process.kill()
            process.wait()


MAKE = """
import os, signal
from bbkb.orchestrator.running.coordinator.environment import require_token
print(require_token(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return tmp_path


def token_of_a_killed_process(folder: Path) -> Path:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-c", MAKE], env={**inherited, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True
    )
    return Path(done.stdout.strip())


def test_token_of_a_killed_process_is_removed_by_the_next_one(folder: Path) -> None:
    token = token_of_a_killed_process(folder)
    assert token.is_file()
    new_token = _token_file.__wrapped__()
    assert not token.parent.exists()
    assert new_token.is_file()
    assert new_token.parent.stat().st_mode & 0o777 == 0o700


def test_token_of_a_running_process_is_kept(folder: Path) -> None:
    token = token_of_a_killed_process(folder)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "RAY_AUTH_TOKEN_PATH": str(token)}) as ray_that_lives:
        environment = Path(f"/proc/{ray_that_lives.pid}/environ")
        assert wait_until(environment.read_bytes)  # it is empty for a moment after the start
        _token_file.__wrapped__()
        assert token.is_file()
        ray_that_lives.kill()


def test_folders_of_living_and_unknown_owners_are_kept(folder: Path) -> None:
    written = {
        "alive": Identity.of_this_process().to_text(),
        "elsewhere": Identity("another", 1, "1", "another boot").to_text(),
        "damaged": "{",
    }
    for name, text in written.items():
        (folder / f"bbkb-token-{name}").mkdir()
        (folder / f"bbkb-token-{name}" / "owner").write_text(text)
    (folder / "bbkb-token-of-an-older-version").mkdir()
    _token_file.__wrapped__()
    assert len(list(folder.glob("bbkb-token-*"))) == len(written) + 2


LOGS = st.builds(SyntheticLog, trials=st.integers(0, 30), workers=st.integers(1, 5), seed=st.integers(0, 5))


def statuses(log: SyntheticLog) -> list[Status]:
    """After each event."""
    states, state = [], CampaignState()
    for event in log.events():
        state = apply(state, event)
        states.append(state)
    return [status_of(state) for state in states]


@given(LOGS)
@settings(max_examples=examples(30))
def test_counters_never_fall_and_end_at_the_totals_of_the_log(log: SyntheticLog) -> None:
    courses = [totals_of(status).counters for status in statuses(log)]
    for before, after in itertools.pairwise(courses):
        for key, value in before.items():
            if key[0] == "bbkb_evaluations":
                assert after[key] >= value
    last = functools.reduce(apply, log.events(), CampaignState())
    evaluations = {key[2]: value for key, value in courses[-1].items() if key[0] == "bbkb_evaluations"}
    assert (evaluations["succeeded"], evaluations["failed"]) == (last.totals.succeeded, last.totals.failed)


@given(LOGS)
@settings(max_examples=examples(30))
def test_names_and_labels_are_few(log: SyntheticLog) -> None:
    for status in statuses(log):
        totals = totals_of(status)
        assert set(totals.gauges) <= set(DESCRIPTIONS)
        assert {(name, label) for name, label, _ in totals.counters} <= {
            ("bbkb_evaluations", "status"),
            ("bbkb_idle_seconds", "cause"),
        }
        assert {of for _, label, of in totals.counters if label == "cause"} <= set(LABELS)


def test_histogram_exists_for_every_measured_time() -> None:
    assert {f"bbkb_{span.value}_seconds" for span in Span} <= set(DESCRIPTIONS)
