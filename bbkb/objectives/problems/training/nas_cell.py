"""Architecture search with real trainings: networks of stacked cells from NAS-Bench-101's space, on
digits.

An arm is a cell (Ying et al. 2019), from which `bbkb.objectives.problems.training.cell_network` builds a
network. The network is trained for a few epochs with Adam, whose learning rate decreases to 0 along
half a cosine, and the reward is the accuracy on validation rows. The candidates are all cells with
the number of vertices and the operations in the options: by default the 12 416 cells of
Calandriello et al. 2020, appendix D.2.

PyTorch is an extra and is imported when an evaluation needs it.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MultipleOf
from typing_extensions import Doc

from bbkb.objectives.objective import Candidates, Evaluation, Parameters, Report
from bbkb.objectives.parameters import Space
from bbkb.objectives.problems.cells import (
    CONVOLUTION,
    MOST_VERTICES,
    OPERATIONS,
    POOLING,
    Cell,
    CellSet,
    Encoding,
    cells_of,
    encode_cells,
)
from bbkb.objectives.problems.training.images import (
    EpochsOption,
    ImageSet,
    Rows,
    ThreadsOption,
    TrainsInEpochs,
    load_images,
    rows_of,
    split_rows,
)
from bbkb.objectives.problems.training.torch_training import Training, require_torch, seed_torch, tensors, train
from bbkb.objectives.reference import DataSource

CELL = "cell"  # the parameter with an arm's cell
MOST_CELLS = 100_000

_DRAW_SEED = 0  # the candidates are part of the problem, so they never change
_Rows = Annotated[int, Ge(10), MultipleOf(10)]  # there are ten classes


@dataclass(frozen=True, slots=True)
class CellNetwork:
    """Networks of stacked cells, trained on images of digits.

    The candidates are all cells with `vertices` vertices whose inner vertices have one of
    `operations`. At most 100 000 of them are drawn at random (7 vertices with three operations have
    359 082 cells). Nothing is downloaded. Raises ValueError for wrong operations.
    """

    vertices: Annotated[int, Ge(3), Le(MOST_VERTICES), Doc("Vertices of a cell, 3 to 7.")] = 6
    operations: Annotated[tuple[str, ...], Doc("The operations that inner vertices may have.")] = (CONVOLUTION, POOLING)
    encoding: Annotated[Encoding, Doc("The kind of features of a cell.")] = Encoding.ADJACENCY
    epochs: EpochsOption = 3
    dataset: ImageSet = "auto"
    train_size: Annotated[_Rows, Doc("Training rows, in every class alike, a multiple of 10.")] = 1000
    validation_size: Annotated[
        _Rows | None,
        Doc("Additional rows for the accuracy, a multiple of 10; None: 1000 of MNIST, 500 of the digits."),
    ] = None
    batch_size: Annotated[int, Ge(1), Doc("Rows of one step of the training, ≥ 1.")] = 50
    learning_rate: Annotated[float, Gt(0), Lt(math.inf), Doc("The initial learning rate, > 0.")] = 0.02
    channels: Annotated[int, Ge(1), Doc("Channels in the first stack, ≥ 1.")] = 8
    # each stack halves the image, and a digit has 8 × 8 pixels
    stacks: Annotated[int, Ge(1), Le(3), Doc("Stacks of cells, 1 to 3.")] = 2
    cells: Annotated[int, Ge(1), Doc("Cells of a stack, ≥ 1.")] = 1
    threads: ThreadsOption = 1

    def __post_init__(self) -> None:
        names = self.operations
        if len(set(names)) < len(names) or CONVOLUTION not in names or len(names) < 2:
            raise ValueError(
                f"operations must be {CONVOLUTION} and others of {', '.join(OPERATIONS)}, got {', '.join(names)}"
            )
        for name in names:
            if name not in OPERATIONS:
                raise ValueError(f"operations must be some of {', '.join(OPERATIONS)}, got {name!r}")

    def default_space(self) -> Space | None:
        """Return None, because the cells are the candidates."""
        return None

    def load(self, source: DataSource) -> "CellTraining":
        """Read and split the images. Raises ObjectiveError if they are not available, if sizes do
        not fit or if PyTorch is missing, so that a campaign fails before its first evaluation.
        """
        require_torch("nas_cell")
        images, is_mnist, note = load_images(source, self.dataset)
        train, validation, _ = split_rows(images, self.train_size, self.validation_size or (1000 if is_mnist else 500))
        return CellTraining(
            train=rows_of(images, train),
            validation=rows_of(images, validation),
            options=self,
            description=f"networks of stacked cells on {images.source}, {len(train)} rows to train on, "
            f"{len(validation)} to validate, {self.epochs} epochs{note}",
        )


@dataclass(frozen=True, slots=True)
class CellTraining(TrainsInEpochs):
    """The objective: trains a cell's network on `train` and returns the accuracy on
    `validation`."""

    train: Rows
    validation: Rows
    options: CellNetwork
    description: str

    def candidates(self) -> Candidates:
        """Return the cells. `cell` identifies them; the other columns are for display."""
        cells = cells_of(self.options.vertices, self.options.operations)
        if len(cells) > MOST_CELLS:  # too many for a campaign
            numbers = np.sort(np.random.default_rng(_DRAW_SEED).choice(len(cells), MOST_CELLS, replace=False))
            cells = CellSet(cells.adjacency[numbers], cells.operations[numbers], cells.names)
        features, parameter_of = encode_cells(cells, self.options.encoding)
        columns = {
            CELL: np.array([str(cells.cell(number)) for number in range(len(cells))]),
            "edges": cells.adjacency.sum(axis=(1, 2)),
            "convolutions": (cells.operations == self.options.operations.index(CONVOLUTION)).sum(axis=1),
        }
        return Candidates(features, columns, parameter_of)

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return the validation accuracy in [0, 1] after the last epoch. The accuracy after each
        epoch is reported.

        Metrics: `accuracy` (the same), `parameters` (number of trained weights), `training_loss`
        (mean of the last epoch) and `seconds` (processor time of the training). A diverging
        training returns NaN. A training continues from a checkpoint in the trial's folder, if there
        is one.

        `seed`, from 0 to 2⁶⁴ − 1, draws weights and shuffles. Raises ValueError if `cell` is not a
        cell, and ObjectiveError if PyTorch is missing.
        """
        cell = Cell.parse(str(parameters.get(CELL, "")))
        require_torch("nas_cell")
        from torch.optim import Adam
        from torch.optim.lr_scheduler import CosineAnnealingLR

        from bbkb.objectives.problems.training.cell_network import build_cell_network

        options = self.options
        batches = -(-len(self.train.labels) // options.batch_size)
        classes = int(self.train.labels.max()) + 1
        rows = tensors(self.train)

        def begin() -> Training:
            side = rows[0].shape[-1]
            network = build_cell_network(cell, side, classes, options.channels, options.stacks, options.cells)
            optimizer = Adam(network.parameters(), options.learning_rate)
            return Training(network, optimizer, CosineAnnealingLR(optimizer, options.epochs * batches))

        with seed_torch(seed, options.threads):
            trained = train(begin, rows, tensors(self.validation), options.batch_size, options.epochs, report)
        metrics = {
            "accuracy": trained.accuracy,
            "parameters": float(sum(weights.numel() for weights in trained.network.parameters())),
            "training_loss": trained.loss,
            "seconds": trained.seconds,
        }
        return Evaluation(trained.accuracy, metrics)
