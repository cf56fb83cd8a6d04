"""What the log of one campaign says against time: how busy its workers were, and the regret by then.

All of it on the executor's clock, beginning with the session. Values are on the maximised scale.
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
    """One campaign. Arrays are (n,), in the order in which the evaluations were over; nothing of them failed.

    `values` are noise-free, `rewards` what was seen. `idle_seconds` are the worker-seconds without an evaluation by
    cause, `strategy_seconds` the wall-clock seconds that choosing and refreshing took.
    """

    slots: int
    optimum: float
    arms: Indices
    started: Floats
    finished: Floats
    values: Floats
    rewards: Floats
    refreshes: int
    idle_seconds: Mapping[str, float]
    strategy_seconds: float

    @property
    def makespan(self) -> float:
        """Seconds until the last evaluation was over."""
        return float(self.finished[-1])

    @property
    def least_seconds(self) -> float:
        """No schedule is shorter: the work spread over all workers, or the longest evaluation."""
        seconds = self.finished - self.started
        return float(max(seconds.sum() / self.slots, seconds.max()))

    @property
    def warm_up_end(self) -> float:
        """The time at which as many evaluations had ended as there are workers; the end if that never happened."""
        return float(self.finished[min(self.slots, len(self.finished)) - 1])

    @property
    def last_start(self) -> float:
        """When the last evaluation was dispatched: what is idle later has nothing left to do."""
        return float(self.started.max())

    def utilisation(self, begin: float, end: float) -> float:
        """Share of the workers' time from `begin` to `end` that evaluations took; NaN where that is no time."""
        if end <= begin:
            return float("nan")
        overlap = np.minimum(self.finished, end) - np.maximum(self.started, begin)
        return float(np.maximum(overlap, 0.0).sum() / (self.slots * (end - begin)))

    def done(self, times: ArrayLike) -> Indices:
        """How many evaluations were over at `times` (k,)."""
        return np.searchsorted(self.finished, np.asarray(times, np.float64), side="right")

    def simple_regret(self, times: ArrayLike) -> Floats:
        """f* − the best f among what was over (k,); NaN before anything was."""
        return _at(self.done(times), simple_regret(self.optimum, self.values))

    def average_regret(self, times: ArrayLike) -> Floats:
        """Mean regret of what was over (k,); NaN before anything was."""
        return _at(self.done(times), np.cumsum(self.optimum - self.values) / np.arange(1, len(self.values) + 1))

    def regret_by_knowledge(self) -> Floats:
        """Parts (3,) of the mean regret of all evaluations, by how many results there were when they began: none, fewer
        than workers, at least as many. They add up to it."""
        known = self.done(self.started)
        parts = (known >= 1).astype(np.intp) + (known >= self.slots)
        return np.bincount(parts, self.optimum - self.values, minlength=3) / len(self.values)

    def recommended_regret(self, times: ArrayLike) -> Floats:
        """Regret of the arm whose rewards had the largest mean by then (k,), which need not be the best one pulled."""
        return np.array([self._recommended(count) for count in self.done(times)])

    def _recommended(self, count: int) -> float:
        if not count:
            return float("nan")
        arms, place = np.unique(self.arms[:count], return_inverse=True)
        means = np.bincount(place, self.rewards[:count]) / np.bincount(place)
        best = int(np.flatnonzero(self.arms == arms[means.argmax()])[0])
        return float(self.optimum - self.values[best])


def _at(counts: Indices, cumulative: Floats) -> Floats:
    """`cumulative` after this number of evaluations, NaN after none."""
    values: Floats = np.concatenate(([np.nan], cumulative))[counts]
    return values


def course(events: Iterable[Event]) -> Course:
    """Fold the log of a finished campaign. Raises ValueError when it has no optimum, a resume or a failure in it."""
    log = list(events)
    history = fold(log)
    rows, optimum = history.succeeded, history.created.optimum
    closed = [event for event in log if isinstance(event, SessionClosed)]
    if optimum is None or len(history.sessions) != 1 or len(rows) != len(history.trials) or not closed:
        raise ValueError(
            "a course is that of a campaign with a known optimum, one whole session and no failure; "
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
