"""Real faults of disks, files and servers: a clear error; committed events stay readable and the
campaign continues."""

import errno
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from bbkb.orchestrator.campaign.events import SessionClosed, SessionOutcome
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.errors import FencedError, StoreError
from bbkb.orchestrator.store import connect
from bbkb.orchestrator.store.lease import Heartbeat, take
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.store import EventStore
from tests.postgresql import Server

REPOSITORY = Path(__file__).parents[2]
# root may write to read-only files, so it gives up that right
PLAIN = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"] * (os.geteuid() == 0)

STORES = """
    import resource, sys
    from bbkb.orchestrator.errors import StoreError
    from bbkb.orchestrator.campaign.events import SessionOutcome
    from bbkb.orchestrator.campaign.events import SessionClosed
    from bbkb.orchestrator.store.lease import take
    from bbkb.orchestrator.store.store import EventStore

    def fill(store, writer, most):
        written = 0
        try:
            for written in range(most):
                reason = f"event {written} " + 500 * "x"
                writer.append([SessionClosed(time=0.0, outcome=SessionOutcome.FINISHED, reason=reason)])
        except StoreError as error:
            print(written, error.is_transient, error, sep="|")
        store.close()
"""


def append_in_a_process(code: str, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, bool, str]:
    """The number of events written before the store refused, whether the fault may pass, and the
    error's text."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(STORES) + textwrap.dedent(code), *arguments],
        capture_output=True, text=True, timeout=240, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written, is_transient, message = done.stdout.strip().split("|")
    return int(written), is_transient == "True", message


def event(number: int, length: int = 0) -> SessionClosed:
    return SessionClosed(time=float(number), outcome=SessionOutcome.FINISHED, reason=f"event {number} {length * 'x'}")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'c.sqlite'}"


@pytest.fixture
def store(url: str) -> Iterator[EventStore]:
    """A campaign whose log has one event."""
    store = EventStore(url)
    store.create("c", [event(0)])
    yield store
    store.close()


def test_full_disk_is_reported_and_the_log_can_be_continued(store: EventStore, url: str) -> None:
    code = """
    store = EventStore(sys.argv[1])
    writer = take(store, "c")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    fill(store, writer, 10_000)
    """
    written, is_transient, message = append_in_a_process(code, url)
    assert "committed events are safe" in message.lower()
    assert not is_transient
    assert 0 < written < 10_000
    assert len(list(store.read("c"))) == 1 + written
    take(store, "c").append([event(1)])
    assert len(list(store.read("c"))) == 2 + written


@pytest.mark.parametrize("read_only", ["file", "folder"])
def test_read_only_file_or_folder_is_reported_and_continued_after_repair(
    store: EventStore, url: str, tmp_path: Path, read_only: str
) -> None:
    store.close()  # writes the WAL back and removes it, so that only the file is left
    for path in (tmp_path / "c.sqlite", *([tmp_path] if read_only == "folder" else [])):
        path.chmod(0o555)
    code = """
    read = 0
    try:
        store = EventStore(sys.argv[1])
        read = len(list(store.read("c")))
        store.claim("c", "me")
    except StoreError as error:
        print(read, error.is_transient, error, sep="|")
    """
    try:
        read, is_transient, message = append_in_a_process(code, url, prefix=tuple(PLAIN))
    finally:
        tmp_path.chmod(0o755)
        (tmp_path / "c.sqlite").chmod(0o644)
    assert "make the file and its folder writable" in message
    assert read == 1
    assert not is_transient
    take(store, "c").append([event(1)])
    assert list(store.read("c")) == [event(0), event(1)]


def long_log(store: EventStore, url: str) -> Path:
    """The file of a store with 400 events on many pages, and nothing beside it."""
    writer = take(store, "c")
    writer.append([event(number, length=600) for number in range(1, 400)])
    writer.release()
    store.close()
    return Path(url.removeprefix("sqlite:///"))


def test_truncated_database_and_overwritten_page_are_reported(store: EventStore, url: str) -> None:
    file = long_log(store, url)
    content = bytearray(file.read_bytes())
    page = content.index(b"event 200 ") // 4096
    overwritten = content[: 4096 * page] + os.urandom(4096) + content[4096 * (page + 1) :]
    for damaged in (content[: len(content) // 2], overwritten):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match="damaged") as caught:
            list(EventStore(url).read("c"))
        assert not caught.value.is_transient


def test_deleted_write_ahead_log_leaves_a_sound_log(store: EventStore, url: str, tmp_path: Path) -> None:
    take(store, "c").append([event(1)])
    store.close()
    writer = store.claim("c", "me")
    writer.append([event(2)])
    copied = tmp_path / "copied.sqlite"
    shutil.copy(tmp_path / "c.sqlite", copied)  # as after a kill, but without the file beside it
    copy = EventStore(f"sqlite:///{copied}")
    assert list(copy.read("c")) == [event(0), event(1)]
    assert list(store.read("c")) == [event(0), event(1), event(2)]
    copy.claim("c", "me").append([event(3)])
    assert list(copy.read("c")) == [event(0), event(1), event(3)]
    copy.close()


def test_locked_database_is_reported_as_transient(
    store: EventStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = take(store, "c")
    store.close()
    monkeypatch.setattr(connect, "BUSY_SECONDS", 0.2)
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE'); "
    code += "print('locked', flush=True); input(); c.execute('ROLLBACK'); c.close(); print('free', flush=True)"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "c.sqlite")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    with pytest.raises(StoreError, match=r"is locked \(another process keeps it locked") as caught:
        writer.append([event(1)])
    assert caught.value.is_transient
    assert list(store.read("c")) == [event(0)]  # readers are not held up
    other.communicate("\n", timeout=240)
    writer.append([event(1)], position=1)
    assert list(store.read("c")) == [event(0), event(1)]


def test_folder_without_locks_is_not_reported_as_locked(
    store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = take(store, "c")
    store.close()
    monkeypatch.setattr(connect, "BUSY_SECONDS", 0.2)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with closing(sqlite3.connect(tmp_path / "c.sqlite", isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="refuses to lock files, as a network folder without a lock service does"):
            writer.append([event(1)])


def test_killed_postgresql_server_loses_no_committed_event(postgresql_server: Server) -> None:
    store = EventStore(postgresql_server.url)
    store.create("c", [event(0)])
    writer = take(store, "c")
    heart, stops = Heartbeat(writer, period_seconds=0.02), list[bool]()
    heart.pass_stop_requests_to(stops.append)
    heart.start()
    writer.append([event(number) for number in range(1, 50)])
    postgresql_server.kill()
    with pytest.raises(StoreError) as caught:
        writer.append([event(50)])
    assert caught.value.is_transient
    with pytest.raises(StoreError, match="is the server running") as caught:
        list(store.read("c"))
    assert caught.value.is_transient
    postgresql_server.start()
    writer.append([event(50)], position=50)
    writer.append([event(50)], position=50)  # whether it was written is not known when the answer is lost
    assert list(store.read("c")) == [event(number) for number in range(51)]
    beats = store.holding("c").beats
    while store.holding("c").beats == beats:  # the heart has outlived the server too
        time.sleep(0.02)
    store.ask_to_stop("c", writer.epoch, "drain")
    while not stops:
        time.sleep(0.02)
    heart.end()
    assert store.holding("c").holder == ""
    store.close()


def test_database_accepts_writes_after_a_read_only_period(postgresql_server: Server) -> None:
    store = EventStore(postgresql_server.url)
    store.create("c", [event(0)])
    writer = take(store, "c")
    with psycopg.connect(postgresql_server.url, autocommit=True) as admin:
        default = f'ALTER DATABASE "{admin.info.dbname}" SET default_transaction_read_only ='
        admin.execute(f"{default} on")  # for new connections
        postgresql_server.kill()
    postgresql_server.start()
    for _ in range(2):
        with pytest.raises(StoreError, match="read-only transaction") as caught:
            writer.append([event(1)])
        assert caught.value.is_transient
    with psycopg.connect(postgresql_server.url, autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"{default} off")
    writer.append([event(1)])
    assert list(store.read("c")) == [event(0), event(1)]
    store.close()


def test_zombie_writer_of_a_restarted_server_is_fenced_off(postgresql_server: Server) -> None:
    store = EventStore(postgresql_server.url)
    store.create("c", [event(0)])
    zombie = store.claim("c", "the zombie")
    postgresql_server.kill()
    postgresql_server.start()
    store.claim("c", "the heir").append([event(1)])
    with pytest.raises(FencedError, match="the heir"):
        zombie.append([event(2)])
    assert list(store.read("c")) == [event(0), event(1)]
    store.close()


def test_role_without_the_right_to_create_tables_runs_campaigns(postgresql_server: Server) -> None:
    admin = EventStore(postgresql_server.url)
    admin.make_tables()
    admin.close()
    with psycopg.connect(postgresql_server.url, autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        connection.execute("CREATE ROLE runner LOGIN")
        rights = "SELECT, INSERT, UPDATE, DELETE"
        for (table,) in connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'bbkb%'").fetchall():
            connection.execute(f"GRANT {rights} ON {table} TO runner")
    store = EventStore(postgresql_server.url.replace("tester@", "runner@"))
    for name in ("c", "d"):  # two campaigns at once in one database
        store.create(name, [event(0)])
    writers = [take(store, name) for name in ("c", "d")]
    for number in range(1, 4):
        for writer in writers:
            writer.append([event(number)])
            writer.beat()
    for writer in writers:
        writer.release()
    assert [list(store.read(name)) for name in ("c", "d")] == [[event(number) for number in range(4)]] * 2
    assert store.holding("c").holder == ""
    store.close()
    with psycopg.connect(postgresql_server.url, autocommit=True) as connection:
        connection.execute("REVOKE INSERT ON bbkb_events FROM runner")
    refused = EventStore(postgresql_server.url.replace("tester@", "runner@"))
    with pytest.raises(StoreError, match="the role must read and write the tables bbkb_"):
        refused.create("e", [event(0)])
    assert not refused.has("e")
    refused.close()


def test_copied_folder_that_is_resumed_gives_a_different_sound_log(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "name: copied\nobjective: {name: sine}\ncandidates: {size: 50}\nstrategy: {name: uniform}\n"
        f"budget: {{evaluations: 3}}\nworkers: {{executor: inline, count: 1}}\nruns: {tmp_path}/runs\n"
    )
    folder, copy = tmp_path / "runs" / "r", tmp_path / "runs" / "copy"
    assert CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--run", "r"]).exit_code == 0
    shutil.copytree(folder, copy)
    for run_folder, budget in ((folder, 5), (copy, 6)):
        done = CliRunner().invoke(app, ["resume", str(run_folder), "--set", f"budget.evaluations={budget}"])
        assert done.exit_code == 0, done.output
        assert CliRunner().invoke(app, ["verify", str(run_folder)]).exit_code == 0
    compared = CliRunner().invoke(app, ["verify", str(folder), "--against", str(copy)])
    assert compared.exit_code == 1


def test_objective_that_writes_to_the_log_is_discovered(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sqlite3\n"
        "def objective(x):\n"
        f"    raw = sqlite3.connect({str(tmp_path / 'runs' / 'r' / 'campaign.sqlite')!r})\n"
        "    raw.execute(\"UPDATE bbkb_events SET body = replace(body, '1', '2') WHERE kind = 'trial_succeeded'\")\n"
        "    raw.commit()\n"
        "    raw.close()\n"
        "    return x + 1.0\n"
    )
    (tmp_path / "c.yaml").write_text(
        f'name: forged\nobjective: {{callable: "{tmp_path}/train.py:objective", direction: maximize}}\n'
        "space: {x: {low: 0.0, high: 1.0}}\n"
        f"candidates: {{size: 8}}\nstrategy: {{name: uniform}}\nbudget: {{evaluations: 3}}\n"
        f"workers: {{executor: inline, count: 1}}\nruns: {tmp_path}/runs\n"
    )
    CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--run", "r"])
    checked = CliRunner().invoke(app, ["verify", str(tmp_path / "runs" / "r")], env={"COLUMNS": "200"})
    assert checked.exit_code == 1
    assert "has been changed" in checked.output
    with pytest.raises(StoreError, match="has been changed"):
        open_run(tmp_path / "runs" / "r").events()
