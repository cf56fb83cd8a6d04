"""The lease of a campaign: the identity of its holder, its heartbeat, and how another process takes
over after its death. The decision that a holder is dead never compares the clocks of two machines:

* A session that ended has released the campaign: it is free.
* A holder on this machine is looked up among its processes: it is dead when the process is gone, or
  its number belongs to another process.
* A holder elsewhere (another machine, another container) is watched: it counts its beats in the
  store, and is dead when the count has not changed for `PATIENCE_SECONDS` on the watcher's own
  clock.

A process that takes over claims with the epoch that was found free, so one of two such processes
loses. A holder that was wrongly considered dead is fenced off at its next beat or append.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import FencedError, HeldError, StoreError
from orchestrator.store.event_store import EventStore, Writer
from orchestrator.store.store import Holding, Stop
from orchestrator.wording import duration, moment

BEAT_SECONDS = 2.0
PATIENCE_SECONDS = 10.0  # of observing a holder elsewhere: a few heartbeats, one of them with a slow database
_LOOK_SECONDS = 0.5  # between two checks of it
_JOIN_TIMEOUT_SECONDS = (
    5.0  # to wait at the end for a running heartbeat; an unreachable database may block it for longer
)

_PROC = Path("/proc")
_DEAD_STATES = "ZX"  # ended, and its parent has not read its exit code yet


@dataclass(frozen=True, slots=True)
class Identity:
    """A process. Without `started` and `space` (unknown here) only heartbeats decide."""

    host: str
    pid: int
    started: str = ""  # in the kernel's ticks: distinguishes it from a later process with the same number
    space: str = ""  # boot of the machine and PID namespace: where `pid` means something

    @classmethod
    def of_this_process(cls) -> "Identity":
        """Return the identity of this process."""
        return cls(socket.gethostname(), os.getpid(), _stat(os.getpid())[1], _space())

    @classmethod
    def read(cls, text: str) -> "Identity | None":
        """Return the identity that `to_text` wrote; None for any other text."""
        try:
            fields = json.loads(text)
            return cls(str(fields["host"]), int(fields["pid"]), str(fields["started"]), str(fields["space"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_text(self) -> str:
        """Return the text for the store."""
        return json.dumps(asdict(self))

    def is_alive(self, here: str) -> bool | None:
        """Return whether this process exists, seen from the space `here`; None if unknown."""
        if not self.space or not self.started or self.space != here:
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it exists, and belongs to another user
        state, started = _stat(self.pid)
        if not state:
            return None  # hidden from this user, or it has just ended: the next check decides
        return state not in _DEAD_STATES and started == self.started

    def __str__(self) -> str:
        return f"{self.host} process {self.pid}"


class Watch:
    """Decides by repeated checks whether a campaign is held by another than `me`."""

    def __init__(self, me: Identity | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._here = (me or Identity.of_this_process()).space
        self._clock = clock
        self._last: tuple[int, int] | None = None  # epoch and beats
        self._since = 0.0
        self._has_moved = False

    def is_held(self, holding: Holding) -> bool | None:
        """Return whether its holder lives; None while that is unknown: check again."""
        if not holding.holder:
            return False
        identity = Identity.read(holding.identity)
        is_alive = None if identity is None else identity.is_alive(self._here)
        if is_alive is not None:
            return is_alive
        heartbeat = (holding.epoch, holding.beats)
        if heartbeat != self._last:
            self._has_moved = self._last is not None
            self._last, self._since = heartbeat, self._clock()
        if self._clock() - self._since >= PATIENCE_SECONDS:
            return False
        return True if self._has_moved else None


def watch_holder(
    store: EventStore,
    campaign: str,
    say: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Holding, bool]:
    """Return who holds the campaign, and whether it lives: checked until that is certain; `say`
    informs the user about the wait.

    Raises RunError when there is no such campaign.
    """
    watch, has_said = watch or Watch(), False
    while True:
        holding = store.holding(campaign)
        is_held = watch.is_held(holding)
        if is_held is not None:
            return holding, is_held
        if not has_said:
            say(f"{holding.holder} may run it still: watching for a sign of life for {duration(PATIENCE_SECONDS)}")
            has_said = True
        sleep(_LOOK_SECONDS)


def find_free(
    store: EventStore,
    campaign: str,
    say: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Holding:
    """Return the lease of a campaign that no process runs. Raises HeldError when one does."""
    holding, is_held = watch_holder(store, campaign, say, watch, sleep)
    if is_held:
        raise HeldError(
            f"campaign {campaign!r} can be run by one process only, and {describe_holder(holding)}: watch it with "
            "`bbkb attach`, or end it with `bbkb stop` first"
        )
    return holding


def take(
    store: EventStore,
    campaign: str,
    say: Callable[[str], None] = lambda line: None,
    me: Identity | None = None,
    watch: Watch | None = None,
    sleep: Callable[[float], None] = time.sleep,
    settings: str = "",
) -> Writer:
    """Claim a campaign that no process runs, with the settings (JSON) of the session to come.

    Raises HeldError when a process runs it, or is faster.
    """
    me = me or Identity.of_this_process()
    free = find_free(store, campaign, say, watch or Watch(me), sleep)
    return store.claim(campaign, str(me), me.to_text(), seen=free.epoch, settings=settings)


def describe_holder(holding: Holding) -> str:
    """Return who runs it, for a person; the times are by the holder's clock."""
    ago = duration(max(0.0, time.time() - holding.last_beat))
    return f"{holding.holder} runs it since {moment(holding.since)} (last sign of life {ago} ago)"


class Heartbeat:
    """The heartbeat of a session in the store, which also receives requests to stop. It has its own
    thread. A database that is unreachable for a short time does not end it. When another process
    has taken the campaign over the session is stopped at once; its next append raises the reason.
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
        """Pass on requests to stop, also an earlier one; `stop` gets whether at once."""
        with self._lock:
            self._stop = stop
            if self._asked:
                stop(self._asked == "now")

    def end(self) -> None:
        """End the heartbeat and release the campaign.

        An unreachable store cannot be updated. That has no consequence: the next process finds this
        one gone, or its heartbeat stopped, and the important error is the one that ended the
        session.
        """
        self._is_over.set()
        self._thread.join(_JOIN_TIMEOUT_SECONDS)
        try:
            self._writer.release()
        except StoreError:
            return

    def _live(self) -> None:
        while not self._is_over.wait(self._period_seconds):
            try:
                stop = self._writer.beat()
            except FencedError:
                self._request_stop("now")
                return
            except StoreError:
                continue  # the loop uses the same store, and decides whether to wait for it
            self._request_stop(stop)

    def _request_stop(self, stop: Stop) -> None:
        with self._lock:
            if stop and stop != self._asked:
                self._asked = stop
                self._stop(stop == "now")


def _stat(pid: int) -> tuple[str, str]:
    """Return a process's state and its start in ticks since boot; both empty if unknown."""
    try:
        # the name in the middle may hold anything, also spaces and brackets
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]


def _space() -> str:
    """Return this boot and PID namespace; empty when the system does not provide them."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat(_PROC / 'self/ns/pid').st_ino}"
    except OSError:
        return ""
