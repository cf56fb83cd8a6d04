"""The images of handwritten digits, and their split into rows for training and for validation."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.objectives.objective import ObjectiveError, Parameters
from bbkb.objectives.problems.datasets import LabeledImages, load_digits, load_mnist, read_images
from bbkb.objectives.reference import DataSource

Floats = NDArray[np.float32]
Hyper = TypeVar("Hyper")

SPLIT_SEED = 0  # the rows are part of the problem, so they never change


EpochsOption = Annotated[int, Ge(1), Doc("Passes over the training rows, ≥ 1.")]
ThreadsOption = Annotated[int, Ge(1), Doc("Threads that an evaluation may use, ≥ 1.")]
ImageSet = Annotated[
    Literal["auto", "mnist", "digits"],
    Doc("`auto` is MNIST when the data folder has it, the digits of scikit-learn otherwise."),
]


@dataclass(frozen=True, slots=True)
class Rows:
    """Images as rows."""

    pixels: NDArray[np.uint8]  # (n, d) uint8, values to multiply by `scale`
    labels: NDArray[np.intp]  # (n,), the rows' classes
    scale: float  # the value of one gray level of a pixel

    def inputs(self, rows: slice | NDArray[np.intp]) -> Floats:
        """Return the rows at the positions `rows` as float32, with values scaled to [0, 1]."""
        return self.pixels[rows] * np.float32(self.scale)


class TrainsInEpochs:
    """The steps of an objective that trains for `options.epochs`, and returns the accuracy that it
    reported last."""

    __slots__ = ()
    options: Any

    @property
    def last_step(self) -> int:
        """The last epoch."""
        return int(self.options.epochs)

    @property
    def remark_on_reports(self) -> str:
        """Empty, because the last reported accuracy is the returned one."""
        return ""


def load_images(source: DataSource, dataset: str) -> tuple[LabeledImages, bool, str]:
    """Return the images of an `ImageSet`, whether they are from MNIST, and a note for the user."""
    is_auto = dataset == "auto"
    if dataset == "mnist" or (is_auto and source.file("mnist/mnist.npz") is not None):
        return load_mnist(source), True, ""
    note = "; MNIST is used when `data.folder` or BBKB_DATA names a folder with mnist/mnist.npz"
    return load_digits(), False, note if is_auto else ""


def split_rows(
    images: LabeledImages, train_size: int, validation_size: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return training rows, validation rows and the remaining rows. The classes are balanced in the
    first two.

    Raises ObjectiveError if a class has too few rows, or no row remains.
    """
    rng = np.random.default_rng(SPLIT_SEED)
    classes = int(images.labels.max()) + 1
    train = train_size // classes
    validation = validation_size // classes
    rows = [rng.permutation(np.flatnonzero(images.labels == label)) for label in range(classes)]
    rarest = min(map(len, rows))
    if train + validation >= rarest:
        raise ObjectiveError(
            f"objective.options.train_size must leave rows of every class in {images.source}, where the rarest has "
            f"{rarest}; got {train_size}, which takes {train} and {validation} more to validate"
        )
    parts = zip(*(np.split(class_rows, [train, train + validation]) for class_rows in rows), strict=True)
    first, second, remaining = (np.sort(np.concatenate(part)) for part in parts)
    return first, second, remaining


def stratified_rows(
    labels: NDArray[np.intp], train_size: int | None, validation_fraction: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of scikit-learn's `train_test_split(stratify=labels)`, without its import.

    `labels` (n,) are the rows' classes; `train_size` is None for all rows that are not held out.
    Raises ValueError if a part would have fewer rows than classes, or both parts too many rows.
    """
    counts = np.bincount(labels)
    held_out = math.ceil(validation_fraction * len(labels))
    kept = len(labels) - held_out if train_size is None else train_size
    if not len(counts) <= min(kept, held_out) <= kept + held_out <= len(labels):
        raise ValueError(f"{kept} and {held_out} rows of {len(counts)} classes are not possible")
    rng = np.random.RandomState(SPLIT_SEED)
    to_train = _shares(counts, kept, rng)
    to_validate = _shares(counts - to_train, held_out, rng)
    parts: tuple[list[NDArray[np.intp]], list[NDArray[np.intp]]] = ([], [])
    for label, (first, second) in enumerate(zip(to_train, to_validate, strict=True)):
        rows = np.flatnonzero(labels == label)[rng.permutation(counts[label])]
        parts[0].append(rows[:first])
        parts[1].append(rows[first : first + second])
    return rng.permutation(np.concatenate(parts[0])), rng.permutation(np.concatenate(parts[1]))


def _shares(counts: NDArray[np.intp], total: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Divide `total` rows in proportion to `counts`. The largest remainders get the rows that
    rounding down leaves, ties in random order."""
    exact = counts / counts.sum() * total
    shares = np.floor(exact)
    remainders = exact - shares
    missing = int(total - shares.sum())
    for remainder in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        tied = np.flatnonzero(remainders == remainder)
        raised = rng.choice(tied, size=min(len(tied), missing), replace=False)
        shares[raised] += 1
        missing -= len(raised)
    whole: NDArray[np.intp] = shares.astype(np.intp)
    return whole


def rows_of(images: LabeledImages, positions: NDArray[np.intp]) -> Rows:
    """Return the images at `positions`."""
    return Rows(images.pixels[positions], images.labels[positions], 1 / images.brightest)


def mnist_test_rows(path: Path) -> Rows:
    """Return MNIST's 10000 test images in the original order. Raises ObjectiveError if they are not
    available."""
    try:
        return Rows(*read_images(path, "test"), 1 / 255)
    except Exception as error:  # a damaged file makes numpy raise many types
        raise ObjectiveError(f"{path} must hold x_test and y_test: {error!r}; replace it") from error


def options_of(hyper: Callable[..., Hyper], parameters: Parameters, title: str) -> Hyper:
    """Return the dataclass `hyper` with these parameters. Raises ValueError for an unknown one."""
    names = [field.name for field in fields(hyper)]  # type: ignore[arg-type]  # a dataclass
    for name in parameters:
        if name not in names:
            raise ValueError(f"parameters of {title} are {', '.join(names)}; got {name!r}")
    return hyper(**parameters)
