"""Notes and tags of users on a campaign or on one of its trials.

They are stored beside the log, because only the process that holds the campaign may append to the
log. No decision depends on them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bbkb.orchestrator.errors import UserError

MOST_CHARACTERS = 10_000
MOST_TAG_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note on a campaign or on a trial."""

    time: float  # the time of writing, in seconds since 1970
    text: str = ""  # in the user's words
    tags: tuple[str, ...] = ()  # words for finding the run
    trial: int | None = None  # None for a note on the campaign


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags without duplicates. Raises UserError if a tag is invalid."""
    for tag in tags:
        if not tag or len(tag) > MOST_TAG_CHARACTERS or any(letter.isspace() or letter == "," for letter in tag):
            raise UserError(
                f"a tag must be 1 to {MOST_TAG_CHARACTERS} characters without white space and commas, got {tag!r}"
            )
    return tuple(dict.fromkeys(tags))


def new_note(text: str = "", tags: Sequence[str] = (), trial: int | None = None) -> Note:
    """Return a note with the current time.

    Raises UserError if it has neither text nor tag, or if one of them is invalid.
    """
    if not text.strip() and not tags:
        raise UserError("a note must have a text or a tag, got neither")
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"a note must have at most {MOST_CHARACTERS} characters, got {len(text)}")
    return Note(time=time.time(), text=text, tags=check_tags(tags), trial=trial)
