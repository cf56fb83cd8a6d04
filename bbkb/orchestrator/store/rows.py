"""Events as rows of the database: body as JSON, version, and a checksum chained to the previous
one."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from bbkb.orchestrator.campaign.event_json import body_of, event_of
from bbkb.orchestrator.campaign.events import Event
from bbkb.orchestrator.store.versions import EVENT_VERSION, check_event_version, upcast

_CHECKSUM_BITS = 63  # fits into a signed 64-bit column


class Row(NamedTuple):
    """An event in the database."""

    position: int  # the position in the log, from 0
    epoch: int  # the epoch of the session that wrote the event
    kind: str  # the name of the event's class
    body: str  # its fields as JSON
    checksum: int | None = None  # of this event and the previous checksum; None in older versions
    version: int | None = None  # of the event's format; None in version 1

    def is_intact(self, campaign: str, previous: int | None) -> bool:
        """Return whether the checksum shows that the row is unchanged.

        `previous` is the checksum of the previous event; None if an older version wrote that event
        without one.
        """
        if self.version is None:
            # the CRC-32 of the row alone
            text = f"{campaign}\n{self.position}\n{self.epoch}\n{self.kind}\n{self.body}"
            return self.checksum in (None, zlib.crc32(text.encode()))
        return self.checksum == _checksum(campaign, self, previous or 0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stored state after the first events of a log."""

    position: int  # the number of these events
    head: int  # the checksum of the last of these events
    version: str  # a checksum of the program that can read `body`, and of `body`
    body: str  # the state as JSON


def encode(
    campaign: str, epoch: int, position: int, events: Sequence[Event], previous: int
) -> tuple[list[dict[str, object]], int]:
    """Return rows from `position` on, chained to the checksum `previous`, and the last checksum."""
    rows = []
    for index, event in enumerate(events, start=position):
        row = Row(index, epoch, event.kind, body_of(event), version=EVENT_VERSION)
        previous = _checksum(campaign, row, previous)
        rows.append({"campaign": campaign, **row._replace(checksum=previous)._asdict()})
    return rows, previous


def decode(row: Row) -> Event:
    """Return the event of a row. Raises ValueError, and NewerVersionError for a newer format."""
    if row.version is not None:
        check_event_version(row.version)
    try:
        body = upcast(row.kind, row.version, row.body)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its fields cannot be read: {type(error).__name__}: {error}") from error
    return event_of(row.kind, body)


def _checksum(campaign: str, row: Row, previous: int) -> int:
    """Return 63 bits of BLAKE2b over all columns and the previous checksum."""
    content = f"{previous}\n{campaign}\n{row.position}\n{row.epoch}\n{row.kind}\n{row.version}\n{row.body}"
    digest = blake2b(content.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _CHECKSUM_BITS)
