"""The problems: recorded tables as bandit problems on one scale, so that one set of
hyper-parameters suits all of them.

Features and targets are standardised. A regret of 1 is then one standard deviation of the arms'
values, and λ, ξ² and F mean the same on each table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchmarks.papers.nasbench101_cells import RECORDED, VERTICES
from objectives.benchmark_tables import read_archive
from objectives.datasets import DataSource
from objectives.objective import ObjectiveError
from objectives.parameters import Space
from objectives.tabular import Cadata, Table

Name = Literal["fcnet", "cadata", "cells"]

FCNET = "fcnet/fcnet.npz"
FCNET_ARMS = 2048
NOISE_STD = (
    0.01  # in the table's units: that of Calandriello et al. 2020, for accuracies and for targets scaled to [0, 1]
)

_OPERATIONS = (0, 1)  # 3×3 and 1×1 convolutions; any other vertex is a max-pooling
_UPPER = np.triu_indices(VERTICES, 1)


@dataclass(frozen=True, slots=True)
class Standardised:
    """Options of the objective: one of the tables, its features and target with mean 0 and standard
    deviation 1.

    | `table` | arms | value |
    | --- | --- | --- |
    | `fcnet` | 2048 settings of a network's nine hyper-parameters | −log₁₀ of its error on protein structure |
    | `cadata` | 20640 blocks of houses in California | their median value |
    | `cells` | the 4432 cells of NAS-Bench-101 with six vertices whose training is recorded | validation accuracy |

    An evaluation of FCNet gives one of four recorded trainings, so its values are noisy. The other
    tables get noise N(0, 0.01²), as in Calandriello et al. 2020, on the target scaled to [0, 1] and
    on accuracies. `has_seconds`: evaluations have the recorded durations, which only `cells` has.
    """

    table: Name = "fcnet"
    has_seconds: bool = False

    def load(self, source: DataSource) -> Table:
        """The table. Raises ObjectiveError when data are missing, or have no durations and
        `has_seconds` is set."""
        table = standardise(TABLES[self.table](source))
        if not self.has_seconds:
            return replace(table, seconds=None)
        if table.seconds is None:
            raise ObjectiveError(f"has_seconds must be false for a table without recorded durations, {self.table!r}")
        return table

    def default_space(self) -> Space | None:
        """None: the table has its own candidates."""
        return None


def standardise(table: Table) -> Table:
    """The table with features and target of mean 0 and standard deviation 1; its noise is scaled
    with the target."""
    worth = np.nanmean(table.target, axis=1)  # over repetitions
    features, spread = table.features - table.features.mean(axis=0), table.features.std(axis=0)
    return replace(
        table,
        features=features / np.where(spread > 0.0, spread, 1.0),
        target=(table.target - worth.mean()) / worth.std(),
        noise_std=table.noise_std / worth.std(),
        description=f"{table.description}, standardised",
    )


def fcnet(source: DataSource) -> Table:
    """FCNet on protein structure (Klein and Hutter 2019), four trainings of each setting. Choices
    become their index.

    A fixed random part of the 62208 settings, because the benchmark refits thousands of times.
    """
    arrays = read_archive(source, FCNET, dict)
    everything = len(arrays["index"])
    rows = np.sort(np.random.default_rng(0).choice(everything, min(FCNET_ARMS, everything), replace=False))
    features = arrays["index"][rows].astype(np.float64)
    errors = arrays["protein_structure"][rows].astype(np.float64)
    return Table(features, {}, -np.log10(errors), description=f"{len(rows)} of {everything} settings of FCNet")


def cells(source: DataSource) -> Table:
    """All recorded cells with six vertices: bits for the 15 edges and the convolutions of the four
    inner vertices."""
    arrays = read_archive(source, RECORDED, dict)
    rows = np.flatnonzero(arrays["n_vertices"] == VERTICES)
    inner = arrays["ops"][rows, 1 : VERTICES - 1]
    parts = [arrays["adjacency"][rows][:, _UPPER[0], _UPPER[1]], *(inner == operation for operation in _OPERATIONS)]
    accuracies, seconds = (arrays[name][rows].astype(np.float64) for name in ("val_acc_108", "train_time_108"))
    described = f"{len(rows)} recorded cells of NAS-Bench-101 with six vertices"
    return Table(np.hstack(parts).astype(np.float64), {}, accuracies, NOISE_STD, seconds, described)


TABLES: Mapping[Name, Callable[[DataSource], Table]] = {
    "fcnet": fcnet,
    "cadata": Cadata(NOISE_STD).load,
    "cells": cells,
}
