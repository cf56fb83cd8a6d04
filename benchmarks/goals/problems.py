"""Tables with two objectives: a high accuracy and a low cost.

| name | configurations | accuracy | cost |
| --- | --- | --- | --- |
| `mlp-…` (five) | 30000 (HPOBench) | balanced accuracy, one of 5 repeats | log₁₀ of the weights between hidden units |
| `nb101` | 4432 recorded six-vertex cells | validation accuracy, one training | seconds of the training |

`…-limited` has one objective, accuracy, and the constraint that the cost is at most the quantile
`QUANTILE` of all.
"""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.tables import Recorded, load_table
from objectives.datasets import DataSource
from objectives.objective import Candidates
from objectives.sampling import make_candidates
from objectives.space import SearchSpace
from orchestrator.campaign.hypervolume import hypervolume

Floats = NDArray[np.float64]

LIMITED = "-limited"
QUANTILE = 0.2
TABLES = ("mlp-australian", "mlp-blood", "mlp-car", "mlp-phoneme", "mlp-vehicle", "nb101")
PROBLEMS = (*TABLES, *(f"{name}{LIMITED}" for name in TABLES))


@dataclass(frozen=True, eq=False)
class Table:
    """A `table` of configurations, whose rewards are accuracies, and their `costs` (A,)."""

    name: str
    table: Recorded
    costs: Floats
    limit: float | None = None  # the cost that is allowed; None for two objectives

    @cached_property
    def candidates(self) -> Candidates:
        """The configurations in the order of the rows."""
        return self.table.arms or make_candidates(SearchSpace(self.table.space), None, "sobol", 0)

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """The row (A,) of each candidate."""
        if self.table.arms is not None:
            return np.arange(len(self.costs))
        parameters = self.candidates.parameters
        return np.array([self.table.row(parameters(arm)) for arm in range(len(self.candidates))])

    @cached_property
    def accuracies(self) -> Floats:
        """The mean over repeats (A,)."""
        means: Floats = np.nanmean(self.table.rewards, axis=1)
        return means

    def evaluate(self, row: int, rng: np.random.Generator) -> tuple[float, float]:
        """Accuracy, with the noise of a repeat, and cost."""
        repeats = self.table.rewards[row]
        return float(rng.choice(repeats[~np.isnan(repeats)])), float(self.costs[row])

    def loss(self, rows: NDArray[np.intp]) -> float:
        """The loss after evaluating `rows` (n,), computed without noise, in [0, 1].

        With two objectives: 1 − (hypervolume of the rows)/(hypervolume of the whole table), with
        the median accuracy and the largest cost as the reference point. With a constraint: the
        regret of the best accuracy within the limit, divided by (best − median) of the accuracies
        within it; at most 1.
        """
        if self.limit is None:
            return 1.0 - self._volume(rows) / self._best_volume
        within = self.accuracies[self.costs <= self.limit]
        best = self.accuracies[rows[self.costs[rows] <= self.limit]].max(initial=-np.inf)
        return float(min(1.0, (within.max() - best) / (within.max() - np.median(within))))

    def _volume(self, rows: NDArray[np.intp]) -> float:
        reference = float(np.median(self.accuracies)), -float(self.costs.max())
        points = np.column_stack((self.accuracies[rows], -self.costs[rows]))
        return hypervolume(points.tolist(), reference)

    @cached_property
    def _best_volume(self) -> float:
        return self._volume(np.arange(len(self.costs)))


@cache
def load(name: str, source: DataSource) -> Table:
    """The problem `name` of PROBLEMS; raises ObjectiveError when its data are not in the data
    folder."""
    base = name.removesuffix(LIMITED)
    table = load_table(base, source)
    costs = _seconds(table) if base == "nb101" else _weights(table)
    return Table(name, table, costs, float(np.quantile(costs, QUANTILE)) if name.endswith(LIMITED) else None)


def _seconds(table: Recorded) -> Floats:
    if table.durations is None:
        raise ValueError("the table must have recorded durations")
    return table.durations


def _weights(table: Recorded) -> Floats:
    """log₁₀ of the weights between the hidden layers and into a first layer of one input."""
    depth, width = (table.level_values(name) for name in ("depth", "width"))
    weights: Floats = np.log10((depth - 1.0) * width**2 + width)
    return weights
