"""Splits handwritten digits into rows for training, rows for validation and remaining rows."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectives.objective import ObjectiveError
from objectives.problems.datasets import LabeledImages
from objectives.problems.training.softmax import Rows

SPLIT_SEED = 0  # the rows are part of the problem, so they never change


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
    return (
        np.sort(np.concatenate([class_rows[:train] for class_rows in rows])),
        np.sort(np.concatenate([class_rows[train : train + validation] for class_rows in rows])),
        np.sort(np.concatenate([class_rows[train + validation :] for class_rows in rows])),
    )


def rows_of(images: LabeledImages, positions: NDArray[np.intp]) -> Rows:
    """Return the images at `positions`."""
    return Rows(images.pixels[positions], images.labels[positions], 1 / images.brightest)


def mnist_test_rows(path: Path) -> Rows:
    """Return MNIST's 10000 test images in the original order. Raises ObjectiveError if they are not
    available."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            images = arrays["x_test"]
            labels = arrays["y_test"]
        return Rows(images.reshape(len(images), -1).astype(np.uint8), labels.astype(np.intp), 1 / 255)
    except Exception as error:  # a damaged file makes numpy raise many types
        raise ObjectiveError(f"{path} must hold x_test and y_test: {error!r}; replace it") from error
