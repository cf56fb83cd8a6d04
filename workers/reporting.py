"""Intermediate values of one attempt: the `report` that an objective calls, which raises when the
trial is stopped."""

import math
from collections import deque
from collections.abc import Callable
from math import isfinite  # bound here, as in `workers.numbers`
from pathlib import Path

from objectives.machines import Machine
from objectives.objective import EvaluationStopped
from workers.numbers import finite_or_not

KEPT_REPORTS = 1000

# Sends a step and a value to the coordinator; True: the attempt should stop.
Publish = Callable[[int, float], bool]


class Reports:
    """The `report` of one attempt: keeps the last `KEPT_REPORTS` values, and publishes each where
    `publish` is given.

    `folder` is the trial's own folder, None unless the campaign gives each trial one.
    `write_output` appends bytes to the attempt's output, None where no output is kept. `machine` is
    the machine that the attempt is on, None unless it takes several. `step_limit`: see `Attempt`.
    """

    def __init__(
        self,
        publish: Publish | None = None,
        folder: Path | None = None,
        write_output: Callable[[bytes], None] | None = None,
        machine: Machine | None = None,
        step_limit: int | None = None,
    ) -> None:
        self.folder = folder
        self.write_output = write_output
        self.machine = machine
        self.is_stopped = False
        self._publish = publish
        self._step_limit = math.inf if step_limit is None else step_limit
        self._kept: deque[tuple[int, float]] = deque(maxlen=KEPT_REPORTS)
        self._count = 0

    def __call__(self, value: float, step: int | None = None) -> None:
        """Keep `value`, which may be NaN or infinite: a training that diverges may report it.

        Raises EvaluationStopped when the campaign stops this trial early, InvalidValueError when
        `value` is no number.
        """
        number = finite_or_not("a reported value", value)
        at = self._count if step is None else int(step)
        self._kept.append((at, number))
        self._count += 1
        is_told_to = self._publish is not None and self._publish(at, number)
        if self.is_stopped or is_told_to or at >= self._step_limit:
            self.is_stopped = True
            raise EvaluationStopped(f"stopped early at step {at}")

    def points(self) -> tuple[tuple[int, float], ...]:
        """Return (step, value) in the order reported."""
        return tuple(self._kept)

    @property
    def last_step(self) -> int:
        """Of the newest report; −1 before the first."""
        return self._kept[-1][0] if self._kept else -1

    @property
    def last_value(self) -> float | None:
        """The newest finite value; None when there is none."""
        return next((value for _, value in reversed(self._kept) if isfinite(value)), None)
