"""`bbkb.workers.on_ray.reports`: Carries intermediate values from workers to the coordinator, and its
answers back, over Ray's key-value store.
"""

import contextlib
import pickle
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import ray

from bbkb.workers.messages import Report
from bbkb.workers.on_ray import internals, reports
from bbkb.workers.on_ray.reports import BUFFERED, ReportReceiver, ReportSender
from tests.reported import reported


class Store:
    """Ray's key-value store in memory, with the largest number of entries that it had at a time."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.most = self.written = 0
        self.is_away = False
        self._lock = threading.Lock()

    def put(self, key: str, value: bytes, namespace: str = "") -> None:
        if self.is_away:
            raise ray.exceptions.RaySystemError("the head is away")
        with self._lock:
            self.entries[key] = value
            self.most = max(self.most, len(self.entries))
            self.written += 1

    def get(self, key: str | bytes, namespace: str = "") -> bytes | None:
        return self.entries.get(key if isinstance(key, str) else key.decode())

    def delete(self, key: str | bytes, namespace: str = "") -> None:
        self.entries.pop(key if isinstance(key, str) else key.decode(), None)

    def keys(self, prefix: str, namespace: str = "") -> list[bytes]:
        return [key.encode() for key in tuple(self.entries) if key.startswith(prefix)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    fake_store = Store()
    for name in ("put", "get", "delete", "keys"):
        monkeypatch.setattr(internals, name, getattr(fake_store, name))
    return fake_store


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that wait for the response to every report without a time limit."""
    monkeypatch.setattr(reports, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(reports, "WAIT_SHARE", 1e9)
    monkeypatch.setattr(reports, "SEND_SECONDS", 0.0)


class Coordinator:
    """Takes reports in a thread, and stops each trial at its report of the step `limit`."""

    def __init__(self, limit: int) -> None:
        self.values: list[Report] = []
        self._limit = limit
        self._over = threading.Event()
        self._receiver = ReportReceiver("c")
        self._receiver.is_awaited = True
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Coordinator":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._receiver.patience_seconds):
            if values := self._receiver.take():
                self.values += values
                self._receiver.answer((value.trial, value.attempt) for value in values if value.step >= self._limit)


@contextlib.contextmanager
def sender(trial: int = 1, attempt: int = 1, *, waits: bool) -> Iterator[ReportSender]:
    with contextlib.closing(ReportSender("c", trial, attempt, waits)) as report_sender:
        yield report_sender


@pytest.mark.usefixtures("patient", "store")
def test_trial_that_waits_is_stopped_at_the_report_that_decides() -> None:
    with Coordinator(limit=4) as coordinator, sender(waits=True) as first, sender(trial=2, waits=True) as second:
        assert [first(reported(step, 0.5 * step, 1)) for step in range(1, 5)] == [False, False, False, True]
        assert [second(reported(step, 0.0, 2)) for step in range(3, 5)] == [False, True]
    of_first = [(value.step, value.values["value"]) for value in coordinator.values if value.trial == 1]
    assert of_first == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]


@pytest.mark.usefixtures("patient", "store")
def test_trial_that_does_not_wait_is_stopped_at_a_later_report() -> None:
    with Coordinator(limit=1), sender(waits=False) as report:
        while not report(reported(1, 0.0, trial=1)):
            time.sleep(0.001)


def test_trial_waits_once_for_a_coordinator_that_does_not_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "WAIT_SHARE", 1e9)
    monkeypatch.setattr(reports, "WAIT_SECONDS", 0.01)
    waits = 0
    original = threading.Condition.wait_for

    def count(changed: threading.Condition, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        nonlocal waits
        waits += threading.current_thread() is threading.main_thread()
        return original(changed, condition, timeout)

    monkeypatch.setattr(threading.Condition, "wait_for", count)
    with sender(waits=True) as report:
        assert not any(report(reported(step, 0.0)) for step in range(100))
    assert waits == 1


def test_trial_waits_for_a_share_of_its_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "WAIT_SHARE", 0.0)
    monkeypatch.setattr(reports, "WAIT_SECONDS", 60.0)
    with sender(waits=True) as report:  # would not return
        report(reported(1, 0.0))
        report(reported(2, 0.0))


def test_reports_in_quick_succession_leave_few_entries(store: Store) -> None:
    count = 200_000
    with sender(waits=True) as report:
        for step in range(count):
            report(reported(step, 0.0))
    assert store.most <= 2
    assert store.written <= 2
    assert all(len(pickle.loads(entry)) <= BUFFERED for entry in store.entries.values())
    values = ReportReceiver("c").take()
    assert values[-1] == reported(count - 1, 0.0)
    assert [value.step for value in values] == sorted(value.step for value in values)


def test_coordinator_answers_only_the_entries_that_it_took(store: Store) -> None:
    receiver = ReportReceiver("c")
    receiver.is_awaited = True
    store.put("c\nreports\n1\n1\n1", pickle.dumps((reported(1, 0.5, 1),)))
    assert [report.step for report in receiver.take()] == [1]
    store.put("c\nreports\n1\n1\n2", pickle.dumps((reported(2, 0.6, 1),)))  # meanwhile
    receiver.answer([])
    time.sleep(receiver.patience_seconds)
    assert [report.step for report in receiver.take()] == [2]


def test_unanswered_entries_reach_the_next_session_in_the_order_reported(store: Store) -> None:
    for number in (9, 10, 100):
        store.put(f"c\nreports\n1\n1\n{number}", pickle.dumps((reported(number, 0.0, 1),)))
    for _ in range(2):
        assert [report.step for report in ReportReceiver("c").take()] == [9, 10, 100]


@pytest.mark.usefixtures("patient")
def test_evaluation_continues_if_the_store_is_unreachable(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    store.is_away = True
    with sender(waits=False) as report:
        assert not report(reported(1, 0.0))
    assert "intermediate values could not be sent" in capfd.readouterr().err


def test_coordinator_polls_more_often_if_workers_wait(store: Store) -> None:
    patience = {}
    for is_awaited in (False, True):
        receiver = ReportReceiver("c")
        receiver.is_awaited = is_awaited
        store.put("c\nreports\n1\n1\n1", pickle.dumps((reported(1, 0.5, 1),)))
        receiver.take()
        receiver.answer([])
        patience[is_awaited] = receiver.patience_seconds
    assert patience[True] < patience[False]
