"""Multinomial logistic regression on handwritten digits, trained by mini-batch SGD: the papers'
tuning problem.

The papers on compressed GP bandits (002 section 4, 000 section 4.3) tune the learning rate, the
batch size, the dropout of the inputs and the ℓ2 constant of such a classifier on MNIST's training
set. The reward is the accuracy on a hold-out validation set. With weights W (d, k), intercepts b
(k,), inputs x scaled to [0, 1] and one-hot classes y, the loss is

    L(W, b) = − mean log softmax(xᵀW + b)_y + (l2 / 2) ‖W‖²

and a step is W ← W − learning_rate ∂L/∂W on one mini-batch, in float32. Each epoch passes once over
the training rows, in a new random order. Dropout zeroes every input of every row independently with
probability p and divides the others by 1 − p, in training only.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Lt
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.objectives.objective import Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.parameters import Range, Space
from bbkb.objectives.problems.training.images import (
    EpochsOption,
    Floats,
    ImageSet,
    Rows,
    TrainsInEpochs,
    load_images,
    options_of,
    rows_of,
    stratified_rows,
)
from bbkb.objectives.problems.training.torch_training import train_in_epochs
from bbkb.objectives.reference import DataSource

BLOCK = 4096  # the number of rows to convert to float32 at a time when measuring a whole set


@dataclass(frozen=True, slots=True)
class SoftmaxRegression:
    """Multinomial logistic regression on images of digits. Nothing is downloaded."""

    epochs: EpochsOption = 3
    dataset: ImageSet = "auto"
    validation_fraction: Annotated[
        float, Gt(0), Lt(1), Doc("The share of the rows that is held out, in every class alike, in (0, 1).")
    ] = 0.2
    train_size: Annotated[int | None, Doc("Training rows that are kept; None: all.")] = None

    def default_space(self) -> Space:
        """Return the four parameters of the papers, which do not state the ranges."""
        return {
            "learning_rate": Range(1e-4, 1.0, log=True),
            "batch_size": Range(16, 512, log=True, integer=True),
            "dropout": Range(0.0, 0.5),
            "l2": Range(1e-7, 1e-1, log=True),
        }

    def load(self, source: DataSource) -> "SoftmaxTraining":
        """Read and split the images. Raises ObjectiveError if they are not available or
        `train_size` is too large."""
        images, _, note = load_images(source, self.dataset)
        try:
            train, validation = stratified_rows(images.labels, self.train_size, self.validation_fraction)
        except ValueError as error:
            raise ObjectiveError(
                f"objective.options.train_size and validation_fraction must fit into {len(images.labels)} rows, "
                f"got {self.train_size} and {self.validation_fraction}: {error}"
            ) from error
        return SoftmaxTraining(
            train=rows_of(images, train),
            validation=rows_of(images, validation),
            classes=int(images.labels.max()) + 1,
            options=self,
            description=f"softmax regression on {images.source}, {len(train)} rows to train on, "
            f"{len(validation)} to validate, {self.epochs} epochs{note}",
        )


@dataclass(frozen=True, slots=True)
class Weights:
    """`matrix` (d, k) and `intercepts` (k,)."""

    matrix: Floats
    intercepts: Floats


@dataclass(frozen=True, slots=True)
class SoftmaxParameters:
    """The parameters: learning_rate > 0, batch_size ≥ 1, 0 ≤ dropout < 1, l2 ≥ 0 (ValueError)."""

    learning_rate: float = 0.1
    batch_size: int = 128
    dropout: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        rules = {
            "learning_rate must be > 0": self.learning_rate > 0,
            "batch_size must be an integer >= 1 (integer: true)": isinstance(self.batch_size, int)
            and self.batch_size >= 1,
            "dropout must be in [0, 1)": 0 <= self.dropout < 1,
            "l2 must be >= 0": self.l2 >= 0,
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(f"{rule}, got {getattr(self, rule.split()[0])}")


@dataclass(frozen=True, slots=True)
class SoftmaxTraining(TrainsInEpochs):
    """The objective: trains on `train` and returns the accuracy on `validation`."""

    train: Rows
    validation: Rows
    classes: int
    options: SoftmaxRegression
    description: str

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return the validation accuracy in [0, 1] after the last epoch, with the metrics
        `validation_loss` and `training_loss`, without the penalty. The accuracy after each epoch is
        reported. A diverging training returns NaN at once. A training continues from a checkpoint
        in the trial's folder, if there is one.

        Omitted parameters have the defaults of `SoftmaxParameters`. Raises ValueError for an
        invalid parameter.
        """
        hyper = options_of(SoftmaxParameters, parameters, "softmax regression")

        def begin() -> _Training:
            shape = self.train.pixels.shape[1], self.classes
            weights = Weights(np.zeros(shape, np.float32), np.zeros(self.classes, np.float32))
            return _Training(weights, np.random.default_rng(seed))

        @np.errstate(all="ignore")  # a diverging training overflows, which its NaN shows
        def advance(training: _Training) -> bool:
            training.weights = train_epoch(training.weights, self.train, hyper, training.rng)
            training.accuracy, training.loss = measure(training.weights, self.validation)
            training.epoch += 1
            return bool(np.isfinite(training.loss))

        training = train_in_epochs(report, ".npz", begin, _load, advance, self.options.epochs)
        if not np.isfinite(training.loss):
            return Evaluation(math.nan, {"validation_loss": math.nan, "training_loss": math.nan})
        with np.errstate(all="ignore"):
            _, training_loss = measure(training.weights, self.train)
        metrics = {"validation_loss": training.loss, "training_loss": training_loss}
        return Evaluation(training.accuracy, metrics)


@dataclass(slots=True)
class _Training:
    """A training after `epoch` passes, with the accuracy and the loss on the validation rows."""

    weights: Weights
    rng: np.random.Generator
    epoch: int = 0
    accuracy: float = math.nan
    loss: float = math.nan

    def save(self, path: str) -> None:
        np.savez(
            path,
            matrix=self.weights.matrix,
            intercepts=self.weights.intercepts,
            rng=json.dumps(self.rng.bit_generator.state),
            epoch=self.epoch,
            accuracy=self.accuracy,
            loss=self.loss,
        )


def _load(path: Path) -> _Training:
    """Read a checkpoint. Raises an error if it is damaged."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        rng = np.random.default_rng()
        rng.bit_generator.state = json.loads(str(arrays["rng"]))
        weights = Weights(arrays["matrix"], arrays["intercepts"])
        return _Training(weights, rng, int(arrays["epoch"]), float(arrays["accuracy"]), float(arrays["loss"]))


def train_epoch(weights: Weights, rows: Rows, hyper: SoftmaxParameters, rng: np.random.Generator) -> Weights:
    """Return the weights after one pass of mini-batch SGD over `rows` in an order drawn from
    `rng`."""
    matrix = weights.matrix.copy()
    intercepts = weights.intercepts.copy()
    rate = np.float32(hyper.learning_rate)
    count = len(rows.labels)
    for batch in np.split(rng.permutation(count), range(hyper.batch_size, count, hyper.batch_size)):
        inputs = rows.inputs(batch)
        if hyper.dropout:
            is_kept = rng.random(inputs.shape, dtype=np.float32) >= hyper.dropout
            inputs *= is_kept * np.float32(1 / (1 - hyper.dropout))
        _, matrix_gradient, intercept_gradient = loss_and_gradient(
            Weights(matrix, intercepts), inputs, rows.labels[batch], hyper.l2
        )
        matrix -= rate * matrix_gradient
        intercepts -= rate * intercept_gradient
    return Weights(matrix, intercepts)


_Array = NDArray[Any]  # float32 or float64, as in the training


def loss_and_gradient(
    weights: Weights, inputs: _Array, labels: NDArray[np.intp], l2: float
) -> tuple[float, _Array, _Array]:
    """Return the penalized mean loss over `inputs` (n, d), and its gradients (d, k) and (k,)."""
    count = len(labels)
    log_probabilities = _log_softmax(inputs @ weights.matrix + weights.intercepts)
    loss = -float(log_probabilities[np.arange(count), labels].mean())
    residuals = np.exp(log_probabilities)  # softmax − one-hot, which is ∂(−log softmax_y)/∂scores
    residuals[np.arange(count), labels] -= 1
    residuals /= count
    penalty = 0.5 * l2 * float(np.vdot(weights.matrix, weights.matrix))
    return loss + penalty, inputs.T @ residuals + weights.matrix * l2, residuals.sum(axis=0)


def measure(weights: Weights, rows: Rows) -> tuple[float, float]:
    """Return the accuracy in [0, 1] and the mean loss over all rows, without penalty or dropout."""
    right = 0
    loss = 0.0
    for start in range(0, len(rows.labels), BLOCK):
        block = slice(start, start + BLOCK)
        log_probabilities = _log_softmax(rows.inputs(block) @ weights.matrix + weights.intercepts)
        labels = rows.labels[block]
        right += int((log_probabilities.argmax(axis=1) == labels).sum())
        loss -= float(log_probabilities[np.arange(len(labels)), labels].sum(dtype=np.float64))
    return right / len(rows.labels), loss / len(rows.labels)


def _log_softmax(scores: _Array) -> _Array:
    shifted: _Array = scores - scores.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
