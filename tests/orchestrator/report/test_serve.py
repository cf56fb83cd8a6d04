"""The server: access, snapshots that follow the log, hostile requests, and the stop button."""

import contextlib
import gzip
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.report.serve import Campaigns
from tests.orchestrator.report.conftest import BeginLog, running_server
from tests.orchestrator.runs import tune_here
from tests.orchestrator.synthetic_log import SyntheticLog


def ask(address: str, body: Any = None, **headers: str) -> Any:
    """The JSON at an address; None if it is not modified."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
        return json.loads(gzip.decompress(text) if answer.headers["Content-Encoding"] == "gzip" else text)


def refusal(address: str, **options: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(address, **options)
    caught.value.close()
    return caught.value.code


def test_server_admits_only_the_token_under_its_own_name(begin_log: BeginLog) -> None:
    with running_server(begin_log("one", SyntheticLog(trials=5).events()).url) as address:
        server, _, token = address.rpartition("/")
        assert refusal(f"{server}/") == refusal(f"{server}/{token[:-1]}x/snapshot") == 403
        assert refusal(f"{address}/snapshot", Host="evil.example") == 403
        assert refusal(f"{address}/campaign/none/snapshot") == 404
        (line,) = ask(f"{address}/snapshot")["campaigns"]
        assert (line["name"], line["trials"], line["state"]) == ("one", "5/5", "finished")
        with urllib.request.urlopen(f"{address}/campaign/one/", timeout=30) as page:
            assert "default-src 'none'" in page.read().decode()
            assert page.headers["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_snapshot_follows_the_log_and_is_sent_only_if_it_has_changed(begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=30, failure_share=0.3, sessions=1).events()
    half = len(events) // 2
    log = begin_log("one", events[:half])
    with running_server(log.url) as address:
        snapshot = f"{address}/campaign/one/snapshot"
        before = ask(snapshot)
        assert (before["position"], before["state"], before["held"]) == (half, "running", "the test")
        assert before["running"]
        log.append(events[half:])
        log.writer.release()
        with urllib.request.urlopen(snapshot, timeout=60) as answer:
            tag, after = answer.headers["ETag"], json.loads(gzip.decompress(answer.read()))
        assert (after["position"], after["state"], after["held"]) == (len(events), "finished", False)
        assert len(after["trials"]["rows"]) == 30
        assert after["running"] == []
        while (again := figures_tag(snapshot, tag)) != tag:  # once more when a new drawing is due
            tag = again
        assert refusal(snapshot, **{"If-None-Match": tag}) == 304


def figures_tag(address: str, tag: str) -> str:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers={"If-None-Match": tag}), timeout=60) as one:
            return str(one.headers["ETag"])
    except urllib.error.HTTPError as error:
        error.close()
        return tag


def test_trial_is_shown_with_its_attempts_and_reason(begin_log: BeginLog) -> None:
    synthetic = SyntheticLog(trials=30, failure_share=0.4)
    retried = next(row for row in synthetic.history().trials if row.attempts > 1)
    with running_server(begin_log("one", synthetic.events()).url) as address:
        shown = ask(f"{address}/campaign/one/trial/{retried.trial}")
        assert refusal(f"{address}/campaign/one/trial/99999") == 404
    assert f"Chosen in batch {retried.batch}" in shown["lines"][0]
    assert sum(line.startswith("attempt ") for line in shown["lines"]) == retried.attempts


def test_stop_reaches_the_process_that_runs_the_campaign(begin_log: BeginLog) -> None:
    log = begin_log("one", SyntheticLog(trials=10, sessions=1, is_closed=False).events())
    with running_server(log.url) as address:
        stop = f"{address}/campaign/one/stop"
        assert refusal(stop, body={"now": False}, **{"Content-Type": "text/plain"}) == 400  # as a form of another site
        assert refusal(stop, body=[]) == refusal(stop, body={"now": 1}) == 400
        assert ask(stop, body={"now": False})["message"].startswith("asked the test to stop after")
        assert log.writer.beat() == "drain"
        log.writer.release()
        assert refusal(stop, body={"now": False}) == 409


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET ROOT/campaign/one/trial/%s HTTP/1.1\r\nHost: HOST\r\n\r\n" % (b"9" * 5000), 404),
        (b"GET ROOT/campaign/one/snapshot HTTP/1.1\r\nHost: HOST\r\nIf-None-Match: \xff\xfe\r\n\r\n", 200),
        (b"GET /\xff\xfe/ HTTP/1.1\r\nHost: HOST\r\n\r\n", 400),
        (b"GET //evil.example/ HTTP/1.1\r\nHost: HOST\r\n\r\n", 403),
        (b"GET ROOT/ HTTP/1.1\r\nHost: [::1\r\n\r\n", 403),
        (b"POST ROOT/campaign/one/stop HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n"
         b"Content-Length: 90000\r\n\r\n" + b"[" * 90_000, 400),
        (b"POST ROOT/campaign/one/stop HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n"
         b"Content-Type: application/json; charset=none\r\n\r\n{}", 400),
        (b"GET ROOT/campaign/%0d%0aX-Injected:1/snapshot HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
        (b"GET ROOT/..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: HOST\r\n\r\n", 404),
    ],
    ids=["trial", "tag", "path", "host in the path", "host", "nested body", "charset", "name", "file"],
)  # fmt: skip
def test_server_rejects_hostile_requests_without_an_error(begin_log: BeginLog, request_: bytes, status: int) -> None:
    with running_server(begin_log("one", SyntheticLog(trials=5).events()).url) as address:
        host, _, token = address.removeprefix("http://").partition("/")
        with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(request_.replace(b"HOST", host.encode()).replace(b"ROOT", f"/{token}".encode()))
            head = connection.recv(4096).partition(b"\r\n\r\n")[0].decode()
    assert int(head.split()[1]) == status
    assert "X-Injected" not in head


def test_damaged_and_deleted_runs_are_named_and_hide_no_other(tmp_path: Path) -> None:
    folders = [tune_here(tmp_path, lambda x: x, evaluations=2, name=name).folder for name in ("good", "bad", "gone")]
    with contextlib.closing(sqlite3.connect(folders[1] / "campaign.sqlite")) as database, database:
        database.execute("UPDATE bbkb_events SET body = '{'")
    with running_server(str(folders[0].parent)) as address:
        good, bad, gone = (f"{address}/campaign/{quote(folder.name)}/snapshot" for folder in folders)
        assert ask(gone)["state"] == "finished"
        shutil.rmtree(folders[2])
        assert "deleted" in ask(gone)["problem"]
        assert "damaged" in ask(bad)["problem"]
        assert ask(good)["state"] == "finished"
        lines = {line["name"]: line for line in ask(f"{address}/snapshot")["campaigns"]}
        assert {name: line["state"] for name, line in lines.items()} == {
            folders[0].name: "finished",
            folders[1].name: "unreadable",
        }
        compared = ask(f"{address}/compare/snapshot?campaign={folders[0].name}&campaign={folders[1].name}")
        assert compared["names"] == [folders[0].name]
        assert [name for name, _ in compared["problems"]] == [folders[1].name]


def test_serve_rejects_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        Campaigns(str(tmp_path / "nothing")).find()
    assert Campaigns(str(tmp_path)).find() == []


def test_serve_takes_the_name_of_a_run_and_ends_by_sigint_in_the_background_of_a_script(tmp_path: Path) -> None:
    folder = tune_here(tmp_path / "runs", lambda x: x, evaluations=2).folder
    command = [sys.executable, "-m", "bbkb", "serve", folder.name, "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONUNBUFFERED": "1"}
    # a shell without job control starts a background command with SIGINT ignored
    ignoring = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    with subprocess.Popen(
        command, cwd=folder.parents[1], env=environment, preexec_fn=ignoring, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(60)
        finally:
            process.kill()
    assert code == 0
    assert line.strip().endswith(f"/campaign/{folder.name}/")
