"""The utilisation of the workers and the regret of one campaign as functions of time, from its log.

Times are those of the executor's clock, in seconds since the start of the session. Values are on
the maximised scale.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.papers.findings import Floats
from benchmarks.regret import simple_regret
from orchestrator.bandit.arrays import Indices
from orchestrator.campaign.events import Event, SessionClosed
from orchestrator.history.fold import fold


@dataclass(frozen=True)
class Course:
    """One campaign without failures. Arrays are (n,), in the order in which the evaluations
    ended."""

    slots: int  # the number of workers
    optimum: float  # the largest value of any arm
    arms: Indices  # the arms evaluated
    started: Floats  # when each evaluation began, in virtual seconds
    finished: Floats  # when each evaluation ended, in virtual seconds
    values: Floats  # without noise
    rewards: Floats  # with noise
    refreshes: int  # the number of refits
    idle_seconds: Mapping[str, float]  # worker-seconds without an evaluation, by cause
    strategy_seconds: float  # wall-clock seconds of the choices and refits

    @property
    def makespan(self) -> float:
        """Seconds until the last evaluation ended."""
        return float(self.finished[-1])

    @property
    def least_seconds(self) -> float:
        """A lower bound of the makespan in seconds: the work divided by the workers, or the longest
        evaluation."""
        seconds = self.finished - self.started
        return float(max(seconds.sum() / self.slots, seconds.max()))

    @property
    def warm_up_end(self) -> float:
        """The time at which as many evaluations had ended as there are workers; the end for fewer
        evaluations."""
        return float(self.finished[min(self.slots, len(self.finished)) - 1])

    @property
    def last_start(self) -> float:
        """The time of the last dispatch; a worker that is idle later has no work left."""
        return float(self.started.max())

    def utilisation(self, begin: float, end: float) -> float:
        """The share of the workers' time from `begin` to `end` that evaluations used; NaN unless
        begin < end."""
        if end <= begin:
            return float("nan")
        overlap = np.minimum(self.finished, end) - np.maximum(self.started, begin)
        return float(np.maximum(overlap, 0.0).sum() / (self.slots * (end - begin)))

    def done(self, times: ArrayLike) -> Indices:
        """The number of evaluations that had ended at `times` (k,)."""
        return np.searchsorted(self.finished, np.asarray(times, np.float64), side="right")

    def simple_regret(self, times: ArrayLike) -> Floats:
        """f* − the best f of the ended evaluations (k,); NaN before the first end."""
        return _at(self.done(times), simple_regret(self.optimum, self.values))

    def average_regret(self, times: ArrayLike) -> Floats:
        """The mean regret of the ended evaluations (k,); NaN before the first end."""
        return _at(self.done(times), np.cumsum(self.optimum - self.values) / np.arange(1, len(self.values) + 1))

    def regret_by_knowledge(self) -> Floats:
        """Parts (3,) of the mean regret of all evaluations, by the number of results when they
        began: none, fewer than there are workers, at least as many. The mean regret is their
        sum."""
        learned = self.done(self.started)
        parts = (learned >= 1).astype(np.intp) + (learned >= self.slots)
        return np.bincount(parts, self.optimum - self.values, minlength=3) / len(self.values)

    def recommended_regret(self, times: ArrayLike) -> Floats:
        """The regret (k,) of the arm with the largest mean reward at `times`, which may not be the
        best arm pulled."""
        return np.array([self._recommended(count) for count in self.done(times)])

    def _recommended(self, count: int) -> float:
        if not count:
            return float("nan")
        arms, place = np.unique(self.arms[:count], return_inverse=True)
        means = np.bincount(place, self.rewards[:count]) / np.bincount(place)
        best = int(np.flatnonzero(self.arms == arms[means.argmax()])[0])
        return float(self.optimum - self.values[best])


def _at(counts: Indices, cumulative: Floats) -> Floats:
    """`cumulative` after each of these numbers of evaluations (k,); NaN after none."""
    values: Floats = np.concatenate(([np.nan], cumulative))[counts]
    return values


def course(events: Iterable[Event]) -> Course:
    """Fold the log of a finished campaign. Raises ValueError when it has no optimum, a resume or a
    failure."""
    log = list(events)
    history = fold(log)
    rows, optimum = history.succeeded, history.created.optimum
    closed = [event for event in log if isinstance(event, SessionClosed)]
    if optimum is None or len(history.sessions) != 1 or len(rows) != len(history.trials) or not closed:
        raise ValueError(
            "a course needs a campaign with a known optimum, one complete session and no failure; "
            f"got optimum {optimum}, {len(history.sessions)} sessions, {len(rows)} of {len(history.trials)} succeeded"
        )
    sign = 1.0 if history.is_maximized else -1.0
    opened = history.sessions[0].started
    return Course(
        slots=history.sessions[0].slots,
        optimum=sign * optimum,
        arms=np.array([row.arm for row in rows], np.intp),
        started=np.array([row.started for row in rows], np.float64) - opened,
        finished=np.array([row.finished for row in rows], np.float64) - opened,
        values=sign * np.array([row.metrics.get("noise_free", row.value) for row in rows], np.float64),
        rewards=sign * np.array([row.value for row in rows], np.float64),
        refreshes=len(history.refreshes),
        idle_seconds=closed[-1].idle_seconds,
        strategy_seconds=sum(b.seconds for b in history.batches) + sum(r.seconds for r in history.refreshes),
    )
