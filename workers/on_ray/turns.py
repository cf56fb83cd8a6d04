"""Turns of campaigns whose evaluations take placement groups (`workers.gangs`) on one cluster."""

import time
from collections.abc import Callable, Iterable

from ray.util.placement_group import placement_group_table

_TURN_SECONDS = 5.0  # Ray tries to place a pending group at least once a second


class Turns:
    """Lets other campaigns use the resources that this one released before it requests them again.

    Ray tries a new request at once and an older one only after a pause, so a campaign that requests
    again without waiting would always be first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._prefixes: tuple[str, ...] = ()  # prefixes of the names of the other campaigns' groups
        self._waiting: set[str] = set()  # names of the groups that come first
        self._deadline = 0.0  # on the clock passed to the methods

    def give(self, prefixes: Iterable[str]) -> None:
        """Record that resources were released. Pending groups whose names begin with one of
        `prefixes` then come first."""
        self._prefixes = tuple(prefixes)
        self._waiting = self._still_waiting()
        self._deadline = self._clock() + _TURN_SECONDS

    def is_of_others(self) -> bool:
        """Return whether these groups still come first: for a short time, or until one of them is
        placed."""
        if self._waiting and (self._clock() >= self._deadline or not self._waiting <= self._still_waiting()):
            self._waiting = set()
        return bool(self._waiting)

    def _still_waiting(self) -> set[str]:
        return {
            row["name"]
            for row in placement_group_table().values()
            if row["state"] == "PENDING" and row["name"].startswith(self._prefixes)
        }
