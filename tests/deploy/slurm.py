"""A real Slurm cluster of three nodes with two CPUs each, on this machine: nothing outside its
folder is touched."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.deploy.namespaces import Machines, search_path, wait_for

REPOSITORY = Path(__file__).parents[2]
NODES = ("n1", "n2", "n3")
_CONFIGURATION = Path(__file__).with_name("slurm.conf")
_PREFIX = "10.78.0"
_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


class Slurm:
    """The cluster's commands, run on its controller. Every node can access `folder`."""

    def __init__(self, machines: Machines, folder: Path, environment: dict[str, str]) -> None:
        self._machines = machines
        self.folder = folder
        self._environment = environment
        self.addresses = machines.addresses

    def run(self, *command: str, cwd: Path | None = None, **environment: str) -> str:
        """Return the output of a command. Raises CalledProcessError, after printing its errors."""
        done = subprocess.run(
            [*self._machines.inside("bridge"), *command],
            env={**self._environment, **environment},
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stdout, done.stderr)
            done.check_returncode()
        return done.stdout

    def listening_sockets(self, node: str) -> list[tuple[str, int, str]]:
        """Address (`*` for all of the machine's), port and program of every socket that listens on
        a node."""
        command = [*self._machines.inside(node), "ss", "-Hltnp"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        listening = []
        for line in lines:
            address, _, port = line.split()[3].rpartition(":")
            bare = address.strip("[]").removeprefix("::ffff:")
            program = line.partition('users:(("')[2].partition('"')[0]
            listening.append(("*" if bare in ("*", "0.0.0.0", "::") else bare, int(port), program))
        return listening

    def submit(self, *arguments: str, cwd: Path, **environment: str) -> str:
        """The number of a job submitted in the folder `cwd`."""
        return self.run("sbatch", "--parsable", *arguments, cwd=cwd, **environment).strip()

    def state(self, job: str) -> str:
        """Return the state of a job, such as RUNNING, PENDING or COMPLETED."""
        return self._field(job, "JobState")

    def restarts(self, job: str) -> int:
        """Return the number of times that a job was queued again."""
        return int(self._field(job, "Restarts"))

    def running_seconds(self, job: str) -> int:
        """Return the seconds since a job started or restarted."""
        shown = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", self._field(job, "RunTime"))
        assert shown is not None
        days, hours, minutes, seconds = (int(number or 0) for number in shown.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def has_scripts(self, node: str) -> bool:
        """Return whether a job's script still runs on a node."""
        folder = f"{self.folder}/slurm/spool.{node}/job"
        return subprocess.run(["pgrep", "-f", folder], capture_output=True, check=False).returncode == 0

    def wait(self, job: str, seconds: float = 400.0) -> None:
        """Wait until the job has ended. Raises TimeoutError, after printing its output."""
        self._wait(lambda: self.state(job) in _OVER, f"end of job {job}", seconds)

    def wait_for(self, job: str, holds: Callable[[], object], what: str, seconds: float = 400.0) -> None:
        """Wait until the condition holds. Raises TimeoutError, or AssertionError if the job ended
        by itself, after printing the output of jobs."""

        def holds_or_fails() -> object:
            if holds():
                return True
            state = self.state(job)
            assert state not in _OVER[:2], f"job {job} is {state}: no {what} will come"
            return False

        self._wait(holds_or_fails, what, seconds)

    def _wait(self, holds: Callable[[], object], what: str, seconds: float) -> None:
        try:
            wait_for(holds, what, seconds)
        finally:
            for file in self.folder.glob("*/*.out"):
                print(file, file.read_text()[-4000:], sep="\n")

    def _field(self, job: str, field: str) -> str:
        words = dict(word.partition("=")[::2] for word in self.run("scontrol", "show", "job", job).split())
        return words[field]


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """A cluster that runs until the context ends. `folder` must be short: it contains sockets."""
    work, ray = folder / "slurm", folder / "r"
    for place in (work / "state", ray):
        place.mkdir(parents=True)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM"))},
        "PATH": f"{_commands(folder / 'bin')}:{search_path()}",
        "SLURM_CONF": str(work / "slurm.conf"),
        "BBKB_RAY_TMP": str(ray),
        "BBKB_OBJECT_STORE_BYTES": "80000000",
        "BBKB_RAY_HEAD_OPTIONS": "--include-dashboard=false",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
    }
    with ExitStack() as stack:
        machines = stack.enter_context(Machines(NODES, _PREFIX, work))
        _write_configuration(work, machines)
        stack.enter_context(_munge(work))
        machines.start("bridge", "slurmctld -D", environment)
        for name in NODES:
            node_folder = folder / "nodes" / name
            node_folder.mkdir(parents=True)
            (work / f"spool.{name}").mkdir()
            machines.start(name, f"slurmd -D -N {name}", environment, {ray: node_folder})
        cluster = Slurm(machines, folder, environment)
        wait_for(lambda: _idle(cluster) == len(NODES), "cluster of three idle nodes")
        yield cluster


def bbkb(*arguments: str) -> str:
    """Return the output of the command, run outside the cluster. Raises CalledProcessError."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "bbkb", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def _idle(cluster: Slurm) -> int:
    try:
        answer = cluster.run("sinfo", "-h", "-p", "low", "-t", "idle", "-o", "%D").strip()
    except subprocess.CalledProcessError:  # the controller is starting
        return 0
    return int(answer or 0)


def _write_configuration(work: Path, machines: Machines) -> None:
    values = {
        "@WORK@": str(work),
        "@CONTROLLER@": machines.bridge,
        "@NODES@": f"{_PREFIX}.[1-{len(NODES)}]",
    }
    text = _CONFIGURATION.read_text()
    for name, value in values.items():
        text = text.replace(name, value)
    (work / "slurm.conf").write_text(text)
    # in a network namespace /sys/fs/cgroup is not mounted
    (work / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")


@contextmanager
def _munge(work: Path) -> Iterator[None]:
    """The daemon that authenticates Slurm's messages."""
    key = work / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    options = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    files = [f"--{option}={work / f'munge.{suffix}'}" for option, suffix in options.items()]
    command = [str(shutil.which("munged", path=search_path())), "--foreground", "--force", f"--key-file={key}", *files]
    with (work / "munge.err").open("wb") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            wait_for((work / "munge.socket").exists, "munge daemon", 20.0)
            yield
        finally:
            process.terminate()


def _commands(folder: Path) -> Path:
    """A folder with `bbkb` and `ray`, as a node of a cluster has them."""
    folder.mkdir()
    for name, module in (("bbkb", "bbkb"), ("ray", "ray.scripts.scripts")):
        command = folder / name
        command.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m {module} "$@"\n')
        command.chmod(0o755)
    return folder
