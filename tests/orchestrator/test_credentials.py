"""Credentials in the URL of a database are looked up when a connection is made, and are neither stored nor
displayed."""

import pytest
import sqlalchemy as sa
from hypothesis import assume, given
from hypothesis import strategies as st

from bbkb.orchestrator import credentials
from bbkb.orchestrator.credentials import (
    UnsetVariableError,
    has_password,
    redact,
    resolve_url,
    stored,
    without_secrets,
)

SECRET = "hunter2/s3cret"
WITH_SECRET = [
    f"postgresql://ann:{SECRET}@db:5432/results",
    f"postgresql+psycopg://ann:{SECRET}@/results?host=/var/run",
    f"postgresql://ann@db/results?password={SECRET}",
    f"postgresql://ann@db/results?sslmode=require&sslpassword={SECRET}",
    f"postgresql://ann:{SECRET}@with@db/results",
    f"bbkb run x.yaml --set store=postgresql://ann:{SECRET}@db/results --set 'budget.evaluations=3'",
    f"postgresql://ann:{SECRET}@",
    f"postgresql://ann@db/results?PASSWORD={SECRET}",
    f"store=postgresql://ann: {SECRET}@db/results",
    f'store must be text, got {{"postgresql://ann": "{SECRET}@db/results"}}',
    f"host=db password={SECRET}",
    f"host=db password = '{SECRET} and more' dbname=results",
]


@pytest.mark.parametrize("text", ["a" * 10**6, "a." * 10**6, "a:" * 10**6, "?a=" * 10**6, "://" * 10**6])
def test_redaction_of_a_long_text_takes_linear_time(text: str) -> None:
    """In quadratic time, it would take hours."""
    assert redact(text)


@pytest.mark.parametrize("text", WITH_SECRET)
def test_redaction_leaves_no_part_of_a_password(text: str) -> None:
    hidden = redact(text)
    for part in (SECRET, "hunter2", "s3cret", "with"):
        assert part not in hidden.replace("psycopg", "").replace("--set", "")
    assert "***" in hidden
    assert redact(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "sqlite",
        "sqlite:////data/c.sqlite",
        "postgresql://db/results",
        "postgresql://ann@db/results",
        "postgresql://ann:${DB_PASSWORD}@db/results",
        "${DATABASE_URL}",
        "file.py:12: a plain sentence, at ann@example.org",
    ],
)
def test_text_without_a_password_stays_as_it_is(text: str) -> None:
    assert redact(text) == text
    assert not has_password(text)


@given(
    password=st.text(min_size=1),
    host=st.sampled_from(["db", "db:5432", "[::1]:5432", ""]),
)
def test_stored_url_is_the_same_without_its_password(password: str, host: str) -> None:
    complete = sa.URL.create("postgresql", "ann", password, database="results").render_as_string(hide_password=False)
    complete = complete.replace("@/", f"@{host}/") if host else complete
    assume("${" not in password)
    assert has_password(complete)
    assert not has_password(stored(complete))
    without, original = resolve_url(stored(complete), {}), resolve_url(complete, {})
    assert (without.password, original.password) == (None, password)
    assert (without.username, without.host, without.port) == (original.username, original.host, original.port)


@pytest.mark.parametrize("key", ["password", "PASSWORD", "pass%77ord", "sslpassword"])
def test_stored_url_has_no_secret_option(key: str) -> None:
    assert stored(f"postgresql://ann@db/x?{key}={SECRET}&sslmode=require") == "postgresql://ann@db/x?sslmode=require"


@pytest.mark.parametrize("path", ["/a?password=b/c.db", "/u:p@h/c.db", "/a${X}%20/c.db"])
def test_path_is_stored_as_it_is(path: str) -> None:
    assert stored(f"sqlite:///{path}") == f"sqlite:///{path}"


def test_variables_are_replaced_part_by_part_so_that_a_value_may_hold_any_character() -> None:
    url = resolve_url(
        "postgresql://${USER_}:${PW}@db/results?application_name=${APP}", {"USER_": "a", "PW": "p@/:%4", "APP": "x y"}
    )
    assert (url.username, url.password, url.host, url.database) == ("a", "p@/:%4", "db", "results")
    assert url.query["application_name"] == "x y"
    assert resolve_url("${URL}", {"URL": "postgresql://a:b@c/d"}).password == "b"
    assert resolve_url("postgresql://db:${PORT}/results", {"PORT": "6000"}).port == 6000


def test_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UnsetVariableError, match="PW"):
        resolve_url("postgresql://ann:${PW}@db/results", {})


def test_drivers_message_keeps_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "from the environment")
    message = without_secrets("cannot use 'from the environment'", "postgresql://ann:${PW}@db/results")
    assert message == "cannot use '***'"
    assert SECRET not in without_secrets(f"invalid port {SECRET!r}", WITH_SECRET[0])
    assert credentials.HIDDEN in without_secrets(f"connect {WITH_SECRET[0]}", "sqlite")
