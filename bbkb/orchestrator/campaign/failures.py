"""Failed attempts by cause: twenty failures with one cause are one line with a count."""

import re
from dataclasses import dataclass, replace

MOST_CAUSES = 20
_LONGEST = 2000  # characters of a message
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Failed attempts of one kind whose messages differ only in numbers, with the first of them."""

    kind: str
    message: str
    trial: int
    attempts: int = 1

    @property
    def summary(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]


Causes = tuple[FailureCause, ...]


def with_failure(causes: Causes, trial: int, kind: str, message: str) -> Causes:
    """Return the causes with one more failed attempt. If there are too many, the rarest leaves."""
    key = kind, _shape(message)
    for index, cause in enumerate(causes):
        if (cause.kind, _shape(cause.message)) == key:
            return (*causes[:index], replace(cause, attempts=cause.attempts + 1), *causes[index + 1 :])
    if len(causes) >= MOST_CAUSES:
        rarest = min(range(len(causes)), key=lambda index: causes[index].attempts)
        causes = (*causes[:rarest], *causes[rarest + 1 :])
    return (*causes, FailureCause(kind, message[:_LONGEST], trial))


def _shape(message: str) -> str:
    return _NUMBER.sub("0", message[:_LONGEST].partition("\n")[0])
