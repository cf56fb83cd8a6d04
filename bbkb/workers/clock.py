"""Wall-clock time that advances steadily even if the machine's clock is changed."""

import time


class SteadyClock:
    """Seconds since 1970: the machine's clock at construction, plus the time elapsed since then.

    Setting the machine's clock, or a time server that steps it, therefore neither ends a budget of
    hours nor gives an evaluation a negative duration.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return the current time: seconds since 1970, never decreasing."""
        return self._offset + time.monotonic()
