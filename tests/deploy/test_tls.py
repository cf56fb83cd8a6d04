"""Token and TLS between machines: a campaign runs on all of them, a process without TLS is rejected
with the reason."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.namespaces import Machines, missing, search_path, wait_for

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "deploy" / "tls" / "certificates.sh"
NAMES = ("head", "second", "third")
_ABSENT = missing("openssl")
OBJECTIVE = """
import socket, time

def evaluate(x, seed):
    time.sleep(1.0)
    return {"value": x, "machine": {"head": 1.0, "second": 2.0, "third": 3.0}[socket.gethostname()]}
"""
CAMPAIGN = """
name: encrypted
objective: {callable: "where:evaluate", direction: maximize}
space: {x: {low: 0.0, high: 1.0}}
candidates: {size: 64}
strategy: {name: uniform}
budget: {evaluations: 18}
workers: {count: 6, kind: actor}
"""


def certificates(folder: Path, *machines: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", SCRIPT, folder, *machines], capture_output=True, text=True, check=False)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@needs_openssl
def test_certificate_of_each_machine_is_signed_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    assert certificates(tmp_path / "tls", "head=10.0.0.1").returncode == 0
    assert certificates(tmp_path / "tls", "node-2=node-2.example").returncode == 0  # added later, by the same authority
    for name, address in (("head", "IP Address:10.0.0.1"), ("node-2", "DNS:node-2.example")):
        certificate = str(tmp_path / "tls" / f"{name}.crt")
        subprocess.run(["openssl", "verify", "-CAfile", tmp_path / "tls" / "ca.crt", certificate], check=True)
        shown = ["openssl", "x509", "-in", certificate, "-noout", "-ext", "subjectAltName"]
        assert address in subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    files = list((tmp_path / "tls").iterdir())
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert not {file.suffix for file in files} & {".csr", ".ext"}


@needs_openssl
@pytest.mark.parametrize("machine", ["head", "=1.2.3.4", "head=", "a/b=1.2.3.4", "ca=1.2.3.4", "head=1;x"])
def test_invalid_machine_is_rejected_before_anything_is_written(tmp_path: Path, machine: str) -> None:
    done = certificates(tmp_path / "tls", "good=1.2.3.4", machine)
    assert done.returncode == 2
    assert f"a machine must be NAME=ADDRESS, got {machine}" in done.stderr
    assert not (tmp_path / "tls").exists()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Machines, dict[str, dict[str, str]]]]:
    """Ray on three machines with token and TLS, and the environment of each."""
    with Machines(NAMES, "10.79.0", folder) as machines:
        names_and_addresses = [f"{name}={machines.addresses[name]}" for name in NAMES]
        assert certificates(folder / "tls", *names_and_addresses).returncode == 0
        token = folder / "token"
        token.write_text("0123456789abcdef" * 4)
        token.chmod(0o600)
        environments = {name: _environment(folder, name) for name in NAMES}
        head = machines.addresses["head"]
        for name in NAMES:
            (folder / name).mkdir()
            options = f"--node-ip-address={machines.addresses[name]} --num-cpus=2 --object-store-memory=80000000"
            role = f"--head --port=6379 --temp-dir={folder / name}" if name == "head" else f"--address={head}:6379"
            # Ray ends by itself when it has not started after half a minute
            once = f"{sys.executable} -m ray.scripts.scripts start --block {role} {options}"
            start = f"for attempt in 1 2 3 4 5; do {once}; done"
            # the driver is on the head's machine: it finds Ray in the folder that the head names
            mounts = {} if name == "head" else {folder / "head": folder / name}
            machines.start(name, f"({start})", environments[name], mounts)
            if name == "head":
                wait_for(lambda: "Ray runtime started" in (folder / "head.out").read_text(), "head of Ray", 200.0)
        yield machines, environments


def _environment(folder: Path, name: str) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    tls = dict(
        line.removeprefix("export ").split("=", 1)
        for line in (folder / "tls" / f"{name}.env").read_text().split("\n")
        if line
    )
    ours = {"PYTHONPATH": f"{REPOSITORY}:{folder}", "PATH": search_path(), "RAY_USAGE_STATS_ENABLED": "0"}
    return {**inherited, **ours, **tls, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}


@pytest.mark.deploy
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(_ABSENT), reason=_ABSENT)
def test_campaign_with_token_and_tls_runs_on_three_machines_and_a_driver_without_tls_is_rejected() -> None:
    folder = Path(tempfile.mkdtemp(prefix="bt", dir="/tmp"))  # short: the path of a socket ends at 107 bytes
    (folder / "where.py").write_text(OBJECTIVE)
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    try:
        with cluster(folder) as (machines, environments):
            address = f"{machines.addresses['head']}:6379"
            alive = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False); print(len(ray.nodes()))"

            def run(*command: str, **changed: str) -> "subprocess.CompletedProcess[str]":
                environment = {**environments["head"], **changed}
                words = [*machines.inside("head"), sys.executable, *command]
                return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)

            wait_for(lambda: run("-c", alive, address).stdout.strip() == "3", "cluster of three machines", 300.0)
            done = run("-m", "bbkb", "run", "campaign.yaml", "--address", address, "--run", "first")
            assert done.returncode == 0, done.stdout + done.stderr
            rows = run("-m", "bbkb", "export", "runs/first", "--format", "csv").stdout
            assert {row.rpartition(",")[2] for row in rows.splitlines()[1:]} == {"1.0", "2.0", "3.0"}
            bare = run("-m", "bbkb", "run", "campaign.yaml", "--address", address, "--run", "no", RAY_USE_TLS="0")
            assert bare.returncode != 0
            assert "RAY_USE_TLS" in bare.stderr + bare.stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)
