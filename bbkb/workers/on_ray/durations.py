"""The durations of evaluations. They decide whether attempts run as tasks or on worker actors.

A task costs two milliseconds less than a call of a worker actor. But tasks need processes of their
own, which take seconds to start, so attempts become tasks only if many short ones follow.
"""

from collections import deque

from bbkb.workers.messages import Outcome, TrialSucceeded
from bbkb.workers.on_ray.places import Kind

SHORT_SECONDS = 0.1  # attempts become tasks if the mean duration falls below this
LONG_SECONDS = 0.2  # attempts move to worker actors if the mean duration rises above this
VERY_SHORT_SECONDS = 0.05  # tasks queue in Ray if the mean duration is below this
MEASURED = 100  # the number of durations in the mean, and of successes before attempts become tasks
# Attempts become tasks if the campaign has this number of evaluations left. If the number is
# unknown, it is assumed to equal the number of successes. This number of calls costs about as much
# as the start of processes.
MANY = 1000


class Durations:
    """The durations of the latest successful evaluations."""

    def __init__(self, kind: Kind, evaluations: int) -> None:
        """`evaluations`: the number of evaluations of the campaign; 0 if it is unknown."""
        self.is_short = kind == "task"  # whether the next attempt runs as a task
        self._evaluations = evaluations
        # from the submission of an attempt to its result, with the start of a worker
        self.longest_response_seconds = 0.0
        self._is_automatic = kind == "auto"
        self._latest: deque[float] = deque(maxlen=MEASURED)
        self._successes = 0

    @property
    def is_very_short(self) -> bool:
        """Whether evaluations are known to be too short to be submitted one by one."""
        return bool(self._latest) and self._mean() < VERY_SHORT_SECONDS

    def learn(self, outcome: Outcome, response_seconds: float) -> None:
        """Record a success that arrived `response_seconds` after its submission."""
        if not isinstance(outcome, TrialSucceeded):
            return
        self.longest_response_seconds = max(self.longest_response_seconds, response_seconds)
        self._successes += 1
        self._latest.append(outcome.finished - outcome.started)
        if not self._is_automatic:
            return
        if self.is_short:
            self.is_short = self._mean() <= LONG_SECONDS
        elif len(self._latest) == MEASURED:
            expected = max(self._successes, self._evaluations - self._successes)
            self.is_short = expected >= MANY and self._mean() < SHORT_SECONDS

    def _mean(self) -> float:
        return sum(self._latest) / len(self._latest)
