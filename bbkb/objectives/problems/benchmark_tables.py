"""Published tables of recorded trainings as objectives: an evaluation reads the recorded result.

| name | configurations | value |
| --- | --- | --- |
| `nas_bench_101` | the recorded ones of the six-vertex cells (Ying et al. 2019) | validation accuracy, 108 epochs |
| `nas_bench_201` | 15 625 cells (Dong and Yang 2020) | validation accuracy in per cent, 200 epochs |
| `fcnet` | 62 208 settings of a two-layer network (Klein and Hutter 2019) | validation MSE, 100 epochs: minimize |
| `hpobench_mlp` | 30 000 settings of a perceptron (Eggensperger et al. 2021) | balanced accuracy, 243 epochs |

The files must be in the data folder, `data.folder` or BBKB_DATA. Nothing is downloaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.objectives.objective import Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.parameters import Choice, Ordered, Scalar, Space
from bbkb.objectives.problems.cells import CONVOLUTION, OPERATIONS, POOLING, CellSet, Encoding, encode_cells
from bbkb.objectives.problems.datasets import check_archive
from bbkb.objectives.reference import FOLDER_VARIABLE, DataSource
from bbkb.objectives.tabular import Table, best_mean, recorded_evaluation

Arrays = Mapping[str, NDArray[Any]]  # the arrays of a NumPy archive, by name

Floats = NDArray[np.float64]
T = TypeVar("T")

_EDGES = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
_UNITS = Ordered((16, 32, 64, 128, 256, 512))
_ACTIVATION = Choice(("relu", "tanh"))
_DROPOUT = Ordered((0.0, 0.3, 0.6))
NAS_BENCH_201_SPACE: Space = {f"op{edge}": Choice(_EDGES) for edge in range(6)}
FCNET_SPACE: Space = {
    "activation_fn_1": _ACTIVATION,
    "activation_fn_2": _ACTIVATION,
    "batch_size": Ordered((8, 16, 32, 64)),
    "dropout_1": _DROPOUT,
    "dropout_2": _DROPOUT,
    "init_lr": Ordered((0.0005, 0.001, 0.005, 0.01, 0.05, 0.1)),
    "lr_schedule": Choice(("cosine", "const")),
    "n_units_1": _UNITS,
    "n_units_2": _UNITS,
}
HPOBENCH_MLP_SPACE: Space = {
    "alpha": Ordered(
        (
            *(1e-08, 7.742637e-08, 5.994842e-07, 4.641589e-06, 3.5938137e-05),
            *(0.00027825593, 0.0021544348, 0.016681006, 0.12915497, 1.0),
        )
    ),
    "batch_size": Ordered((4, 6, 10, 16, 25, 40, 64, 101, 161, 256)),
    "depth": Ordered((1, 2, 3)),
    "learning_rate_init": Ordered(
        (
            *(1e-05, 3.5938137e-05, 0.00012915497, 0.0004641589, 0.0016681006),
            *(0.0059948424, 0.021544347, 0.07742637, 0.27825594, 1.0),
        )
    ),
    "width": Ordered((16, 25, 40, 64, 101, 161, 256, 406, 645, 1024)),
}


@dataclass(frozen=True)
class RecordedGrid:
    """The results of every configuration of a space."""

    space: Space
    target: Floats  # (A, repeats), NaN if missing; the last parameter of `space` varies fastest
    description: str

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return one of the repeats, drawn with `seed`. The metric `noise_free` is their mean.

        Raises the errors of `row`.
        """
        return recorded_evaluation(self.target[self.row(parameters)], np.random.default_rng(seed))

    def row(self, parameters: Parameters) -> int:
        """Return the row of a configuration. Raises ValueError if a parameter is missing or has a
        value that was not recorded."""
        row = 0
        for name, levels in levels_of(self.space).items():
            if parameters.get(name) not in levels:
                raise ValueError(f"{name} must be one of {', '.join(map(str, levels))}, got {parameters.get(name)!r}")
            row = row * len(levels) + levels.index(parameters[name])
        return row

    def optimum(self, maximize: bool) -> float:
        """Return the largest (or smallest) mean over repeats in the table."""
        return best_mean(self.target, maximize)


class _GridOptions:
    """The common options of recorded grids. The table is in the subfolder `folder` of the data
    folder."""

    folder: ClassVar[str]
    space: ClassVar[Space]
    dataset: str

    def default_space(self) -> Space:
        """Return every configuration that was recorded."""
        return self.space

    def load(self, source: DataSource) -> RecordedGrid:
        """Return the table. Raises ObjectiveError if the file is not in the data folder."""
        name = f"{self.folder}/{self.folder}.npz"
        target = read_archive(source, name, self._read)
        return RecordedGrid(self.space, target, f"the table {self.folder}, {self.dataset}")

    def _read(self, arrays: Arrays) -> Floats:
        levels = tuple(map(len, levels_of(self.space).values()))
        target = arrays[self.dataset].astype(np.float64)
        ordered = np.full_like(target, np.nan)
        ordered[np.ravel_multi_index(tuple(arrays["index"].T), levels)] = target
        if np.isnan(ordered).all(axis=1).any() or len(ordered) != np.prod(levels):
            raise ValueError(f"{np.prod(levels)} different configurations with a value are expected")
        return ordered


@dataclass(frozen=True)
class NasBench201(_GridOptions):
    """Cells of six edges, each with one of five operations, trained on images."""

    folder: ClassVar[str] = "nasbench201"
    space: ClassVar[Space] = NAS_BENCH_201_SPACE
    dataset: Annotated[Literal["cifar10", "cifar100"], Doc("The images that the cells were trained on.")] = "cifar10"


@dataclass(frozen=True)
class FcNet(_GridOptions):
    """A network of two layers for regression; the value is its mean squared error."""

    folder: ClassVar[str] = "fcnet"
    space: ClassVar[Space] = FCNET_SPACE
    dataset: Annotated[
        Literal["protein_structure", "parkinsons_telemonitoring"],
        Doc("The regression set that the network was trained on."),
    ] = "protein_structure"


@dataclass(frozen=True)
class HpobenchMlp(_GridOptions):
    """A multi-layer perceptron for classification."""

    folder: ClassVar[str] = "hpobench_mlp"
    space: ClassVar[Space] = HPOBENCH_MLP_SPACE
    dataset: Annotated[
        Literal["australian", "blood_transfusion", "car", "phoneme", "vehicle"],
        Doc("The classification set that the network was trained on."),
    ] = "vehicle"


@dataclass(frozen=True, slots=True)
class NasBench101:
    """The recorded cells with six vertices whose inner vertices have one of `operations`
    (Calandriello et al. 2020, appendix D.2). One training of each cell was recorded.
    """

    operations: Annotated[
        Literal["paper", "all"], Doc("Operations of the inner vertices: `all` three, or the `paper`'s two.")
    ] = "paper"
    encoding: Annotated[Encoding, Doc("The kind of features of a cell.")] = Encoding.ADJACENCY

    def default_space(self) -> Space | None:
        """Return None, because the table has its own candidates."""
        return None

    def load(self, source: DataSource) -> Table:
        """Return the table. Raises ObjectiveError if the file is not in the data folder."""
        return read_archive(source, "nasbench101/nasbench101_30001.npz", self._table)

    def _table(self, arrays: Arrays) -> Table:
        names = OPERATIONS if self.operations == "all" else (CONVOLUTION, POOLING)
        numbers = [OPERATIONS.index(name) for name in names]
        is_six_vertex = (arrays["n_vertices"] == 6) & np.isin(arrays["ops"][:, 1:5], numbers).all(axis=1)
        operations = np.searchsorted(numbers, arrays["ops"][is_six_vertex, 1:5]).astype(np.intp)
        cells = CellSet(arrays["adjacency"][is_six_vertex][:, :6, :6].astype(bool), operations, names).canonical()
        features, parameter_of = encode_cells(cells, self.encoding)
        columns = {
            "cell": np.array([str(cells.cell(number)) for number in range(len(cells))]),
            "parameters": arrays["trainable_parameters"][is_six_vertex].astype(np.int64),
        }
        return Table(
            features,
            columns,
            arrays["val_acc_108"][is_six_vertex].astype(np.float64),
            seconds=arrays["train_time_108"][is_six_vertex].astype(np.float64),
            description=f"{len(cells)} recorded cells of NAS-Bench-101",
            parameter_of=parameter_of,
        )


def levels_of(space: Space) -> dict[str, tuple[Scalar, ...]]:
    """Return the values of each ordered parameter and each choice in `space`, in order."""
    return {name: parameter.levels for name, parameter in space.items() if isinstance(parameter, Ordered | Choice)}


def read_archive(source: DataSource, name: str, make: Callable[[Arrays], T]) -> T:
    """Call `make` with the arrays in the NumPy archive `name` of the data folder.

    Raises ObjectiveError if the file does not exist, or if `make` rejects its content.
    """
    path: Path | None = source.file(name)
    if path is None:
        raise ObjectiveError(
            f"{name} must be in the data folder, {source.folder or 'and none is given'}; name a folder that holds it "
            f"by `data.folder` in the campaign file or the environment variable {FOLDER_VARIABLE}"
        )
    try:
        check_archive(path)
        # opened here, because numpy does not close a damaged file
        with path.open("rb") as file, np.load(file) as arrays:
            return make(arrays)
    except Exception as error:  # numpy raises many types for a damaged file
        raise ObjectiveError(f"{path} is not a readable table of this benchmark: {error!r}; replace it") from error
