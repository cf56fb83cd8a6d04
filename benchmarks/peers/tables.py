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

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.nasbench101_cells import RECORDED, VERTICES
from benchmarks.peers.problems import Evaluation, Group, Point
from objectives.conditions import Scalar
from objectives.datasets import DataSource
from objectives.objective import Candidates, ObjectiveError
from objectives.parameters import Choice, Ordered, Space
from objectives.problems.benchmark_tables import levels_of, read_archive

Floats = NDArray[np.float64]

_UPPER = np.triu_indices(VERTICES, 1)
_OPERATIONS = ("conv3x3", "conv1x1", "maxpool3x3")  # encoded as 0, 1, 2


@dataclass(frozen=True, eq=False)
class Recorded:
    """A table of recorded configurations."""

    space: Space  # its p parameters
    levels: NDArray[np.intp]  # (A, p), indices of their values
    rewards: Floats  # (A, repeats), NaN for a missing one
    durations: Floats | None = None  # (A,), with a mean of 1; None if none were recorded
    # whether the rows are the whole space; else `evaluate` takes the nearest row, by the number of
    # parameters that differ, the first of them on a tie
    is_whole: bool = True

    @property
    def group(self) -> Group:
        return Group.TABLES

    @property
    def is_deterministic(self) -> bool:
        return int(self.rewards.shape[1]) == 1

    @cached_property
    def arms(self) -> Candidates | None:
        """The rows, unless they are the whole space; features are the levels scaled to [0, 1],
        choices one-hot."""
        if self.is_whole:
            return None
        columns, blocks = {}, []
        for place, (name, values) in enumerate(self._values.items()):
            level = self.levels[:, place]
            columns[name] = np.array(values)[level]
            is_ordered = isinstance(self.space[name], Ordered)
            blocks.append(
                level[:, None] / (len(values) - 1) if is_ordered else np.eye(len(values))[level] / np.sqrt(2.0)
            )
        return Candidates(np.hstack(blocks), columns)

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
        return Evaluation(float(rng.choice(repeats)), float(self.expected[row]), float(self.regrets[row]), duration)

    @cached_property
    def _values(self) -> dict[str, tuple[Scalar, ...]]:
        """The levels of each parameter, in order."""
        return levels_of(self.space)

    def level_values(self, name: str) -> Floats:
        """The value (A,) of the parameter `name`, whose levels are numbers, in each row."""
        place = list(self._values).index(name)
        return np.array(self._values[name], np.float64)[self.levels[:, place]]

    @cached_property
    def _rows(self) -> NDArray[np.intp]:
        """The row (Π levels,) of every configuration."""
        shape = [len(values) for values in self._values.values()]
        rows = np.zeros(int(np.prod(shape)), np.intp)
        rows[np.ravel_multi_index(tuple(self.levels.T), shape)] = np.arange(len(self.levels))
        return rows

    def row(self, point: Point) -> int:
        """The row whose value `point` has."""
        level = [values.index(point[name]) for name, values in self._values.items()]
        if not self.is_whole:
            return int((self.levels != np.array(level)).sum(axis=1).argmin())
        return int(self._rows[np.ravel_multi_index(tuple(level), [len(v) for v in self._values.values()])])


def _grid(folder: str, column: str, sign: float) -> Callable[[DataSource], Recorded]:
    def load(source: DataSource) -> Recorded:
        arrays = read_archive(source, f"{folder}/{folder}.npz", dict)
        described: dict[str, list[Scalar]] = json.loads(_file(source, f"{folder}/space.json").read_text())
        space = {name: _parameter(levels) for name, levels in described.items()}
        return Recorded(space, arrays["index"].astype(np.intp), sign * arrays[column].astype(np.float64))

    return load


def _parameter(levels: list[Scalar]) -> Ordered | Choice:
    return Choice(tuple(levels)) if isinstance(levels[0], str) else Ordered(tuple(levels))


def _cells(source: DataSource) -> Recorded:
    arrays = read_archive(source, RECORDED, dict)
    rows = np.flatnonzero(arrays["n_vertices"] == VERTICES)
    edges = arrays["adjacency"][rows][:, _UPPER[0], _UPPER[1]]
    levels = np.hstack([edges, arrays["ops"][rows, 1 : VERTICES - 1]]).astype(np.intp)
    space: dict[str, Ordered | Choice] = {f"edge_{i}_{j}": Ordered((0, 1)) for i, j in zip(*_UPPER, strict=True)}
    space |= {f"operation_{place}": Choice(_OPERATIONS) for place in range(1, VERTICES - 1)}
    seconds = arrays["train_time_108"][rows].astype(np.float64)
    rewards = arrays["val_acc_108"][rows, None].astype(np.float64)
    return Recorded(space, levels, rewards, seconds / seconds.mean(), is_whole=False)


TABLES: Mapping[str, Callable[[DataSource], Recorded]] = {
    "nb201-cifar10": _grid("nasbench201", "cifar10", 1.0),
    "nb201-cifar100": _grid("nasbench201", "cifar100", 1.0),
    "fcnet-parkinsons": _grid("fcnet", "parkinsons_telemonitoring", -1.0),
    "fcnet-protein": _grid("fcnet", "protein_structure", -1.0),
    "mlp-australian": _grid("hpobench_mlp", "australian", 1.0),
    "mlp-blood": _grid("hpobench_mlp", "blood_transfusion", 1.0),
    "mlp-car": _grid("hpobench_mlp", "car", 1.0),
    "mlp-phoneme": _grid("hpobench_mlp", "phoneme", 1.0),
    "mlp-vehicle": _grid("hpobench_mlp", "vehicle", 1.0),
    "nb101": _cells,
}


@cache
def load_table(name: str, source: DataSource) -> Recorded:
    """The table `name` of TABLES; raises ObjectiveError when its data are not in the data
    folder."""
    return TABLES[name](source)


def _file(source: DataSource, name: str) -> Path:
    path = source.file(name)
    if path is None:
        raise ObjectiveError(
            f"{name} must be in the data folder, {source.folder or 'none is given'}: name one by --data"
        )
    return path
