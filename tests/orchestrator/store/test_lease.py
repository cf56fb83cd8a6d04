"""Which holder is alive or dead, and which process gets a campaign: real processes, and heartbeats
without a clock."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from bbkb.orchestrator.campaign.events import StopReason, StopRequested
from bbkb.orchestrator.errors import FencedError, HeldError, RunError
from bbkb.orchestrator.store.lease import ORPHAN_SECONDS, PATIENCE_SECONDS, Heartbeat, Identity, Watch, find_free, take
from bbkb.orchestrator.store.store import EventStore, Holding, Writer
from tests.present import present
from tests.waiting import wait_until

HERE = Identity.of_this_process()
ELSEWHERE = Identity("far", 1, "1", "another boot")


@pytest.fixture
def store(database_url: str, campaign: str) -> Iterator[EventStore]:
    store = EventStore(database_url)
    store.create(campaign, [StopRequested(time=0.0, reason=StopReason.INTERRUPTED)])
    yield store
    store.close()


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], Identity]]:
    """A process that does nothing, and its identity."""
    code = (
        "from bbkb.orchestrator.store.lease import Identity; "
        "print(Identity.of_this_process().to_text(), flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    identity = present(Identity.read(process.stdout.readline()))
    yield process, identity
    process.kill()
    process.communicate()


class Time:
    """A clock that advances with each sleep, and runs a given action every second."""

    def __init__(self, each_second: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self._each_second = each_second

    def sleep(self, seconds: float) -> None:
        before, self.now = int(self.now), self.now + seconds
        for _ in range(int(self.now) - before):
            self._each_second()

    def __call__(self) -> float:
        return self.now


def test_identity_round_trips_through_its_text() -> None:
    assert Identity.read(HERE.to_text()) == HERE
    assert [Identity.read(text) for text in ("", "{}", "[]", '{"host": 1}', "5")] == [None] * 5


def test_stopped_process_counts_as_alive_and_zombie_as_dead(
    child: tuple[subprocess.Popen[str], Identity],
) -> None:
    process, identity = child
    assert identity.is_alive(HERE.space) is True
    process.send_signal(signal.SIGSTOP)
    assert identity.is_alive(HERE.space) is True
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity.is_alive(HERE.space) is False  # a zombie
    process.wait()
    assert identity.is_alive(HERE.space) is False


def test_reused_process_id_is_another_process() -> None:
    assert HERE.is_alive(HERE.space) is True
    assert dataclasses.replace(HERE, started=f"{HERE.started}1").is_alive(HERE.space) is False


def test_process_elsewhere_has_an_unknown_state() -> None:
    assert ELSEWHERE.is_alive(HERE.space) is None
    assert dataclasses.replace(HERE, space="").is_alive("") is None


def test_campaign_without_holder_is_free(store: EventStore, campaign: str) -> None:
    first = take(store, campaign)
    first.release()
    second = take(store, campaign)
    assert (first.epoch, second.epoch) == (1, 2)


def test_take_rejects_a_campaign_of_a_live_process_with_remedy(
    store: EventStore, campaign: str, child: tuple[subprocess.Popen[str], Identity]
) -> None:
    process, identity = child
    take(store, campaign, me=identity)
    with pytest.raises(HeldError, match=rf"process {process.pid} runs it since 2.*bbkb attach.*bbkb stop"):
        take(store, campaign)
    assert store.holding(campaign).epoch == 1
    process.kill()
    process.wait()
    assert take(store, campaign).epoch == 2


@pytest.mark.parametrize("ends", [True, False])
def test_take_waits_for_the_end_of_a_holder_that_has_lost_its_guardian(
    store: EventStore, campaign: str, child: tuple[subprocess.Popen[str], Identity], ends: bool
) -> None:
    process, identity = child
    gone = dataclasses.replace(HERE, started=f"{HERE.started}1")
    holder = dataclasses.replace(identity, guardian=gone)
    assert Identity.read(holder.to_text()) == holder
    take(store, campaign, me=holder)

    def end() -> None:
        if ends and passing.now > 3:
            process.kill()
            process.wait()

    passing = Time(end)
    messages: list[str] = []
    with contextlib.nullcontext() if ends else pytest.raises(HeldError):
        assert take(store, campaign, messages.append, watch=Watch(sleep=passing.sleep)).epoch == 2
    assert [f"process {process.pid} has lost the process that started it" in line for line in messages] == [True]
    assert (passing.now < ORPHAN_SECONDS) is ends


def test_child_has_its_parent_as_its_guardian() -> None:
    guardian = present(Identity.of_this_child().guardian)
    assert guardian.pid == os.getppid()
    assert guardian.is_alive(HERE.space) is True


def test_holder_elsewhere_that_beats_is_alive(store: EventStore, campaign: str) -> None:
    far, messages = take(store, campaign, me=ELSEWHERE), list[str]()
    passing = Time(far.beat)
    with pytest.raises(HeldError, match="far process 1 runs it"):
        take(store, campaign, messages.append, watch=Watch(HERE, passing, passing.sleep))
    assert passing.now < PATIENCE_SECONDS
    assert len(messages) == 1
    assert "for a heartbeat" in messages[0]


def test_holder_elsewhere_without_heartbeat_is_dead_and_fenced_off(store: EventStore, campaign: str) -> None:
    far, passing = take(store, campaign, me=ELSEWHERE), Time()
    heir = take(store, campaign, watch=Watch(HERE, passing, passing.sleep))
    assert passing.now >= PATIENCE_SECONDS
    with pytest.raises(FencedError):
        far.beat()
    assert heir.beat() == ""


def test_campaign_that_changes_hands_meanwhile_is_not_taken(store: EventStore, campaign: str) -> None:
    take(store, campaign, me=ELSEWHERE)
    passing = Time(lambda: store.claim(campaign, "a third", dataclasses.replace(ELSEWHERE, pid=2).to_text()))
    with pytest.raises(HeldError):
        take(store, campaign, watch=Watch(HERE, passing, passing.sleep))


def test_watch_never_compares_clocks() -> None:
    watch = Watch(HERE, Time())
    for time_there in (-1e12, 0.0, 1e12):
        holding = Holding(1, "far", ELSEWHERE.to_text(), since=time_there, last_beat=time_there)
        assert watch.is_held(holding) is None


def test_take_rejects_an_unknown_campaign(store: EventStore) -> None:
    with pytest.raises(RunError, match="there is no campaign"):
        find_free(store, "another")


def start_heartbeat(writer: Writer) -> tuple[Heartbeat, list[bool], threading.Event]:
    """Return a quick heartbeat, the stop requests that it has forwarded, and an event that the
    first one sets."""
    heart, stops, came = Heartbeat(writer, period_seconds=0.01), list[bool](), threading.Event()

    def stop(now: bool) -> None:
        stops.append(now)
        came.set()

    heart.pass_stop_requests_to(stop)
    heart.start()
    return heart, stops, came


def test_heartbeat_passes_each_stop_request_on_once_and_releases_the_lease_at_its_end(
    store: EventStore, campaign: str
) -> None:
    writer = take(store, campaign)
    heart, stops, came = start_heartbeat(writer)
    store.ask_to_stop(campaign, writer.epoch, "drain")
    assert came.wait(200)
    wait_until(lambda: store.holding(campaign).beats > 5)
    assert stops == [False]
    store.ask_to_stop(campaign, writer.epoch, "now")
    wait_until(lambda: stops == [False, True])
    heart.end()
    assert store.holding(campaign).holder == ""
    assert take(store, campaign).epoch == 2


def test_stop_request_before_the_session_is_forwarded_to_it(store: EventStore, campaign: str) -> None:
    writer = take(store, campaign)
    store.ask_to_stop(campaign, writer.epoch, "drain")
    heart = Heartbeat(writer, period_seconds=0.01)
    heart.start()
    wait_until(lambda: store.holding(campaign).beats > 1)
    stops: list[bool] = []
    heart.pass_stop_requests_to(stops.append)
    heart.end()
    assert stops == [False]


def test_fenced_heartbeat_stops_its_session_at_once(store: EventStore, campaign: str) -> None:
    heart, stops, came = start_heartbeat(take(store, campaign))
    store.claim(campaign, "a usurper")
    assert came.wait(200)
    heart.end()
    assert stops == [True]
    assert store.holding(campaign).holder == "a usurper"
