"""Connections to the page: their number and their time without the token are bounded, and other
parts of the process are not affected."""

import asyncio
import contextlib
import http.client
import logging
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbkb.orchestrator.serve import connections
from bbkb.orchestrator.serve.connections import MOST_CONNECTIONS, SparseLog, most_connections
from tests.orchestrator.serve.conftest import TOKEN, running_server

FIRST_BYTES = [b"", b"G", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
SECONDS = 60.0


@contextlib.contextmanager
def held(address: str, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Open this number of connections, each of which has sent these bytes."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=SECONDS)))
            opened[-1].sendall(first)
        yield opened


def status_of(address: str) -> int:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/", headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().status


def is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed the connection; skips data sent before."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("first", FIRST_BYTES)
def test_page_responds_to_the_token_however_many_clients_connect(tmp_path: Path, first: bytes) -> None:
    with running_server(str(tmp_path), most=10) as address, held(address, 100, first):
        assert status_of(address) == 200


@pytest.mark.parametrize("first", FIRST_BYTES)
def test_connection_without_the_token_is_closed_after_some_time(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNTRUSTED_SECONDS", 0.2)
    with running_server(str(tmp_path)) as address, held(address, 3, first) as opened:
        assert all(is_closed(connection) for connection in opened)


def test_connection_with_the_token_stays_open_and_others_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNTRUSTED_SECONDS", 0.2)
    with running_server(str(tmp_path), most=3) as address:
        trusted = http.client.HTTPConnection(address.removeprefix("http://"), timeout=SECONDS)
        trusted.request("GET", "/events", headers={"Authorization": f"Bearer {TOKEN}"})
        answer = trusted.getresponse()
        with held(address, 20, b"G") as opened:
            assert all(is_closed(connection) for connection in opened)
        assert answer.status == 200
        assert answer.readline().startswith(b"id: ")
        trusted.close()


def test_flood_leaves_the_process_its_descriptors_and_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(tmp_path / "probe", "w", encoding="ascii") as probe:
        limit = probe.fileno() + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with running_server(str(tmp_path), most=20) as address, held(address, 80, b"G"):
            for _ in range(20):
                with open(tmp_path / "probe", encoding="ascii"):
                    pass
            assert status_of(address) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(caplog.text) + len("".join(capfd.readouterr())) < 5_000


def test_malformed_requests_are_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with running_server(str(tmp_path)) as address, held(address, 1, b"GET / HTTP/1.1\nHost: a\n\n") as (connection,):
        assert connection.recv(100).startswith(b"HTTP/1.0 400")
    assert caplog.text + "".join(capfd.readouterr()) == ""


@pytest.mark.parametrize(("soft", "most"), [(64, 8), (256, 32), (1024, 128), (10**6, MOST_CONNECTIONS)])
def test_number_of_connections_follows_the_limit_of_descriptors(
    soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, soft))
    assert most_connections() == most


def test_problems_of_the_loop_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = SparseLog(clock=lambda: now[0])
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        for _ in range(1000):
            log(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many")})
        assert len(caplog.records) == 1
        log(loop, {"message": "another"})
        assert len(caplog.records) == 2
        now[0] = 61.0
        log(loop, {"message": "another"})
    assert len(caplog.records) == 3
    assert all(record.exc_info is None for record in caplog.records)
    loop.close()
