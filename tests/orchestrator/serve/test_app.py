"""The server: access, responses, continued streams of events, and buttons."""

import contextlib
import http.client
import json
import shutil
import socket
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bbkb.objectives.parameters import Range
from bbkb.orchestrator.api import tune
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.serve.access import read_token
from bbkb.orchestrator.serve.app import MOST_COMPARED, _to_json
from bbkb.orchestrator.serve.running import page_of
from bbkb.orchestrator.serve.sources import Sources
from bbkb.orchestrator.store import snapshots
from tests.orchestrator.serve.conftest import TOKEN, BeginLog, running_server
from tests.orchestrator.synthetic_log import SyntheticLog


def ask(address: str, path: str, token: str = TOKEN, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Authorization": f"Bearer {token}", **headers})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def status_of_refusal(address: str, path: str, **options: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(address, path, **options)
    caught.value.close()
    return caught.value.code


def updates(address: str, path: str, last: str = "", count: int = 1) -> list[tuple[int, Any]]:
    """The first `count` server-sent events: (id, data)."""
    headers = {"Authorization": f"Bearer {TOKEN}", **({"Last-Event-ID": last} if last else {})}
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    received: list[tuple[int, Any]] = []
    number = 0
    while len(received) < count:
        line = answer.readline().decode().strip()
        if line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("data:"):
            received.append((number, json.loads(line[5:])))
    answer.close()
    connection.close()
    return received


def first_update_with(address: str, name: str, length: int) -> Any:
    """The first update in which the whole log is read."""
    while True:
        ((number, update),) = updates(address, f"/campaign/{name}/events")
        if number >= length:
            return update


@contextlib.contextmanager
def serving_one(begin_log: BeginLog, synthetic: SyntheticLog) -> Iterator[str]:
    """Yield the address of a server that has read this log, whose campaign is `one`."""
    events = synthetic.events()
    with running_server(begin_log("one", events).url) as address:
        first_update_with(address, "one", len(events))
        yield address


def test_server_admits_only_the_token_under_its_own_name(begin_log: BeginLog) -> None:
    with serving_one(begin_log, SyntheticLog(trials=5)) as address:
        assert status_of_refusal(address, "/campaign/one/trials", token="wrong") == 401
        assert status_of_refusal(address, "/?token=wrong") == 403
        assert status_of_refusal(address, "/campaign/one/trials", Host="evil.example") == 403
        assert status_of_refusal(address, "/campaign/none/trials") == 404
        assert ask(address, "/campaign/one/trials")["total"] == 5


def test_server_compares_campaigns_by_courses_and_differences(begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=20, sessions=1).events()
    begin_log("one", events)
    log = begin_log("<two>", events[: len(events) // 2])
    with running_server(log.url) as address:
        first_update_with(address, "one", len(events))
        first_update_with(address, "%3Ctwo%3E", len(events) // 2)
        compared = ask(address, "/comparison?campaign=one&campaign=%3Ctwo%3E&campaign=one")
        assert compared["names"] == ["one", "<two>"]
        rows = dict(compared["rows"])
        assert rows["trials"][0] != rows["trials"][1]
        assert rows["best value"][0]
        (figure,) = compared["figures"]
        assert [line["name"] for line in json.loads(figure["spec"])["data"]] == ["one", "&lt;two&gt;"]
        assert status_of_refusal(address, "/comparison?campaign=none") == 404
        many = "&".join(f"campaign=c{number}" for number in range(MOST_COMPARED + 1))
        assert status_of_refusal(address, f"/comparison?{many}") == 400
        assert status_of_refusal(address, "/comparison?campaign=one", token="wrong") == 401
        assert ask(address, "/comparison")["figures"] == []
        assert compared["problems"] == []


def test_server_names_a_campaign_that_cannot_be_compared(begin_log: BeginLog, tmp_path: Path) -> None:
    events = SyntheticLog(trials=20, sessions=1).events()
    log = begin_log("one", events)
    begin_log("damaged", events)
    with contextlib.closing(sqlite3.connect(tmp_path / "campaigns.sqlite")) as database, database:
        database.execute("UPDATE bbkb_events SET body = '{' WHERE campaign = 'damaged'")
    with running_server(log.url) as address:
        first_update_with(address, "one", len(events))
        while ["damaged", "not read yet"] in (compared := ask(address, "/comparison?campaign=one&campaign=damaged"))[
            "problems"
        ]:
            time.sleep(0.05)
        assert compared["names"] == ["one"]
        ((name, reason),) = compared["problems"]
        assert name == "damaged"
        assert "checksum" in reason


def raw_answer(address: str, request: bytes) -> tuple[int, str]:
    """Return the status and the headers of the response to these bytes."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request.replace(b"HOST", f"{host}:{port}".encode()))
        head, received = b"", b" "
        while received and b"\r\n\r\n" not in head:
            received = connection.recv(4096)
            head += received
    return int(head.split()[1]), head.partition(b"\r\n\r\n")[0].decode()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", 401),
        (b"GET /campaign/one/trials?page=%s HTTP/1.1\r\nHost: HOST\r\nAUTH\r\n" % (b"9" * 5000), 200),
        (b"GET /campaign/one/trials/%s HTTP/1.1\r\nHost: HOST\r\nAUTH\r\n" % (b"9" * 5000), 404),
        (b"GET /campaign/one/events HTTP/1.1\r\nHost: HOST\r\nLast-Event-ID: %s\r\nAUTH\r\n" % (b"9" * 5000), 200),
        (b"POST /campaign/one/stop HTTP/1.1\r\nHost: HOST\r\nX-Requested-By: x\r\nContent-Length: 90000\r\nAUTH\r\n"
         + b"[" * 90_000, 400),
        (b"POST /campaign/one/stop HTTP/1.1\r\nHost: HOST\r\nX-Requested-By: x\r\nContent-Length: 2\r\n"
         b"Content-Type: application/json; charset=none\r\nAUTH\r\n{}", 400),
        (b"GET /campaign/%0d%0aX-Injected:1/trials HTTP/1.1\r\nHost: HOST\r\nAUTH\r\n", 404),
        (b"GET /static/..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: HOST\r\nAUTH\r\n", 404),
    ],
    ids=["token", "page", "trial", "position", "nested body", "charset", "name", "file"],
)  # fmt: skip
def test_server_rejects_hostile_requests_without_an_error(begin_log: BeginLog, request_: bytes, status: int) -> None:
    with serving_one(begin_log, SyntheticLog(trials=5)) as address:
        got, head = raw_answer(address, request_.replace(b"AUTH", f"Authorization: Bearer {TOKEN}\r\n".encode()))
    assert got == status
    assert "X-Content-Type-Options: nosniff" in head
    assert "X-Injected" not in head


def test_json_of_the_page_shows_every_character() -> None:
    texts = {"a\u202e": "x\u200b\x1b\\u202e", "b": "Größe 👩\u200d🔬\n"}
    assert json.loads(_to_json(texts)) == {r"a\u202e": "x\\u200b\\u001b\\u202e", "b": "Größe 👩\u200d🔬\n"}


def test_token_in_an_address_does_not_redirect_to_another_server(begin_log: BeginLog) -> None:
    with serving_one(begin_log, SyntheticLog(trials=5)) as address:
        request = f"GET //evil.example/?token={TOKEN} HTTP/1.1\r\nHost: HOST\r\n\r\n".encode()
        status, head = raw_answer(address, request)
    assert (status, "Location: /" in head, "Location: //" in head) == (302, True, False)


def test_token_in_an_address_becomes_a_cookie_that_scripts_cannot_read(begin_log: BeginLog) -> None:
    with serving_one(begin_log, SyntheticLog(trials=5)) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
        connection.request("GET", f"/campaign/one?token={TOKEN}")
        answer = connection.getresponse()
        answer.read()
        cookie = answer.headers["Set-Cookie"]
        assert (answer.status, answer.headers["Location"]) == (302, "/campaign/one")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        connection.request("GET", "/campaign/one", headers={"Cookie": cookie.partition(";")[0]})
        page = connection.getresponse()
        assert page.status == 200
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert TOKEN not in page.read().decode()
        connection.close()


def test_events_continue_after_the_position_seen_even_at_another_server(begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=40, failure_share=0.1, sessions=1).events()
    half = len(events) // 2
    log = begin_log("one", events[:half])
    with running_server(log.url) as address:
        update = first_update_with(address, "one", half)
        assert update["results"]["from"] == 0
        assert update["position"] == half
    log.append(events[half:])
    with running_server(log.url) as address:
        first_update_with(address, "one", len(events))
        ((position, news),) = updates(address, "/campaign/one/events", last=str(half))
    assert position == len(events)
    count = update["results"]["count"]
    assert news["results"]["from"] == count
    values = [event.value for event in events if event.kind == "trial_succeeded"]
    assert [point[1] for point in news["results"]["points"]] == pytest.approx(values[count:], rel=1e-5)
    assert news["status"]["succeeded"] == len(values)
    assert len(json.dumps(news)) < 50_000


def test_server_shows_a_trial_with_attempts_and_reason(begin_log: BeginLog) -> None:
    synthetic = SyntheticLog(trials=30, failure_share=0.4)
    history = synthetic.history()
    retried = next(row for row in history.trials if row.attempts > 1)
    with serving_one(begin_log, synthetic) as address:
        trial = ask(address, f"/campaign/one/trials/{retried.trial}")
        assert status_of_refusal(address, "/campaign/one/trials/99999") == 404
        best = ask(address, "/campaign/one/trials?order=value&descending=1")
    assert len(trial["attempts"]) == sum(attempt.trial == retried.trial for attempt in history.attempts)
    assert trial["reason"].startswith(f"Chosen in batch {retried.batch}, number {retried.place} of ")
    assert "it could still be the best" in trial["reason"]
    assert trial["parameters"] == dict(retried.parameters)
    assert history.best is not None
    assert best["rows"][0][0] == history.best.trial
    assert best["order"] == "value"


def test_drain_reaches_the_process_that_runs_the_campaign_and_needs_the_header(begin_log: BeginLog) -> None:
    log = begin_log("one", SyntheticLog(trials=10, sessions=1, is_closed=False).events())
    with running_server(log.url) as address:
        first_update_with(address, "one", 1)
        assert status_of_refusal(address, "/campaign/one/stop", body={"now": False}) == 403
        answer = ask(address, "/campaign/one/stop", body={"now": False}, **{"X-Requested-By": "test"})
        assert answer["message"] == "asked the test to stop after its running evaluations"
        assert log.writer.beat() == "drain"
        assert status_of_refusal(address, "/campaign/one/stop", body=[], **{"X-Requested-By": "test"}) == 400


def test_server_lists_all_campaigns_of_a_database(begin_log: BeginLog) -> None:
    log = begin_log("one", SyntheticLog(trials=5).events())
    begin_log("two", SyntheticLog(trials=9).events())
    with running_server(log.url) as address:
        first_update_with(address, "two", len(SyntheticLog(trials=9).events()))
        ((_, sent),) = updates(address, "/events")
    assert {(listed["name"], listed["trials"]) for listed in sent["campaigns"]} == {("one", "5/5"), ("two", "9/9")}
    for campaign in sent["campaigns"]:
        assert campaign["strategy"]
        assert campaign["began"]
        assert campaign["direction"] in ("maximized", "minimized")
        assert "tags" in campaign


def test_server_lists_an_ended_campaign_at_once_and_reads_its_history_when_it_is_opened(begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=40, failure_share=0.1, sessions=1).events()
    half = len(events) // 2
    log = begin_log("one", events[:half])
    history = fold(events[:half])
    snapshots.save(log.writer, half, history.campaign)
    log.writer.release()
    with running_server(log.url) as address:
        ((folded, sent),) = updates(address, "/events")
        assert folded == 0  # events
        assert sent["campaigns"][0]["trials"] == history.status().trials_text
        assert sent["campaigns"][0]["state"] == history.state
        assert ask(address, "/campaign/one/trials")["total"] == len(history.trials)
        ((folded, again),) = updates(address, "/events")
        assert folded == half
        assert again == sent
        writer = log.writer.store.claim("one", "the test")
        writer.append(events[half:])
        writer.release()
        while updates(address, "/events")[0][1]["campaigns"][0]["trials"] != "40/40":
            time.sleep(0.05)


def test_trial_table_is_sorted_by_a_parameter_and_filtered_by_text(begin_log: BeginLog) -> None:
    with serving_one(begin_log, SyntheticLog(trials=9)) as address:
        all_rows = ask(address, "/campaign/one/trials")
        place = [column["heading"] for column in all_rows["columns"]].index("learning_rate")
        parameter = all_rows["columns"][place]["name"]
        ordered = ask(address, f"/campaign/one/trials?order={parameter}&descending=1")["rows"]
        filtered = ask(address, "/campaign/one/trials?text=no%20such%20trial")["rows"]
    values = [row[place] for row in ordered]
    assert len(values) == 9
    assert values == sorted(values, reverse=True)
    assert filtered == []


def test_serve_opens_the_page_of_a_run_or_the_list_of_a_folder(tmp_path: Path) -> None:
    settings = {"runs": str(tmp_path), "workers": {"executor": "inline"}}
    options: dict[str, Any] = {"evaluations": 2, "direction": "maximize", "progress": False, "settings": settings}
    folder = tune(lambda x: x, {"x": Range(0.0, 1.0)}, **options).folder
    assert page_of(str(folder)) == f"campaign/{folder.name}"
    assert page_of(str(tmp_path)) == ""
    shutil.copytree(folder, tmp_path / "copy")
    named = {source.name: source.campaign for source in Sources(str(tmp_path)).find()}
    assert named == {f"{folder.name} (copy)": folder.name, folder.name: folder.name}


def test_serve_rejects_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        Sources(str(tmp_path / "nothing")).find()
    assert Sources(str(tmp_path)).find() == []


def test_token_is_stable_and_readable_only_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    token = read_token()
    assert token == read_token()
    file = tmp_path / "bbkb" / "serve-token"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(UserError, match="readable by its owner only"):
        read_token()
