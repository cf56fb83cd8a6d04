"""One run of an algorithm, from the log of its campaign, as arrays with one entry for each pull."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.campaign.events import Event, ModelRefreshed
from bbkb.orchestrator.history.fold import History, fold
from bbkb.orchestrator.history.rows import TrialRow
from benchmarks.tables import Floats

WARM_START = "warm start"  # the reason of batches that a strategy did not choose by its rule


@dataclass(frozen=True)
class Measured:
    """One run. Arrays are (T,), in the order of the choices; values are maximized."""

    values: Floats  # noise-free if the objective has such values; NaN for a failed evaluation
    optimum: float  # the largest noise-free value; NaN if it is unknown
    # wall-clock seconds of the choice of each pull and of the refit with its reward; the time of a
    # batch is divided evenly among its pulls
    strategy_seconds: Floats
    evaluation_seconds: Floats  # the durations of the evaluations, recorded or simulated
    batches: Indices  # the index of each pull's batch
    # the model's order M_t after each pull was learned, or 0: inducing points, or stored pairs with
    # their repeats
    model_orders: Indices
    warm_start_batches: int  # the number of batches before the strategy's own first one

    def __len__(self) -> int:
        return len(self.values)

    @property
    def regret(self) -> Floats:
        """R_t = Σ_{s ≤ t} (f* − f(x_s)), (T,)."""
        return np.cumsum(self.optimum - self.values)

    @property
    def simple_regret(self) -> Floats:
        """f* − the largest value so far, (T,)."""
        best: Floats = self.optimum - np.fmax.accumulate(self.values)
        return best

    @property
    def batch_sizes(self) -> Indices:
        """The size of each pull's batch (T,)."""
        sizes: Indices = np.bincount(self.batches)[self.batches]
        return sizes

    @property
    def batch_count(self) -> int:
        """The number of batches that the strategy chose by its rule."""
        return int(self.batches[-1]) + 1 - self.warm_start_batches

    @property
    def total_seconds(self) -> float:
        """The strategy's seconds and, for each batch, those of its longest evaluation."""
        longest = np.zeros(int(self.batches[-1]) + 1)
        np.maximum.at(longest, self.batches, self.evaluation_seconds)
        return float(self.strategy_seconds.sum() + longest.sum())


def measure(events: Iterable[Event]) -> Measured:
    """Fold a log. Raises ValueError if it has no trial."""
    history = fold(events)
    trials = history.trials
    if not trials:
        raise ValueError("the log must have a trial; the campaign has not chosen any arm")
    sign = 1.0 if history.is_maximized else -1.0
    optimum = history.created.optimum
    seconds, model_orders = _cost_per_trial(history)
    batches = np.array([row.batch for row in trials], np.intp)  # with gaps: an `ask` may choose nothing
    return Measured(
        values=sign * np.array([_value(row) for row in trials]),
        optimum=np.nan if optimum is None else sign * optimum,
        strategy_seconds=seconds,
        evaluation_seconds=np.array([row.seconds or 0.0 for row in trials]),
        batches=np.unique(batches, return_inverse=True)[1].astype(np.intp),
        model_orders=model_orders,
        warm_start_batches=sum(bool(batch.picks) and batch.reason == WARM_START for batch in history.batches),
    )


def _value(row: TrialRow) -> float:
    value = row.metrics.get("noise_free", row.value)
    return np.nan if value is None else value


def _cost_per_trial(history: History) -> tuple[Floats, Indices]:
    """Compute the seconds of the strategy and the orders of the model, (T,) each."""
    seconds = np.zeros(len(history.trials))
    orders = np.zeros(len(history.trials), np.intp)
    learned = stored = 0
    for batch in history.batches:
        for pick in batch.picks:
            seconds[pick.trial] += batch.seconds / len(batch.picks)
    for refresh in history.refreshes:
        trials = list(refresh.trials)
        learned += len(trials)
        stored += len(refresh.record.get("stored", ()))
        orders[trials] = _order(refresh, learned, stored)
        paying = trials or [0]  # the first pull waits until existing data are learned
        seconds[paying] += refresh.seconds / len(paying)
    return seconds, orders


def _order(refresh: ModelRefreshed, learned: int, stored: int) -> int:
    """Return the order of the model after `refresh`: of a compressed bandit the number of stored
    pairs, of a sparse posterior the number of inducing points, of an exact one the number of
    pulls."""
    if "stored" in refresh.record:
        return stored
    if "dictionary" in refresh.record:
        return refresh.dictionary_size
    return learned if refresh.dictionary_size else 0
