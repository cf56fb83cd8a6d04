"""Notifications: their content; campaigns never wait for them, and their failures are only
logged."""

import http.server
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign.endings import SessionOutcome
from bbkb.orchestrator.campaign.events import Event, SessionClosed, TrialFailed, TrialSucceeded
from bbkb.orchestrator.campaign.settings import Notify as NotifySettings
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.session import notify
from bbkb.orchestrator.session.notify import notifications
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.messages import FailureKind
from tests.orchestrator.quick import tune_here

CLOSED = SessionClosed(time=2.0, outcome=SessionOutcome.FINISHED, reason="budget spent")


def failed_trial(failure: str = "error") -> TrialFailed:
    attempt: dict[str, Any] = {"trial": 3, "attempt": 1, "started": 0.0, "finished": 1.0, "worker": "w"}
    return TrialFailed(time=1.0, failure=FailureKind(failure), message="no data", is_final=True, **attempt)


def successful_trial() -> TrialSucceeded:
    return TrialSucceeded(time=1.0, trial=4, attempt=1, value=0.5, started=0.0, finished=1.0, worker="w", metrics={})


def status() -> Status:
    return status_of("first", CampaignState())


class Webhook:
    """A server on this machine that keeps posted messages. `answer`: its HTTP status; `wait`: an
    event before its answer."""

    def __init__(self) -> None:
        self.posted: list[dict[str, str]] = []
        self.asked: list[str] = []
        self.answer, self.wait = 200, threading.Event()
        self.wait.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                outer.wait.wait(10.0)
                self.send_response(outer.answer)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/secret-path"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.wait.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    server = Webhook()
    yield server
    server.close()


def send(folder: Path, events: list[Event], **settings: Any) -> None:
    with notifications(NotifySettings(**settings), Run(folder, "sqlite:///", "first"), status) as take:
        for event in events:
            take(event)


def test_webhook_gets_the_first_failure_and_the_end_once_each(tmp_path: Path, webhook: Webhook) -> None:
    send(
        tmp_path,
        [failed_trial("cancelled"), failed_trial(), successful_trial(), failed_trial(), CLOSED],
        webhook=webhook.url,
    )
    assert [notice["event"] for notice in webhook.posted] == ["failure", "ended"]
    assert webhook.posted[0]["text"] == (
        "bbkb campaign first: first failed evaluation: trial 3 failed (error): no data"
    )
    assert webhook.posted[1]["text"].startswith("bbkb campaign first: finished: budget spent; 0/")
    assert webhook.posted[1]["run"] == str(tmp_path)


def test_command_gets_the_notification_as_json_and_in_its_environment(tmp_path: Path) -> None:
    send(tmp_path, [CLOSED], command='cat > got.json; echo "$BBKB_EVENT $BBKB_CAMPAIGN $BBKB_RUN" > got.txt')
    assert json.loads((tmp_path / "got.json").read_text())["event"] == "ended"
    assert (tmp_path / "got.txt").read_text() == f"ended first {tmp_path}\n"


def test_stall_is_notified_once_until_an_evaluation_ends(tmp_path: Path, webhook: Webhook) -> None:
    settings = NotifySettings(webhook=webhook.url, stalled_minutes=0.05 / 60)
    with notifications(settings, Run(tmp_path, "sqlite:///", "first"), status) as take:
        for count in (1, 2):
            while len(webhook.posted) < count:
                threading.Event().wait(0.01)
            threading.Event().wait(0.2)  # further stalls would be sent by now
            assert [notice["event"] for notice in webhook.posted] == ["stalled"] * count
            take(successful_trial())
        take(CLOSED)
    assert webhook.posted[-1]["event"] == "ended"


def test_session_without_an_outcome_is_notified_too(tmp_path: Path, webhook: Webhook) -> None:
    send(tmp_path, [], webhook=webhook.url)
    assert webhook.posted[0]["text"].startswith("bbkb campaign first: ended without an outcome")


def test_undeliverable_notification_is_logged_without_its_address(
    tmp_path: Path, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    webhook.answer = 500
    with caplog.at_level(logging.ERROR, "bbkb.notify"):
        send(tmp_path, [CLOSED], webhook=webhook.url, command="echo no way >&2; exit 3")
        send(tmp_path, [CLOSED], webhook="${BBKB_NO_SUCH_VARIABLE}")
    texts = [record.getMessage() for record in caplog.records]
    assert "the command ended with exit code 3: no way" in texts[0]
    assert "HTTP Error 500" in texts[1]
    assert "BBKB_NO_SUCH_VARIABLE, which is not set" in texts[2]
    assert "secret-path" not in "".join(texts)


@pytest.mark.parametrize("status_code", [301, 302, 303, 307, 308])
def test_redirect_is_not_followed_and_counts_as_a_failed_delivery(
    tmp_path: Path, webhook: Webhook, caplog: pytest.LogCaptureFixture, status_code: int
) -> None:
    webhook.answer = status_code
    with caplog.at_level(logging.ERROR, "bbkb.notify"):
        send(tmp_path, [CLOSED], webhook=webhook.url)
    assert [record.getMessage() for record in caplog.records] == [
        "the notification 'ended' was not delivered: OSError: the server of notify.webhook redirects: give the address "
        "that it leads to"
    ]
    assert not webhook.asked


@pytest.mark.parametrize(
    "address", ["https://ann:secret-path@host/", "http://[secret-path/", "http://host/secret-path x"]
)
def test_invalid_address_is_logged_without_quoting_it(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BBKB_WEBHOOK", address)
    with caplog.at_level(logging.ERROR, "bbkb.notify"):
        send(tmp_path, [CLOSED], webhook="${BBKB_WEBHOOK}")
    [message] = [record.getMessage() for record in caplog.records]
    assert "notify.webhook is not an address" in message
    assert "secret-path" not in message


def test_hanging_notification_delays_only_the_end_by_a_bounded_time(
    tmp_path: Path, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "END_SECONDS", 0.1)
    webhook.wait.clear()
    send(tmp_path, [failed_trial(), CLOSED], webhook=webhook.url)  # returns without a response
    assert "was not delivered within 0.1 s" in caplog.text


def test_hanging_command_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "SEND_SECONDS", 0.2)
    send(tmp_path, [CLOSED], command="sleep 60 | sleep 60")
    assert "the command took longer than 0.2 s and was killed" in caplog.text


def test_campaign_notifies_of_its_end(tmp_path: Path) -> None:
    known = [{"results": [{"parameters": {"x": 0.5}, "value": 9.0}]}]
    settings = {"notify": {"command": f"cat >> {tmp_path / 'notices'}"}, "known_results": known}
    tune_here(tmp_path, lambda x: x, evaluations=2, name="noted", settings=settings)
    notice = json.loads((tmp_path / "notices").read_text())
    assert notice["event"] == "ended"
    assert ": finished: budget spent; 2/2 done, best 9 (known results: " in notice["text"]
