"""A temporary PostgreSQL server on loopback for tests and benchmarks, from the binaries of a system
package.

The environment variable `BBKB_TEST_POSTGRESQL` selects the server of the tests. Not set: the
binaries, when they are found. `required`: the same, and an error when they are not found. `none`:
no test with PostgreSQL. Any other value is the URL of a server to test on; it cannot be killed, so
tests that kill a server still need the binaries.
"""

import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psycopg

WANTED = os.environ.get("BBKB_TEST_POSTGRESQL", "")
URL = "" if WANTED in ("", "none", "required") else WANTED
_START_SECONDS = 60.0


def binaries() -> Path | None:
    """The folder of `postgres` and `initdb`; None if there is none, or PostgreSQL is not
    tested."""
    if WANTED == "none":
        return None
    server = shutil.which("postgres")
    folders = [Path(server).resolve().parent] if server else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folders += [Path("/usr/local/bin"), Path("/opt/homebrew/bin")]
    return next((folder for folder in folders if (folder / "initdb").is_file()), None)


def databases() -> list[str]:
    """Names of the available databases. Raises RuntimeError when PostgreSQL is required and
    missing."""
    if WANTED == "required" and binaries() is None:
        raise RuntimeError(
            "BBKB_TEST_POSTGRESQL=required, but no PostgreSQL server was found: install Debian's package `postgresql`"
        )
    return ["sqlite", *(["postgresql"] if URL or binaries() else [])]


class Server:
    """A server with its own data folder; `url` names its database. PostgreSQL refuses to run as
    root, so when root starts it, it runs as another user. A context manager; or call `start` and
    `close`."""

    def __init__(self) -> None:
        folder = binaries()
        if folder is None:
            raise RuntimeError("no PostgreSQL server was found: install Debian's package `postgresql`")
        self._binaries = folder
        self._user = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # short: a Unix socket's path ends at 107 bytes
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        if self._user is not None:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, pwd.getpwnam(self._user).pw_gid)
        initialized = self._popen(
            "initdb", "-D", self._data, "-U", "tester", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"
        )
        if initialized.wait(_START_SECONDS):
            raise RuntimeError(f"initdb failed: {self._read_log()}")

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = self._popen(
            "postgres", "-D", self._data, "-p", str(self.port), "-k", str(self._folder), "-h", "127.0.0.1",
            "-c", "shared_buffers=16MB", "-c", "max_connections=40", "-c", "fsync=off",  # only processes are killed
        )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self._read_log()}")
            time.sleep(0.05)

    def kill(self) -> int:
        """Send SIGKILL to the postmaster, wait until its children have ended, too, and return its
        process id."""
        pid = 0 if self._process is None else self._process.pid
        self._end(signal.SIGKILL)
        deadline = time.monotonic() + _START_SECONDS
        while self._has_children():  # a new server does not start while they hold the shared memory
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL's child processes did not end")
            time.sleep(0.05)
        return pid

    def close(self) -> None:
        """Stop the server and remove its files."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_START_SECONDS)
            self._process = None

    def _has_children(self) -> bool:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "cwd") == self._data:
                    return True
            except OSError:  # it has ended, or belongs to another user
                continue
        return False

    def _popen(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / program, *arguments],
                cwd=self._folder,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal must not end it
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _read_log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]


def _unprivileged() -> str | None:
    """The user that the server runs as when this process belongs to root; None: the same user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next((name for name in ("postgres", "nobody") if name in names), None)
    if user is None:
        raise RuntimeError(f"PostgreSQL refuses to run as {getpass.getuser()}, and there is no other user to run it as")
    return user
