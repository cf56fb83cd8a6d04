"""Curves against the step, as in the papers' figures: regret ratio, simple regret, batch size, order
of the model, and seconds of the strategy, as a table and as a figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bbkb.orchestrator.bandit.arrays import Indices
from benchmarks.papers.measured import Measured
from benchmarks.tables import Cell, Floats, Interval, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
            panel.set_yscale("log" if title != "regret ratio" else "linear")
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
