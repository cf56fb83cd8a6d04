"""A Ray head for one test on this machine, with its own ports and temporary folder, and processes
beside it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.deploy.namespaces import wait_for

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def head(folder: Path, *options: str, **environment: str) -> Iterator[dict[str, int]]:
    """Ray with its files in `folder`/r, which must be a short path. Gives its ports by the names of
    their options."""
    names = ("port", "dashboard-agent-listen-port", "ray-client-server-port", "dashboard-port")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={folder / 'r'}"]
    fixed = ["--node-ip-address=127.0.0.1", "--num-cpus=2", "--object-store-memory=80000000"]
    port_options = [f"--{name}={port}" for name, port in ports.items()]
    with process_running(folder, "ray", [*command, *fixed, *port_options, *options], environment):
        wait_for(lambda: "Ray runtime started" in (folder / "ray.out").read_text(), "head of Ray", 200.0)
        yield ports


@contextmanager
def process_running(
    folder: Path, name: str, command: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in `folder` with its output in NAME.out there; terminated at the end."""
    with (folder / f"{name}.out").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment_of(folder, environment), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60.0)
            print((folder / f"{name}.out").read_text()[-3000:])


def environment_of(folder: Path, additions: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without Ray's settings, with our packages and those of
    `folder`."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    # a token file in the home folder would switch authentication on
    ours = {"PYTHONPATH": f"{REPOSITORY}:{folder}", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    return {**inherited, **ours, **(additions or {})}


def free_ports(count: int) -> list[int]:
    """Ports of this machine at which nothing listens now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
