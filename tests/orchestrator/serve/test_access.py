"""The page's cookie: its value is not the token, belongs to one port, and expires."""

import http.client
import time

import pytest

from bbkb.orchestrator.serve.access import SESSION_SECONDS, Access, host_of
from tests.orchestrator.serve.conftest import TOKEN, running_server

NOW = 10.5 * SESSION_SECONDS
OTHER_FORMS = [  # of the host in a request
    *("", ":8270", "[::1]evil.com", "[127.0.0.1]x", "[::1]:8270x", "[::1", "::1", "[]"),
    *("[localhost]", "localhost:", "localhost:8270:1", "localhost:123456", "localhost:80@evil.com"),
    *("evil.com/localhost", "localhost evil.com"),
]


def access(port: int = 8270, token: str = TOKEN) -> Access:
    return Access(token, frozenset({"localhost"}), port)


def test_session_is_not_the_token_and_does_not_admit_as_one() -> None:
    session = access().session(NOW)
    assert TOKEN not in session
    assert not access().admits(session)
    assert access().admits_session(session, NOW)


@pytest.mark.parametrize("other", [access(port=8271), access(token="another-token-entirely")])
def test_session_of_another_server_is_rejected(other: Access) -> None:
    assert not access().admits_session(other.session(NOW), NOW)


@pytest.mark.parametrize("cookie", ["", TOKEN, "\udcff", "0" * 64])
def test_access_rejects_an_invalid_session(cookie: str) -> None:
    assert not access().admits_session(cookie, NOW)


def test_session_is_valid_for_one_to_two_periods() -> None:
    session = access().session(NOW)
    assert access().admits_session(session, NOW + SESSION_SECONDS)
    assert not access().admits_session(session, NOW + 2 * SESSION_SECONDS)
    assert not access().admits_session(access().session(NOW + SESSION_SECONDS), NOW)


def cookies(address: str, path: str, cookie: str = "") -> tuple[int, str]:
    """Return the status and the new cookie of a response."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers.get("Set-Cookie", "")


def test_cookie_of_one_server_does_not_open_another_and_holds_no_token(tmp_path: object) -> None:
    with running_server(str(tmp_path)) as first_server, running_server(str(tmp_path)) as other:
        status, cookie = cookies(first_server, f"/?token={TOKEN}")
        value = cookie.partition(";")[0].partition("=")[2]
        port = other.rpartition(":")[2]
        assert (status, TOKEN in cookie) == (302, False)
        assert cookies(first_server, "/", cookie.partition(";")[0])[0] == 200
        assert cookies(other, "/", f"bbkb-{port}={value}")[0] == 401
        assert cookies(first_server, "/", f"{cookie.partition('=')[0]}={TOKEN}")[0] == 401
        assert cookies(first_server, f"/?token={value}")[0] == 403


def test_cookie_of_the_period_before_is_replaced(tmp_path: object) -> None:
    with running_server(str(tmp_path)) as address:
        server, now = access(port=int(address.rpartition(":")[2])), time.time()
        assert cookies(address, "/", f"{server.cookie}={server.session(now)}") == (200, "")
        status, cookie = cookies(address, "/", f"{server.cookie}={server.session(now, periods_ago=1)}")
        assert status == 200
        assert cookie.startswith(f"{server.cookie}={server.session(time.time())};")


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("localhost", "localhost"),
        ("localhost:8270", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:8270", "::1"),
        ("a-b.example", "a-b.example"),
        *dict.fromkeys(OTHER_FORMS, "").items(),
    ],
)
def test_host_is_separated_from_its_port_or_empty(authority: str, host: str) -> None:
    assert host_of(authority) == host
