"""Recorded tables as problems: every configuration of a space has recorded values.

| name | configurations | reward |
| --- | --- | --- |
| `nb201-…` (two) | 15625 cells (Dong and Yang 2020), 6 choices of 5 | accuracy in per cent, 2–3 repeats |
| `fcnet-…` (two) | 62208 (Klein and Hutter 2019), 6 ordinals and 3 choices | −MSE, 4 repeats |
| `mlp-…` (five) | 30000 (HPOBench, Eggensperger et al. 2021), 5 ordinals | balanced accuracy in [0, 1], 5 repeats |
| `nb101` | 4432 recorded six-vertex cells (Ying et al. 2019) | accuracy in [0, 1], one training |

An evaluation returns one of the repeats; the regret is computed from their mean. Rewards are passed
on as recorded. The recorded cells of NAS-Bench-101 are only a part of its space (15 edges, 4
operations): any other point has the value of the nearest recorded cell. Its durations are the
recorded ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Space
from bbkb.objectives.problems.benchmark_tables import FcNet, HpobenchMlp, NasBench201
from bbkb.objectives.reference import DataSource
from bbkb.objectives.space import SearchSpace
from benchmarks.curves.problems import load_cell_table
from benchmarks.peers.problems import Evaluation, Point
from benchmarks.tables import Floats


@dataclass(frozen=True, eq=False)
class Recorded:
    """A table of recorded configurations."""

    space: Space
    rewards: Floats  # (A, repeats), NaN for a missing one
    row: Callable[[Point], int]  # maps a point to the row with its value
    arms: Candidates | None = None  # the rows, unless they are the whole space
    durations: Floats | None = None  # (A,), with a mean of 1; None if none were recorded
    several: None = None

    @property
    def is_deterministic(self) -> bool:
        return int(self.rewards.shape[1]) == 1

    @cached_property
    def expected(self) -> Floats:
        """The mean reward (A,) of each row's repeats."""
        mean: Floats = np.nanmean(self.rewards, axis=1)
        return mean

    @cached_property
    def regrets(self) -> Floats:
        """Regret (A,) of each row's mean over repeats, in units of (best − median)."""
        worth = self.expected
        regret: Floats = (worth.max() - worth) / (worth.max() - np.median(worth))
        return regret

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        row = self.row(point)
        repeats = self.rewards[row][~np.isnan(self.rewards[row])]
        duration = None if self.durations is None else float(self.durations[row])
        return Evaluation((float(rng.choice(repeats)),), float(self.regrets[row]), duration)


def _grid(options: NasBench201 | FcNet | HpobenchMlp, sign: float = 1.0) -> Callable[[DataSource], Recorded]:
    def load(source: DataSource) -> Recorded:
        grid = options.load(source)
        return Recorded(grid.space, sign * grid.target, grid.row)

    return load


def _cells(source: DataSource) -> Recorded:
    cells, times = load_cell_table(source)
    space = SearchSpace(cells.space)
    features = cells.arms.features
    seconds = times.astype(np.float64)

    def row(point: Point) -> int:
        """The first row in which the fewest parameters differ."""
        distances = np.sum((features - space.candidate(point).features) ** 2, axis=1)
        return int(np.round(distances).argmin())

    arms = Candidates(features, cells.arms.columns)
    return Recorded(cells.space, cells.values[:, -1:], row, arms, seconds / seconds.mean())


TABLES: Mapping[str, Callable[[DataSource], Recorded]] = {
    "nb201-cifar10": _grid(NasBench201("cifar10")),
    "nb201-cifar100": _grid(NasBench201("cifar100")),
    "fcnet-parkinsons": _grid(FcNet("parkinsons_telemonitoring"), sign=-1.0),
    "fcnet-protein": _grid(FcNet("protein_structure"), sign=-1.0),
    "mlp-australian": _grid(HpobenchMlp("australian")),
    "mlp-blood": _grid(HpobenchMlp("blood_transfusion")),
    "mlp-car": _grid(HpobenchMlp("car")),
    "mlp-phoneme": _grid(HpobenchMlp("phoneme")),
    "mlp-vehicle": _grid(HpobenchMlp("vehicle")),
    "nb101": _cells,
}


@cache
def load_table(name: str, source: DataSource) -> Recorded:
    """The table `name` of TABLES. Raises ObjectiveError if its data are missing."""
    return TABLES[name](source)
