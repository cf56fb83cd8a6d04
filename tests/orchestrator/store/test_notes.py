"""Tests of orchestrator/store/notes.py: notes are stored beside the log, whichever process holds
the campaign."""

from pathlib import Path

import pytest

from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.store.event_store import EventStore
from bbkb.orchestrator.store.notes import new_note
from tests.orchestrator.campaign.short_logs import created, settings_of
from tests.orchestrator.store.raw import change

CREATED = created(settings_of())


def test_notes_are_read_in_the_order_of_writing_and_not_in_the_log(database_url: str, campaign: str) -> None:
    store = EventStore(database_url)
    store.create(campaign, [CREATED])
    writer = store.claim(campaign, "holder")
    assert store.notes(campaign) == ()
    written = (
        new_note("a first look", ["baseline", "baseline"]),
        new_note("diverged", trial=3),
        new_note(tags=["kept"], trial=0),
    )
    for note in written:
        store.add_note(campaign, note)
    assert store.notes(campaign) == written
    assert written[0].tags == ("baseline",)
    assert store.length(campaign) == 1
    writer.beat()  # the holder was not fenced off
    store.close()


def test_notes_can_be_added_to_a_database_without_the_table(tmp_path: Path) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'old.sqlite'}")
    store.create("one", [CREATED])
    change(tmp_path / "old.sqlite", "DROP TABLE bbkb_notes; UPDATE bbkb_schema SET version = 2")
    assert store.notes("one") == ()
    note = new_note("now there is one")
    store.add_note("one", note)
    assert store.notes("one") == (note,)
    store.close()


@pytest.mark.parametrize(
    ("text", "tags", "message"),
    [
        ("", [], "a text or a tag"),
        ("x" * 10_001, [], "at most 10000"),
        ("", ["two words"], "white space"),
        ("", [""], "1 to 64"),
    ],
)
def test_new_note_rejects_invalid_texts_and_tags(tmp_path: Path, text: str, tags: list[str], message: str) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'one.sqlite'}")
    store.create("one", [CREATED])
    with pytest.raises(UserError, match=message):
        store.add_note("one", new_note(text, tags))
    with pytest.raises(RunError, match="no campaign 'other'"):
        store.add_note("other", new_note("a note"))
    assert store.notes("one") == ()
    store.close()
