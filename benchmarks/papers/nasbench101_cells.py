"""NAS-Bench-101's cells as a bandit problem, preprocessed as in Calandriello et al. 2020, appendix
D.2.

An arm is a cell with exactly six vertices whose four inner ones are 3×3 convolutions or
max-poolings: 12416 cells. Its 19 features are the 15 bits of the adjacency matrix's upper triangle
and 4 bits that say which vertices are convolutions, each half scaled so that no cell's norm exceeds
1.

The accuracies of 914 of the cells are recorded, one training each. Those of the others are
predicted, see `Cells`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from bbkb.objectives.parameters import Space
from bbkb.objectives.problems.benchmark_tables import Arrays, read_archive
from bbkb.objectives.reference import DataSource
from bbkb.objectives.tabular import Table
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import RBF

RECORDED, SPACE = "nasbench101/nasbench101_30001.npz", "nasbench101/space_423624.npz"
VERTICES, CONVOLUTION, POOLING = 6, 0, 2
LARGEST_NORMS = (3.0, 2.0)  # scales of the halves: a cell has at most 9 edges, and 4 inner vertices

_UPPER = np.triu_indices(VERTICES, 1)
_COLUMNS = tuple(f"edge_{i}_{j}" for i, j in zip(*_UPPER, strict=True)) + tuple(f"convolution_{i}" for i in range(1, 5))

# chosen by the leave-one-out error on the 914 recorded cells: the regression explains 93 % of the
# variance of the accuracies and 98 % of that of the logarithms of the times
_STAND_IN_KERNEL, _STAND_IN_RIDGE = RBF(1.0), 0.01


@dataclass(frozen=True, slots=True)
class Cells:
    """Options of the objective: validation accuracy after 108 epochs plus N(0, `noise_std`²), and
    the training's time.

    `cells`: `recorded`, the 914 cells with an accuracy, or `all` 12416. The others have predicted
    values, from a kernel ridge regression on the recorded ones (accuracy, and logarithm of the
    training time). The data have one training of each cell, so noise is added; the paper draws one
    of three trainings.
    """

    cells: Literal["recorded", "all"] = "recorded"
    noise_std: float = 0.01

    def load(self, source: DataSource) -> Table:
        """The table. Raises ObjectiveError when the data are missing."""
        features, accuracies, seconds = read_archive(source, RECORDED, _read_recorded)
        description = f"{len(features)} recorded cells of NAS-Bench-101"
        if self.cells == "all":
            everything = read_archive(source, SPACE, _space)
            accuracies, seconds = predict_unknown(features, accuracies, seconds, everything)
            description += f", {len(everything) - len(features)} with a stand-in predicted from them"
            features = everything
        columns = dict(zip(_COLUMNS, (features > 0).T.astype(np.int64), strict=True))
        return Table(features, columns, accuracies, self.noise_std, seconds, description)

    def default_space(self) -> Space | None:
        """None: the table has its own candidates."""
        return None


def predict_unknown(recorded: Floats, accuracies: Floats, seconds: Floats, features: Floats) -> tuple[Floats, Floats]:
    """Accuracies and seconds (A,) of the cells `features` (A, d): those of `recorded` cells, and
    predictions.

    Predictions above the largest known accuracy are reduced to it, so that the optimum is a
    recorded one.
    """
    kernel = _STAND_IN_KERNEL
    factor = cho_factor(kernel.cross(recorded, recorded) + _STAND_IN_RIDGE * np.eye(len(recorded)))
    targets = np.column_stack([accuracies, np.log(seconds)])
    means = targets.mean(axis=0)
    predicted = means + kernel.cross(features, recorded) @ cho_solve(factor, targets - means)
    predicted_accuracies = np.minimum(predicted[:, 0], accuracies.max())
    predicted_seconds: Floats = np.exp(predicted[:, 1])
    place = {row.tobytes(): index for index, row in enumerate(features)}
    positions = [place[row.tobytes()] for row in recorded]
    predicted_accuracies[positions], predicted_seconds[positions] = accuracies, seconds
    return predicted_accuracies, predicted_seconds


def encode(adjacency: NDArray[Any], operations: NDArray[Any]) -> Floats:
    """Features (n, 19) of cells with `adjacency` (n, ≥ 6, ≥ 6) and inner `operations` (n, 4)."""
    edges = adjacency[:, _UPPER[0], _UPPER[1]] / LARGEST_NORMS[0]
    convolutions = (operations == CONVOLUTION) / LARGEST_NORMS[1]
    return np.hstack([edges, convolutions])


def _rows_of_paper(arrays: Arrays) -> NDArray[np.intp]:
    """The rows of a file that are cells of the paper."""
    operations = arrays["ops"]
    is_allowed = np.isin(operations[:, 1:5], (CONVOLUTION, POOLING)).all(axis=1)
    return np.flatnonzero((arrays["n_vertices"] == VERTICES) & is_allowed)


def _read_recorded(arrays: Arrays) -> tuple[Floats, Floats, Floats]:
    rows = _rows_of_paper(arrays)
    accuracies = arrays["val_acc_108"][rows].astype(np.float64)
    seconds = arrays["train_time_108"][rows].astype(np.float64)
    return encode(arrays["adjacency"][rows], arrays["ops"][rows, 1:5]), accuracies, seconds


def _space(arrays: Arrays) -> Floats:
    rows = _rows_of_paper(arrays)
    return encode(arrays["adjacency"][rows], arrays["ops"][rows, 1:5])
