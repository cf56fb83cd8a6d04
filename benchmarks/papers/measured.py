"""One run of an algorithm, from the log of its campaign, as arrays with one entry for each pull.

The times of the strategy (measured wall-clock seconds of `ask` and `tell`) and of the evaluations
(seconds from the table, or simulated ones) are separate.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.papers.findings import Floats
from benchmarks.regret import cumulative_regret, simple_regret
from orchestrator.bandit.arrays import Indices
from orchestrator.campaign.events import Event
from orchestrator.history.fold import History, fold
from orchestrator.history.rows import TrialRow

WARM_START = "warm start"  # the reasons of batches that a strategy did not choose by its rule


@dataclass(frozen=True)
class Measured:
    """One run. Arrays are (T,), in the order the arms were chosen; values are on the maximised
    scale."""

    arms: Indices  # the arms chosen
    values: Floats  # noise-free when the objective has such values; NaN for a failed evaluation
    optimum: float  # the largest value without noise; NaN when it is unknown
    # for the choice of the pull and the refit with its reward; a batch's time is divided evenly
    # among its pulls
    strategy_seconds: Floats
    evaluation_seconds: Floats  # the duration of the evaluation
    batches: Indices  # the number of the pull's batch, from 0
    dictionary_sizes: Indices  # inducing points after the refit with the pull; 0 for a strategy without them
    warm_start_batches: int  # the number of batches before the first one that the strategy chose by its rule

    def __len__(self) -> int:
        return len(self.values)

    @property
    def regret(self) -> Floats:
        """R_t (T,)."""
        return cumulative_regret(self.optimum, self.values)

    @property
    def average_regret(self) -> Floats:
        """R_t / t (T,)."""
        average: Floats = self.regret / np.arange(1, len(self) + 1)
        return average

    @property
    def simple_regret(self) -> Floats:
        """f* − the best f pulled so far (T,)."""
        return simple_regret(self.optimum, self.values)

    @property
    def clock(self) -> Floats:
        """Seconds of the strategy alone after t pulls (T,)."""
        return np.cumsum(self.strategy_seconds)

    @property
    def batch_count(self) -> int:
        """The number of batches that the strategy chose by its rule."""
        return int(self.batches[-1]) + 1 - self.warm_start_batches

    @property
    def batch_sizes(self) -> Floats:
        """The size of the batch to which each pull belongs (T,)."""
        sizes: Floats = np.bincount(self.batches)[self.batches].astype(np.float64)
        return sizes

    @property
    def total_clock(self) -> Floats:
        """Seconds of strategy and evaluations after t pulls (T,); a batch lasts as long as its
        longest evaluation.

        This assumes as many workers as a batch has pulls. The time of a batch is divided evenly
        among its pulls.
        """
        longest = np.zeros(int(self.batches[-1]) + 1)
        np.maximum.at(longest, self.batches, self.evaluation_seconds)
        share = longest[self.batches] / self.batch_sizes
        return np.cumsum(self.strategy_seconds + share)


def measure(events: Iterable[Event]) -> Measured:
    """Fold a log. Raises ValueError when it has no trial."""
    history = fold(events)
    trials = history.trials
    if not trials:
        raise ValueError("the log must have a trial; the campaign has not chosen any arm")
    sign = 1.0 if history.is_maximized else -1.0
    optimum = history.created.optimum
    seconds, dictionary_sizes = _cost_per_trial(history)
    return Measured(
        arms=np.array([row.arm for row in trials], np.intp),
        values=sign * np.array([_value(row) for row in trials]),
        optimum=np.nan if optimum is None else sign * optimum,
        strategy_seconds=seconds,
        evaluation_seconds=np.array([row.seconds or 0.0 for row in trials]),
        batches=_dense(np.array([row.batch for row in trials], np.intp)),
        dictionary_sizes=dictionary_sizes,
        warm_start_batches=sum(bool(batch.picks) and batch.reason == WARM_START for batch in history.batches),
    )


def _value(row: TrialRow) -> float:
    value = row.metrics.get("noise_free", row.value)
    return np.nan if value is None else value


def _cost_per_trial(history: History) -> tuple[Floats, Indices]:
    """Seconds of the strategy and sizes of the dictionary, (T,) each."""
    seconds, sizes = np.zeros(len(history.trials)), np.zeros(len(history.trials), np.intp)
    for batch in history.batches:
        for pick in batch.picks:
            seconds[pick.trial] += batch.seconds / len(batch.picks)
    for refresh in history.refreshes:
        trials = list(refresh.trials)
        sizes[trials] = refresh.dictionary_size
        paying = trials or [0]  # existing data are learned before the first pull, which waits for this
        seconds[paying] += refresh.seconds / len(paying)
    return seconds, sizes


def _dense(numbers: Indices) -> Indices:
    """0, 1, … for ascending numbers with gaps, which come from an `ask` that chose nothing."""
    dense: Indices = np.unique(numbers, return_inverse=True)[1].astype(np.intp)
    return dense
