"""Several machines simulated on this one: network namespaces that are joined by a bridge. Needs
root.

Processes of a machine also have their own host name, process table and mounts, so that a folder
such as Ray's can differ between machines.
"""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

FOUND_SECONDS = 120.0


def missing(*commands: str) -> str:
    """Return why tests that need these commands and network namespaces cannot run here; empty if
    they can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    absent = [name for name in ("ip", "unshare", *commands) if shutil.which(name, path=search_path()) is None]
    return f"needs {', '.join(absent)}" if absent else ""


def search_path() -> str:
    """Return the search path with the folders of administrators' commands."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Machines:
    """The machines `names`, with addresses `<prefix>.1`, `.2`, …; `<prefix>.254` belongs to the
    bridge, which has a separate namespace. Use it as a context: processes and namespaces are
    removed in every case."""

    def __init__(self, names: Sequence[str], prefix: str, folder: Path) -> None:
        self._names = list(names)
        self._stem = f"bb{os.getpid() % 100000}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.addresses = {name: f"{prefix}.{number}" for number, name in enumerate(names, start=1)}
        self.bridge = f"{prefix}.254"

    def __enter__(self) -> "Machines":
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._remove()

    def inside(self, name: str) -> list[str]:
        """Return the prefix of a command in the network of this machine, or of `bridge`."""
        return ["ip", "netns", "exec", self._space(name)]

    def start(
        self, name: str, command: str, environment: Mapping[str, str], mounts: Mapping[Path, Path] | None = None
    ) -> subprocess.Popen[bytes]:
        """Run a shell command as a machine's own process. `mounts`: folder → the folder that
        replaces it there."""
        pairs = [(shlex.quote(str(at)), shlex.quote(str(to))) for to, at in (mounts or {}).items()]
        binds = "".join(f"mount --bind {at} {to}; " for at, to in pairs)
        # bash stays the first process there: it waits for orphans, which some daemons do not
        script = f"hostname {name}; {binds}{command} & wait $!"
        unshared = ["unshare", "-u", "-m", "-p", "-f", "--kill-child", "--mount-proc", "bash", "-c", script]
        with (self._folder / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                [*self.inside(name), *unshared],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def cut(self, name: str) -> None:
        """Disconnect a machine at the bridge: packets are lost, and no process is notified."""
        _ip("-n", self._space("bridge"), "link", "set", self._space(name), "down")

    def heal(self, name: str) -> None:
        """Connect the machine again."""
        _ip("-n", self._space("bridge"), "link", "set", self._space(name), "up")

    def _space(self, name: str) -> str:
        return f"{self._stem}b" if name == "bridge" else f"{self._stem}n{self._names.index(name)}"

    def _make(self) -> None:
        bridge = self._space("bridge")
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "set", "lo", "up")
        _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", bridge, "address", "add", f"{self.bridge}/24", "dev", "bridge")
        _ip("-n", bridge, "link", "set", "bridge", "up")
        for name, address in self.addresses.items():
            space = self._space(name)
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", bridge, "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", bridge, "link", "set", space, "master", "bridge", "up")
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "default", "via", self.bridge)

    def _remove(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the end of a namespace's first process ends all of them
                process.wait()
        for name in (*self._names, "bridge"):  # a namespace that was not created cannot be removed
            subprocess.run(["ip", "netns", "delete", self._space(name)], capture_output=True, check=False)


def wait_for(holds: Callable[[], object], what: str, seconds: float = FOUND_SECONDS) -> None:
    """Wait until the condition holds. Raises TimeoutError, which names `what`."""
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"after {seconds:g} s still no {what}")
        time.sleep(0.5)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)
