"""Wall-clock time that passes steadily, also when the machine's clock is changed while a process
runs."""

import time


class SteadyClock:
    """Seconds since 1970: the machine's clock at construction, plus the time that has passed since.

    A clock that is set, or stepped by a time server, neither ends a budget of hours nor gives an
    evaluation a negative duration.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return the time now: seconds since 1970, which never decrease."""
        return self._offset + time.monotonic()
