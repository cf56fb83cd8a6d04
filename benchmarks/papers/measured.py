"""One run of an algorithm, from the log of its campaign, as arrays with one entry for each pull; and
the curves of several against the step, as in the papers' figures, as a table and as a figure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bbkb.orchestrator.bandit.arrays import Indices
from bbkb.orchestrator.campaign.events import Event, ModelRefreshed
from bbkb.orchestrator.history.fold import History, fold
from benchmarks.tables import Cell, Floats, Interval, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    values = [row.metrics.get("noise_free", row.value) for row in trials]
    optimum = history.created.optimum
    seconds, model_orders = _cost_per_trial(history)
    batches = np.array([row.batch for row in trials], np.intp)  # with gaps: an `ask` may choose nothing
    return Measured(
        values=sign * np.array([np.nan if value is None else value for value in values]),
        optimum=np.nan if optimum is None else sign * optimum,
        strategy_seconds=seconds,
        evaluation_seconds=np.array([row.seconds or 0.0 for row in trials]),
        batches=np.unique(batches, return_inverse=True)[1].astype(np.intp),
        model_orders=model_orders,
        warm_start_batches=sum(bool(batch.picks) and batch.reason == WARM_START for batch in history.batches),
    )


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
    is_exact = "initial" in refresh.record
    return learned if is_exact or refresh.dictionary_size else 0


POINTS = 120  # the largest number of steps of a curve


def regret_ratios(runs: Sequence[Measured], uniform: Sequence[Measured]) -> list[Floats]:
    """Divide the regret of each run by that of the uniform policy with the same seed, (T,) each."""
    return [run.regret / other.regret[: len(run)] for run, other in zip(runs, uniform, strict=True)]


@dataclass(frozen=True)
class Curves:
    """The runs of several methods on one problem."""

    title: str
    runs: Mapping[str, Sequence[Measured]]  # by method's label
    uniform: Sequence[Measured] | None

    def table(self, name: str) -> Table:
        """Return the curves at up to `POINTS` steps: mean and half-width of each quantity."""
        quantities = self._quantities()
        columns = ("method", "step", *(part for title in quantities for part in (title, f"{title}, ±")))
        rows = list[tuple[Cell, ...]]()
        for label, runs in self.runs.items():
            length = min(map(len, runs))  # runs in which steps are skipped may end early
            curves = {title: np.array([one[:length] for one in curve(runs)]) for title, curve in quantities.items()}
            for step in steps(length):
                intervals = [Interval.of(curve[:, step - 1]) for curve in curves.values()]
                cells = [cell for one in intervals for cell in (one.mean, one.half_width)]
                rows.append((label, int(step), *cells))
        return Table(name, self.title, columns, rows)

    def draw(self, figure: "Figure") -> None:
        """Draw one panel for each quantity. Bands are 95 % intervals over the seeds."""
        from matplotlib import colormaps

        map_of_colors = colormaps["tab10" if len(self.runs) <= 10 else "tab20"]
        colors = [map_of_colors(index) for index in range(len(self.runs))]
        quantities = self._quantities()
        panels = figure.subplots(2, 3).ravel()
        for panel, (title, curve) in zip(panels, quantities.items(), strict=False):
            panel.set_prop_cycle(color=colors)
            for label, runs in self.runs.items():
                at = steps(min(map(len, runs)))
                intervals = [Interval.of(column) for column in np.array([one[at - 1] for one in curve(runs)]).T]
                mean = np.array([one.mean for one in intervals])
                half = np.nan_to_num([one.half_width for one in intervals])
                (line,) = panel.plot(at, mean, label=label, linewidth=1.2)
                panel.fill_between(at, mean - half, mean + half, color=line.get_color(), alpha=0.2, linewidth=0)
            panel.set_title(title, fontsize=10)
            panel.set_xlabel("step", fontsize=8)
            panel.set_xscale("log")
            if title == "regret ratio":  # linear, without the wide bands of the first steps
                panel.set_ylim(0.0, 1.05 * max(line.get_ydata().max() for line in panel.lines))
            else:
                panel.set_yscale("log")
            panel.tick_params(labelsize=8)
        for panel in panels[len(quantities) :]:
            panel.axis("off")
        panels[-1].axis("off")
        lines, labels = panels[0].get_legend_handles_labels()
        panels[-1].legend(lines, labels, loc="center", fontsize=8, frameon=False)
        figure.suptitle(self.title, fontsize=11)

    def _quantities(self) -> dict[str, Callable[[Sequence[Measured]], list[Floats]]]:
        """Return functions that compute a quantity of each run, (T,) each, by name."""
        uniform = self.uniform

        def regret(runs: Sequence[Measured]) -> list[Floats]:
            if uniform is None:
                return [run.regret / np.arange(1, len(run) + 1) for run in runs]
            return regret_ratios(runs, uniform)

        return {
            "average regret" if uniform is None else "regret ratio": regret,
            "simple regret": lambda runs: [run.simple_regret for run in runs],
            "batch size": lambda runs: [run.batch_sizes.astype(np.float64) for run in runs],
            "model order": lambda runs: [run.model_orders.astype(np.float64) for run in runs],
            "seconds": lambda runs: [np.cumsum(run.strategy_seconds) for run in runs],
        }


def steps(horizon: int) -> Indices:
    """Return up to `POINTS` steps from 1 to `horizon`, ascending, dense at the beginning."""
    return np.unique(np.geomspace(1, horizon, POINTS).round().astype(np.intp))
