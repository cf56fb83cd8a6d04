"""Failed attempts by message: twenty failures with one cause are one line with a count."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

MOST_GROUPS = 50
_SHOWN_TRIALS = 5
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")


class FailedAttempt(Protocol):
    """The fields of a failed attempt that a group reads."""

    @property
    def trial(self) -> int:
        """The trial's index."""

    @property
    def failure(self) -> str:
        """The kind of the failure."""

    @property
    def message(self) -> str:
        """The message, summarized in its first line."""


@dataclass(slots=True)
class FailureGroup:
    """Failed attempts of one kind whose messages differ only in numbers."""

    kind: str
    count: int = 0
    message: str = ""  # the complete message of the newest attempt
    trials: deque[int] = field(default_factory=lambda: deque(maxlen=_SHOWN_TRIALS))  # newest last

    @property
    def summary(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    def add(self, attempt: FailedAttempt) -> None:
        """Count one more failed attempt."""
        self.count += 1
        self.message = attempt.message
        if attempt.trial in self.trials:
            self.trials.remove(attempt.trial)
        self.trials.append(attempt.trial)


class FailureGroups:
    """The groups of a campaign: the `MOST_GROUPS` with the newest failures."""

    def __init__(self, attempts: Iterable[FailedAttempt] = ()) -> None:
        self._groups: dict[tuple[str, str], FailureGroup] = {}  # the newest last
        for attempt in attempts:
            self.add(attempt)

    def add(self, attempt: FailedAttempt) -> None:
        """Add a failed attempt to its group."""
        key = (attempt.failure, _NUMBER.sub("0", attempt.message.partition("\n")[0]))
        group = self._groups.pop(key, None) or FailureGroup(attempt.failure)
        group.add(attempt)
        self._groups[key] = group
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]

    def newest_first(self) -> list[FailureGroup]:
        """Return all groups, the one with the newest failure first."""
        return list(self._groups.values())[::-1]
