"""The lease of a campaign: the identity of its holder, its heartbeat, and the takeover after the
holder's death.

Whether a holder is dead is never decided by comparing the clocks of two machines:

* A session that has ended has released the campaign.
* A holder on this machine is dead if its process does not exist, or if another process has its
  process id.
* A holder on this machine that has lost its guardian ends soon: `find_free` waits for its end.
* A holder on another machine or in another container increments a heartbeat counter in the store.
  It is dead if the counter has not changed for `PATIENCE_SECONDS` on the observer's own clock.

A process that takes over claims with the epoch that it found free, so only one of two succeeds. A
holder that was considered dead by mistake is fenced off at its next heartbeat or append.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bbkb.orchestrator.errors import FencedError, HeldError, StoreError
from bbkb.orchestrator.store.store import EventStore, Holding, Stop, Writer
from bbkb.orchestrator.wording import duration, moment

BEAT_SECONDS = 2.0
PATIENCE_SECONDS = 10.0  # of observation: several heartbeats, even if the database is slow
ORPHAN_SECONDS = 30.0  # the longest wait for the end of a holder without its guardian; usual: 4
_POLL_SECONDS = 0.5  # between two checks of a holder
# The longest wait for a heartbeat at the end; an unreachable database may block longer
_JOIN_TIMEOUT_SECONDS = 5.0

_PROC = Path("/proc")
_DEAD_STATES = "ZX"  # ended, but its parent has not read its exit code yet


@dataclass(frozen=True, slots=True)
class Identity:
    """A process. If `started` or `space` is unknown, only heartbeats show whether it is alive.

    `guardian` is the process whose end also ends this one, after a few seconds: for a Ray actor,
    the raylet, which on a local Ray ends with the program that started it.
    """

    host: str
    pid: int
    # the start time in kernel ticks, which distinguishes the process from a later one with the same
    # ID
    started: str = ""
    space: str = ""  # machine boot and PID namespace in which `pid` is unique
    guardian: "Identity | None" = None

    @classmethod
    def of_this_process(cls) -> "Identity":
        """Return the identity of this process."""
        return cls._of(os.getpid())

    @classmethod
    def of_this_child(cls) -> "Identity":
        """Return the identity of this process, whose parent is its guardian."""
        return replace(cls.of_this_process(), guardian=cls._of(os.getppid()))

    @classmethod
    def _of(cls, pid: int) -> "Identity":
        return cls(socket.gethostname(), pid, _stat(pid)[1], _space())

    @classmethod
    def read(cls, text: str) -> "Identity | None":
        """Return the identity from a text of `to_text`; None for any other text."""
        try:
            fields = json.loads(text)
            guardian = fields.get("guardian")
            return replace(cls._read(fields), guardian=None if guardian is None else cls._read(guardian))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    @classmethod
    def _read(cls, fields: Mapping[str, Any]) -> "Identity":
        return cls(str(fields["host"]), int(fields["pid"]), str(fields["started"]), str(fields["space"]))

    def to_text(self) -> str:
        """Return the text for the store."""
        return json.dumps(asdict(self))

    def is_alive(self, here: str) -> bool | None:
        """Return whether this process exists; None if that is unknown in the space `here`."""
        if not self.space or not self.started or self.space != here:
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it exists and belongs to another user
        state, started = _stat(self.pid)
        if not state:
            return None  # hidden from this user or just ended; the next check decides
        return state not in _DEAD_STATES and started == self.started

    def __str__(self) -> str:
        return f"{self.host} process {self.pid}"


class Watch:
    """Decides by repeated checks whether another process holds a campaign."""

    def __init__(
        self,
        me: Identity | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.sleep = sleep
        self._here = (me or Identity.of_this_process()).space
        self._clock = clock
        self._last: tuple[int, int] | None = None  # epoch and beats
        self._since = 0.0
        self._has_moved = False

    def is_held(self, holding: Holding) -> bool | None:
        """Return whether the holder is alive; None if another check is necessary."""
        if not holding.holder:
            return False
        identity = Identity.read(holding.identity)
        is_alive = None if identity is None else identity.is_alive(self._here)
        if is_alive is not None:
            return is_alive
        heartbeat = (holding.epoch, holding.beats)
        if heartbeat != self._last:
            self._has_moved = self._last is not None
            self._last = heartbeat
            self._since = self._clock()
        if self._clock() - self._since >= PATIENCE_SECONDS:
            return False
        return True if self._has_moved else None

    def is_ending(self, holding: Holding) -> bool:
        """Return whether the guardian of the holder has ended."""
        identity = Identity.read(holding.identity)
        guardian = None if identity is None else identity.guardian
        return guardian is not None and guardian.is_alive(self._here) is False


def watch_holder(
    store: EventStore,
    campaign: str,
    say: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
) -> tuple[Holding, bool]:
    """Return the holder of the campaign and whether it is alive, after as many checks as necessary.

    `say` tells the user about the wait. Raises RunError if the campaign does not exist.
    """
    watch = watch or Watch()
    has_said = False
    while True:
        holding = store.holding(campaign)
        is_held = watch.is_held(holding)
        if is_held is not None:
            return holding, is_held
        if not has_said:
            say(f"{holding.holder} may still run it: waiting {duration(PATIENCE_SECONDS)} for a heartbeat")
            has_said = True
        watch.sleep(_POLL_SECONDS)


def find_free(
    store: EventStore,
    campaign: str,
    say: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
) -> Holding:
    """Return the lease of a campaign that no process runs.

    `say` informs the user about a wait. Raises HeldError if a process runs it and will not end.
    """
    watch = watch or Watch()
    holding, is_held = watch_holder(store, campaign, say, watch)
    waited = 0.0
    while is_held and waited < ORPHAN_SECONDS and watch.is_ending(holding):
        if not waited:
            say(f"{holding.holder} has lost the process that started it: waiting for its end")
        watch.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
        holding, is_held = watch_holder(store, campaign, say, watch)
    if is_held:
        raise HeldError(
            f"only one process can run campaign {campaign!r}, and {describe_holder(holding)}: watch it with "
            "`bbkb attach`, or end it with `bbkb stop` first"
        )
    return holding


def take(
    store: EventStore,
    campaign: str,
    say: Callable[[str], None] = lambda line: None,
    me: Identity | None = None,
    watch: Watch | None = None,
    settings: str = "",
) -> Writer:
    """Claim a campaign that no process runs, with the settings (JSON) of the next session.

    Raises HeldError if a process is running it or claims it first.
    """
    me = me or Identity.of_this_process()
    free = find_free(store, campaign, say, watch or Watch(me))
    return store.claim(campaign, str(me), me.to_text(), seen=free.epoch, settings=settings)


def describe_holder(holding: Holding) -> str:
    """Describe the holder for a person. Its times are on the holder's clock."""
    ago = duration(max(0.0, time.time() - holding.last_beat))
    return f"{holding.holder} runs it since {moment(holding.since)} (last sign of life {ago} ago)"


class Heartbeat:
    """The heartbeat of a session in the store, in a separate thread. It also receives requests to
    stop.

    It survives a short outage of the database. If another process has taken over the campaign, the
    session is stopped at once, and its next append raises the error.
    """

    def __init__(self, writer: Writer, period_seconds: float = BEAT_SECONDS) -> None:
        self._writer = writer
        self._period_seconds = period_seconds
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._asked: Stop = ""
        self._stop: Callable[[bool], None] = lambda now: None
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def pass_stop_requests_to(self, stop: Callable[[bool], None]) -> None:
        """Forward stop requests, including an earlier one. `stop(now)` stops the session."""
        with self._lock:
            self._stop = stop
            if self._asked:
                stop(self._asked == "now")

    def end(self) -> None:
        """End the heartbeat and release the campaign.

        An error of the store is ignored: the next process will find that this one is dead, and the
        important error is the one that ended the session.
        """
        self._is_over.set()
        self._thread.join(_JOIN_TIMEOUT_SECONDS)
        with contextlib.suppress(StoreError):
            self._writer.release()

    def _live(self) -> None:
        while not self._is_over.wait(self._period_seconds):
            try:
                stop = self._writer.beat()
            except FencedError:
                self._request_stop("now")
                return
            except StoreError:
                continue  # the driver uses the same store and decides whether to wait
            self._request_stop(stop)

    def _request_stop(self, stop: Stop) -> None:
        with self._lock:
            if stop and stop != self._asked:
                self._asked = stop
                self._stop(stop == "now")


def _stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and its start in ticks since boot; empty if unknown."""
    try:
        # the name in the middle may contain spaces and brackets
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def _space() -> str:
    """Return boot ID and PID namespace; empty if the system does not provide them."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat(_PROC / 'self/ns/pid').st_ino}"
    except OSError:
        return ""
