"""Learning curves that were recorded: TaskSet, and cells of NAS-Bench-101.

A configuration of the space that was not recorded has the curve of the nearest recorded one.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bbkb.objectives.datasets import DataSource
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Choice, Ordered, Range, Space
from bbkb.objectives.problems.benchmark_tables import read_archive
from bbkb.objectives.space import SearchSpace
from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from benchmarks.papers.nasbench101_cells import RECORDED, VERTICES

TASKSET = "taskset/taskset.npz"
TASKSET_OTHER = "taskset/other.npz"
TASKSET_TASKS = 6
TASKSET_OTHER_TASKS = 3
CELL_EPOCHS = (4, 12, 36, 108)
_HYPERPARAMETERS = (*("learning_rate", "beta1", "beta2", "epsilon", "l1", "l2", "linear_decay", "exponential_decay"),)
_LINEAR = {"beta1", "beta2"}
_UPPER = np.triu_indices(VERTICES, 1)
_OPERATIONS = ("conv3x3", "conv1x1", "maxpool3x3")  # coded as 0, 1, 2


@dataclass(frozen=True, eq=False)
class Table:
    """Recorded configurations: `arms`, and `values` (A, R) that are maximized and are NaN after the
    end of a training that ended early."""

    space: Space
    arms: Candidates
    values: Floats

    @cached_property
    def _search_space(self) -> SearchSpace:
        return SearchSpace(self.space)

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        return {row.tobytes(): number for number, row in enumerate(self.arms.features)}

    def row(self, configuration: Configuration) -> int:
        """The row of the nearest recorded configuration, by the distance of the features."""
        at = self._search_space.candidate(configuration).features[0]
        number = self._row_of.get(at.tobytes())
        if number is None:
            number = int(np.sum((self.arms.features - at) ** 2, axis=1).argmin())
        return number

    def curve(self, configuration: Configuration) -> Floats:
        values = self.values[self.row(configuration)]
        curve: Floats = values[~np.isnan(values)]
        return curve

    def problem(self, name: str, steps: tuple[int, ...], costs: tuple[int, ...]) -> CurveProblem:
        """The problem with these curves; a training that reports only its end costs its last step."""
        last = np.count_nonzero(~np.isnan(self.values), axis=1) - 1
        final = self.values[np.arange(len(self.values)), last]
        return CurveProblem(
            name=name,
            space=self.space,
            arms=self.arms,
            steps=steps,
            costs=costs,
            curve=self.curve,
            best=float(final.max()),
            median=float(np.median(final)),
        )


def load_taskset(number: int, source: DataSource) -> CurveProblem:
    """The task `number` of TaskSet, counted from 0: 1000 optimizer settings of a text model, 51
    validation losses. The tasks from `TASKSET_TASKS` on are in a separate file.

    A diverged training has the largest loss of the task on record from then on. Metz,
    Maheswaranathan, Sun, Freeman, Poole, Sohl-Dickstein 2020.
    """
    is_other = number >= TASKSET_TASKS
    arrays = read_archive(source, TASKSET_OTHER if is_other else TASKSET, dict)
    names = sorted(key for key in arrays if key.startswith("valid_loss_"))
    name = names[number - TASKSET_TASKS * is_other]
    losses = arrays[name].astype(np.float64)
    losses[np.isinf(losses)] = np.nan
    worst = np.nanmax(losses)
    diverged = np.maximum.accumulate(np.isnan(losses), axis=1)
    values = -np.where(diverged, worst, losses)
    columns = {one: arrays["hp"][:, place].astype(np.float64) for place, one in enumerate(_HYPERPARAMETERS)}
    space: Space = {
        one: Range(float(column.min()), float(column.max()), log=one not in _LINEAR) for one, column in columns.items()
    }
    count = values.shape[1]
    arms = SearchSpace(space).candidates_of(dict(columns))
    return Table(space, arms, values).problem(f"taskset-{number}", tuple(range(1, count + 1)), (1,) * count)


def load_cells(source: DataSource) -> CurveProblem:
    """The curves of the recorded cells.

    The values are those of four separate trainings, each with its own schedule, so a step costs all
    of its epochs: a cell whose values after 4, 12 and 36 epochs are read costs 160 epochs, any
    other cell costs 108.
    """
    table, _ = load_cell_table(source)
    return table.problem("nb101", CELL_EPOCHS, CELL_EPOCHS)


def load_cell_table(source: DataSource) -> tuple[Table, Floats]:
    """The 4432 recorded cells of NAS-Bench-101 with six vertices: validation accuracy after 4, 12,
    36, 108 epochs; and the seconds (A,) of the longest training. Ying, Klein, Christiansen, Real,
    Murphy, Hutter 2019."""
    arrays = read_archive(source, RECORDED, dict)
    rows = np.flatnonzero(arrays["n_vertices"] == VERTICES)
    edges = arrays["adjacency"][rows][:, _UPPER[0], _UPPER[1]]
    operations = arrays["ops"][rows, 1 : VERTICES - 1]
    columns: dict[str, Any] = {
        f"edge_{i}_{j}": edges[:, place] for place, (i, j) in enumerate(zip(*_UPPER, strict=True))
    }
    columns |= {f"operation_{1 + at}": np.array(_OPERATIONS)[operations[:, at]] for at in range(VERTICES - 2)}
    space: Space = {name: Choice(_OPERATIONS) if name.startswith("operation") else Ordered((0, 1)) for name in columns}
    values = np.stack([arrays[f"val_acc_{epochs}"][rows] for epochs in CELL_EPOCHS], axis=1).astype(np.float64)
    return Table(space, SearchSpace(space).candidates_of(columns), values), arrays["train_time_108"][rows]
