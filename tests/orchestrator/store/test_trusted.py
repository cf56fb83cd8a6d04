"""Readers of a run's folder: they send nothing from the environment to a database that this user
has not named."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bbkb.orchestrator.cli.commands.results import _read_runs
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.serve.sources import Sources
from bbkb.orchestrator.store import runs, trusted

FOREIGN = 65_534  # nobody


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("PGPASSWORD", "topsecret")


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and the data sent by connections to it."""
    received: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                received.append(connection.recv(1000))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1], received
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def make_folder(folder: Path, store: str, owner: int | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "campaign.yaml").write_text(f'name: c\nstore: "{store}"\n', encoding="utf-8")
    if owner is not None:
        os.chown(folder, owner, owner)
        os.chown(folder / "campaign.yaml", owner, owner)
    return folder


def open_it(folder: Path) -> object:
    return runs.open_run(folder).events()


def list_it(folder: Path) -> object:
    return _read_runs(folder.parent)


def serve_it(folder: Path) -> object:
    return Sources(str(folder.parent)).find()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")


@pytest.mark.parametrize("read", [open_it, list_it, serve_it])
@pytest.mark.parametrize(
    ("url", "owner"),
    [
        ("postgresql://u:${AWS_SECRET_ACCESS_KEY}@127.0.0.1:PORT/x", None),
        ("postgresql://u@127.0.0.1:PORT/${HOME}", None),
        ("postgresql://u@127.0.0.1:PORT/x?application_name=${AWS_SECRET_ACCESS_KEY}", None),
        pytest.param("postgresql://u@127.0.0.1:PORT/x", FOREIGN, marks=needs_root),
        pytest.param("sqlite:////tmp/some.sqlite", FOREIGN, marks=needs_root),
    ],
)
def test_reader_connects_to_no_database_that_only_the_folder_names(
    tmp_path: Path, listener: tuple[int, list[bytes]], read: Callable[[Path], object], url: str, owner: int | None
) -> None:
    port, received = listener
    folder = make_folder(tmp_path / "runs" / "evil", url.replace("PORT", str(port)), owner)
    if read is open_it:
        with pytest.raises(RunError, match="bbkb store trust"):
            read(folder)
    else:
        assert "bbkb store trust" in str(read(folder))
    assert received == []


@pytest.mark.parametrize("name", ["trust", "remember"])
def test_reader_connects_to_a_trusted_database(tmp_path: Path, listener: tuple[int, list[bytes]], name: str) -> None:
    port, received = listener
    url = f"postgresql://u@127.0.0.1:{port}/x?application_name=${{AWS_SECRET_ACCESS_KEY}}&sslmode=disable"
    folder = make_folder(tmp_path / "runs" / "own", url)
    getattr(trusted, name)(url)
    with pytest.raises(Exception, match="127"):
        open_it(folder)
    assert any(b"topsecret" in data for data in received)


def test_reader_needs_no_permission_for_its_own_folder_or_a_resume(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "own", "postgresql://u@127.0.0.1:1/x")
    assert runs.open_run(folder).store_url == "postgresql://u@127.0.0.1:1/x"
    other = make_folder(tmp_path / "other", "postgresql://u:${NOT_SET}@127.0.0.1:1/x")
    runs.open_run(other, runs_it=True)
    assert runs.open_run(other).name == "other"


def test_trusted_list_has_no_password_and_one_database(tmp_path: Path) -> None:
    trusted.trust("postgresql://u:secret@a/x")
    trusted.trust("postgresql://u:secret@a/x")
    written = (tmp_path / "config" / "bbkb" / "stores").read_text()
    assert written == "postgresql://u:***@a/x\n"
    assert trusted.is_trusted("postgresql://u:***@a/x")
    assert not trusted.is_trusted("postgresql://u:***@b/x")
    assert not trusted.is_trusted("postgresql://u:***@a/x?options=${HOME}")


def test_campaign_runs_if_the_list_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    trusted.remember("postgresql://u@a/x")
    assert "cannot be stored" in caplog.text
