"""The contract of the store on each available database: SQLite, and PostgreSQL if a server is installed; which errors
of PostgreSQL are retried."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from psycopg import errors

from bbkb.orchestrator.errors import FencedError, HeldError, RunError, StoreError
from bbkb.orchestrator.store import connect
from bbkb.orchestrator.store.connect import translate_errors
from bbkb.orchestrator.store.store import EventStore, Row
from tests.orchestrator.events import closed
from tests.orchestrator.store.raw import change

ODD_NAMES = (
    "a?lr=1", "my%20data", "feature%2Flr", "a${X}", "a#b", "a&b=c;d", "[x]*", "it's \"quoted\"", "a:b@c", "{0} %s",
    "ünï ✓", "$HOME ~", ":memory:", "file:x", "a\nb",
)  # fmt: skip


@pytest.fixture
def store(database_url: str) -> Iterator[EventStore]:
    store = EventStore(database_url)
    yield store
    store.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[EventStore]:
    """A store in the file `c.sqlite`."""
    store = EventStore(tmp_path / "c.sqlite")
    yield store
    store.close()


def run_together(function: Callable[[int], None], count: int) -> None:
    """Call `function` with each number below `count`, in threads that start at the same time."""
    start = threading.Barrier(count)

    def call(number: int) -> None:
        start.wait()
        function(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_events_are_read_in_the_order_of_appends(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    writer = store.claim(campaign, "me")
    writer.append([closed(1), closed(2)])
    writer.append([])
    writer.append([closed(3)])
    assert list(store.read(campaign)) == [closed(number) for number in range(4)]
    assert list(store.read(campaign, after=2)) == [closed(2), closed(3)]


def test_append_at_a_position_writes_events_once(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    writer = store.claim(campaign, "me")
    assert writer.length == 1
    writer.append([closed(1), closed(2)], position=1)
    writer.append([closed(1), closed(2), closed(3)], position=1)
    writer.append([closed(1), closed(2)], position=1)
    writer.append([closed(4)], position=4)
    assert list(store.read(campaign)) == [closed(number) for number in range(5)]


def test_log_of_many_events_is_read_completely(store: EventStore, campaign: str) -> None:
    events = [closed(number) for number in range(2500)]
    store.create(campaign, events[:1])
    store.claim(campaign, "me").append(events[1:])
    assert list(store.read(campaign)) == events


def test_claim_of_a_free_campaign_succeeds_once(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    free = store.holding(campaign)
    assert (free.epoch, free.holder) == (0, "")
    store.claim(campaign, "the faster", seen=free.epoch, settings='{"budget": 1}')
    with pytest.raises(HeldError, match="just been claimed by the faster"):
        store.claim(campaign, "the slower", seen=free.epoch, settings='{"budget": 2}')
    assert store.holding(campaign).holder == "the faster"
    assert store.claimed_settings(campaign) == '{"budget": 1}'


def test_claim_by_many_processes_at_once_succeeds_once(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    winners: list[int] = []

    def claim(number: int) -> None:
        with contextlib.suppress(HeldError):
            store.claim(campaign, f"process {number}", seen=0)
            winners.append(number)

    run_together(claim, 6)
    assert [f"process {number}" for number in winners] == [store.holding(campaign).holder]


def test_holder_beats_receives_requests_and_releases(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    writer = store.claim(campaign, "me", '{"pid": 7}')
    assert (store.holding(campaign).identity, store.holding(campaign).beats) == ('{"pid": 7}', 0)
    assert writer.beat() == ""
    assert store.holding(campaign).beats == 1
    assert store.ask_to_stop(campaign, writer.epoch, "drain")
    assert writer.beat() == "drain"
    writer.release()
    assert (store.holding(campaign).holder, store.holding(campaign).stop) == ("", "")
    assert not store.ask_to_stop(campaign, writer.epoch, "now")


def test_fenced_holder_cannot_beat_write_or_release(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    zombie = store.claim(campaign, "the zombie")
    store.ask_to_stop(campaign, zombie.epoch, "now")
    heir = store.claim(campaign, "the heir")
    assert heir.epoch == zombie.epoch + 1
    assert heir.beat() == ""  # the request was not meant for it
    heir.append([closed(1)])
    for write in (zombie.beat, lambda: zombie.append([closed(2)])):
        with pytest.raises(FencedError, match=r"the heir has taken over .* \(epoch 2"):
            write()
    assert list(store.read(campaign)) == [closed(0), closed(1)]
    zombie.release()
    assert store.holding(campaign).holder == "the heir"
    assert not store.ask_to_stop(campaign, zombie.epoch, "now")


def test_append_of_an_older_writer_never_follows_a_newer_one(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    acknowledged: list[int] = []

    def write(number: int) -> None:
        for claim in range(5):
            writer = store.claim(campaign, f"writer {number}, claim {claim}")
            with contextlib.suppress(FencedError):
                for step in range(10):
                    writer.append([closed(1000 * writer.epoch + step)])
                    acknowledged.append(1000 * writer.epoch + step)

    run_together(write, 4)
    log = [int(event.time) for event in store.read(campaign)][1:]
    assert log == sorted(log)  # by epoch
    assert log == sorted(acknowledged)


def test_campaigns_in_one_database_are_separate(store: EventStore, campaign: str) -> None:
    for name, number in ((campaign, 1), (f"{campaign}-other", 2)):
        store.create(name, [closed(number)])
    assert list(store.read(campaign)) == [closed(1)]


def test_create_rejects_an_existing_name(store: EventStore, campaign: str) -> None:
    store.create(campaign, [closed(0)])
    with pytest.raises(RunError, match="resume it, or give another name"):
        store.create(campaign, [closed(0)])


def test_claim_rejects_an_unknown_campaign(store: EventStore, campaign: str) -> None:
    store.create(f"{campaign}-other", [closed(0)])
    with pytest.raises(RunError, match="there is no campaign"):
        store.claim(campaign, "me")


def test_reader_does_not_disturb_the_creation(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    early = EventStore(url)  # before the table exists
    with pytest.raises(StoreError, match="no campaign was ever stored there"):
        list(early.read("c"))
    creator = EventStore(url)
    creator.create("c", [closed(0)])
    creator.create("d", [closed(1)])
    assert list(early.read("c")) == [closed(0)]
    early.close()
    creator.close()


def test_sqlite_is_as_durable_as_it_can_be(local: EventStore) -> None:
    with local._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_append_that_fails_writes_nothing(local: EventStore, tmp_path: Path) -> None:
    local.create("c", [closed(0)])
    writer = local.claim("c", "me")
    change(tmp_path / "c.sqlite", "INSERT INTO bbkb_events VALUES ('c', 2, 1, 'session_closed', '{}', 0)")
    with pytest.raises(StoreError, match="refused"):
        writer.append([closed(1), closed(2)])
    assert [row.position for row in local.rows("c", 0)] == [0, 2]


EVENT_1 = r"event 1 \(session_closed\) of 'c' .*"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM bbkb_events WHERE position = 1", "event 1 of 'c' is missing"),
        ("SET body = replace(body, 'number 1', 'number 7')", f"{EVENT_1} has been changed"),
        ("SET epoch = 3", f"{EVENT_1} has been changed"),
        ("SET body = x'ff'", f"{EVENT_1} has been changed"),
    ],
)
def test_damaged_log_is_reported_with_the_position(
    local: EventStore, tmp_path: Path, damage: str, message: str
) -> None:
    local.create("c", [closed(number) for number in range(3)])
    is_whole = damage.startswith("DELETE")
    statement = damage if is_whole else f"UPDATE bbkb_events {damage} WHERE position = 1"
    change(tmp_path / "c.sqlite", statement)
    with pytest.raises(StoreError, match=message):
        list(local.read("c"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:////nowhere/at/all/c.sqlite", "does the folder exist"),
        ("nonsense", "is not a database URL"),
        ("mysterydb://host/x", "is not a database URL"),
        ("postgresql://user:secret@127.0.0.1:1/none", "is the server running"),
        (f"postgresql://me:hunter2@{'h' * 80}/x", "a host with an impossible name"),
    ],
)
def test_unreachable_store_is_reported_without_the_password(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        EventStore(url)
    assert "secret" not in str(caught.value)


def test_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_text("this is not a database, it is a text of some length" * 100)
    with pytest.raises(StoreError, match="not a database"):
        EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")


def test_missing_driver_is_reported_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r'pip install "psycopg\[binary\]'):
        EventStore("postgresql://user:secret@127.0.0.1:1/none")


def test_reading_a_mistyped_database_leaves_no_file_behind(tmp_path: Path) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'mistyped.sqlite'}")
    for read in (lambda: list(store.read("c")), lambda: store.holding("c"), lambda: store.claim("c", "me")):
        with pytest.raises(StoreError, match="no campaign was ever stored there"):
            read()
    store.close()
    assert not list(tmp_path.iterdir())


def test_database_of_another_format_is_refused(local: EventStore, tmp_path: Path) -> None:
    local.create("c", [closed(0)])
    change(tmp_path / "c.sqlite", "UPDATE bbkb_format SET format = 2")
    with pytest.raises(StoreError, match="another version: its format is 2, not 1"):
        EventStore(tmp_path / "c.sqlite")


def test_event_of_an_unknown_kind_is_refused(local: EventStore) -> None:
    unknown = Row(0, 1, "unknown", "{}")
    with pytest.raises(StoreError, match="another program wrote it"):
        local.event("c", unknown._replace(checksum=unknown.checksum_after("c", 0)), 0)


TAMPERING = {
    "removed and closed up": "DELETE FROM bbkb_events WHERE position = 2; "
    "UPDATE bbkb_events SET position = position - 1 WHERE position > 2; UPDATE bbkb_campaigns SET length = length - 1",
    "exchanged": "UPDATE bbkb_events SET position = 99 WHERE position = 2; UPDATE bbkb_events SET position = 2 "
    "WHERE position = 3; UPDATE bbkb_events SET position = 3 WHERE position = 99",
    "cut off": "DELETE FROM bbkb_events WHERE position = 5; UPDATE bbkb_campaigns SET length = 5",
    "doubled": "INSERT INTO bbkb_events SELECT campaign, 6, epoch, kind, body, checksum FROM bbkb_events "
    "WHERE position = 5; UPDATE bbkb_campaigns SET length = 7",
}


@pytest.mark.parametrize("tampering", TAMPERING)
def test_checksums_reveal_an_event_that_was_removed_moved_or_added(
    local: EventStore, tmp_path: Path, tampering: str
) -> None:
    local.create("c", [closed(0)])
    local.claim("c", "me").append([closed(number) for number in range(1, 6)])
    assert len(list(local.read("c"))) == 6
    change(tmp_path / "c.sqlite", TAMPERING[tampering])
    with pytest.raises(StoreError, match="is damaged"):
        list(local.read("c"))


def test_absurd_length_is_damage(local: EventStore, tmp_path: Path) -> None:
    local.create("c", [closed(0)])
    change(tmp_path / "c.sqlite", f"UPDATE bbkb_campaigns SET length = {2**62}")
    with pytest.raises(StoreError, match="event 1 of 'c' is missing"):
        list(local.read("c"))
    change(tmp_path / "c.sqlite", "UPDATE bbkb_campaigns SET length = 'many'")
    with pytest.raises(StoreError, match="must have a whole number as length, got 'many'"):
        list(local.read("c"))


@pytest.mark.parametrize("folder", ODD_NAMES)
def test_path_is_never_parsed(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "c.sqlite"
    file.parent.mkdir()
    for place in (file, f"sqlite:///{file}"):
        with contextlib.closing(EventStore(place)) as store:
            if not store.has("c"):
                store.create("c", [closed(0)])
            assert list(store.read("c")) == [closed(0)]
            assert str(file) in store.name
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {file.parent}


def test_read_only_folder_with_an_odd_name_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a?lr=1%20#x" / "c.sqlite"
    file.parent.mkdir()
    with contextlib.closing(EventStore(file)) as store:
        store.create("c", [closed(0)])
    monkeypatch.setattr(connect, "_is_in_read_only_folder", lambda path: True)
    with contextlib.closing(EventStore(file)) as store:
        assert list(store.read("c")) == [closed(0)]
    assert [path.name for path in file.parent.iterdir()] == ["c.sqlite"]


URL = "postgresql://u@db/x"
IDLE = errors.IdleInTransactionSessionTimeout("due to idle-in-transaction timeout")


def translated(error: Exception) -> StoreError:
    with pytest.raises(StoreError) as caught, translate_errors(URL):
        raise sa.exc.DBAPIError("UPDATE", {}, error)
    return caught.value


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.ReadOnlySqlTransaction("in a read-only transaction"), "Name the primary"),
        (IDLE, "idle_in_transaction_session_timeout"),
        (errors.QueryCanceled("canceling statement due to statement timeout"), "statement_timeout"),
        (errors.AdminShutdown("terminating connection due to administrator command"), ""),
    ],
)
def test_transient_error_is_retried_and_names_a_remedy(error: Exception, remedy: str) -> None:
    translation = translated(error)
    assert translation.is_transient
    assert remedy in str(translation)
    assert "folder" not in str(translation)


@pytest.mark.parametrize(
    "error", [errors.InsufficientPrivilege("permission denied"), errors.UndefinedTable("no relation")]
)
def test_permanent_error_is_not_retried(error: Exception) -> None:
    assert not translated(error).is_transient
