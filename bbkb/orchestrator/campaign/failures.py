"""Failed attempts by message: twenty failures with one cause are one line with a count."""

import re
from collections import deque
from dataclasses import dataclass, field

MOST_GROUPS = 50
_SHOWN_TRIALS = 5
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")


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


class FailureGroups:
    """The groups of a campaign: the `MOST_GROUPS` with the newest failures."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], FailureGroup] = {}  # the newest last

    def add(self, trial: int, kind: str, message: str) -> None:
        """Add a failed attempt to its group."""
        key = (kind, _NUMBER.sub("0", message.partition("\n")[0]))
        group = self._groups.pop(key, None) or FailureGroup(kind)
        group.count += 1
        group.message = message
        if trial in group.trials:
            group.trials.remove(trial)
        group.trials.append(trial)
        self._groups[key] = group
        if len(self._groups) > MOST_GROUPS:
            del self._groups[next(iter(self._groups))]

    def newest_first(self) -> list[FailureGroup]:
        """Return all groups, the one with the newest failure first."""
        return list(self._groups.values())[::-1]
