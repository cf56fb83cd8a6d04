"""Any content of a store: commands that read it end with a result or an error of this project, and
find damage."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.events import event_of
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.errors import BbkbError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore, rows_of
from bbkb.orchestrator.store.verify import verify
from tests.fuzz.examples import check_examples, check_reason, few_or_many, scalars, values
from tests.orchestrator.synthetic_log import SyntheticLog

COLUMNS = {
    "bbkb_events": ["position", "epoch", "kind", "body", "checksum"],
    "bbkb_campaigns": ["epoch", "holder", "since", "length", "head", "identity", "stop", "settings", "beats"],
    "bbkb_snapshots": ["position", "head", "version", "body"],
    "bbkb_format": ["format"],
}
CELLS = scalars.filter(lambda it: not isinstance(it, int) or abs(it) < 2**63) | st.binary(max_size=8)
CHANGES = st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns]).flatmap(
    lambda at: st.tuples(st.just(at), st.integers(0, 60), CELLS)
)
FLIPS = st.tuples(st.just("flip"), st.floats(0.0, 1.0), st.integers(0, 255))


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a sound store with one campaign and its snapshot."""
    file = tmp_path_factory.mktemp("sound") / "campaign.sqlite"
    events = SyntheticLog(trials=12).events()
    store = EventStore(f"sqlite:///{file}")
    store.create("c", events[:1])
    writer = store.claim("c", "me")
    writer.append(events[1:])
    snapshots.save(writer, len(events), fold(events).campaign)
    writer.release()
    store.close()
    return file


def damage(file: Path, change: object) -> None:
    """Change a cell of a row, or a byte of the file."""
    assert isinstance(change, tuple)
    if change[0] == "flip":
        content = bytearray(file.read_bytes())
        content[int(change[1] * (len(content) - 1))] ^= change[2]
        file.write_bytes(content)
        return
    (table, column), number, cell = change
    with contextlib.closing(sqlite3.connect(file)) as raw, contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
        count = raw.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
        if isinstance(cell, str):
            cell = cell.encode("utf-8", "replace").decode()
        query = f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET ?)"
        raw.execute(query, (cell, number % max(1, count)))
        raw.commit()


def answer(read: Callable[[], object]) -> object:
    """The result of the call; None for an error of this project, which has a message."""
    try:
        return read()
    except BbkbError as error:
        check_reason(error)
        return None


@few_or_many
def test_damaged_store_is_reported_and_never_misread(tmp_path: Path, sound_file: Path, examples: int) -> None:
    file = tmp_path / "campaign.sqlite"
    expected = EventStore(f"sqlite:///{sound_file}")
    events = [repr(event) for event in expected.read("c")]  # as text: a metric may be NaN
    expected.close()

    def check(changes: object) -> None:
        for old in tmp_path.glob("campaign.sqlite*"):
            old.unlink()
        shutil.copy(sound_file, file)
        assert isinstance(changes, list)
        for change in changes:
            damage(file, change)
        run = Run(tmp_path, file, "c")
        decoded = answer(lambda: [repr(event) for event in run.events()])
        assert decoded is None or (isinstance(decoded, list) and decoded == events[: len(decoded)])

        def status() -> object:
            with run.store() as store:
                return status_of(snapshots.current(run, store))

        answer(status)

        def audit() -> object:
            with run.store() as store:
                return str(verify(store, "c"))

        answer(audit)

    check_examples(examples, st.lists(CHANGES | FLIPS, min_size=1, max_size=3), check)


@few_or_many
def test_event_body_is_decoded_or_rejected(examples: int) -> None:
    bodies: dict[str, Any] = {}
    for event in SyntheticLog(trials=6).events():
        (row,) = rows_of("c", 1, 0, [event], 0)
        bodies.setdefault(event.kind, json.loads(row.body))
    kinds = sorted(bodies)
    changed = st.tuples(st.sampled_from(kinds), st.text(max_size=10), values, st.booleans())

    def check(example: object) -> None:
        assert isinstance(example, tuple)
        kind, key, value, is_known = example
        body = bodies[kind]
        name = sorted(body)[len(key) % len(body)] if is_known else key
        text = json.dumps({**body, name: value})
        with contextlib.suppress(ValueError):
            event = event_of(kind, text.encode("utf-8", "surrogatepass"))
            assert event.kind == kind

    check_examples(examples, changed, check)
