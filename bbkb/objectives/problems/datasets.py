"""The sources of data, in this order: a folder given by the user, data sets in scikit-learn, a
download if it is allowed.

The folder contains `mnist/mnist.npz` (x_train (n, 28, 28) and y_train (n,), uint8),
`abalone/abalone.csv` and `cadata/cal_housing.csv.gz` (with a header line and the target last).
Nothing is downloaded unless the user has allowed it. scikit-learn is imported only if it is used:
the import takes a second, and a worker that receives its data does not need it.
"""

import csv
import gzip
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.reference import FOLDER_VARIABLE, DataSource

T = TypeVar("T")

SEX_CODES = {"M": 1.0, "F": 2.0, "I": 3.0}  # Abalone's only text column: male, female, infant


@dataclass(frozen=True, slots=True)
class LabeledImages:
    """Images with their classes."""

    pixels: NDArray[np.uint8]  # (n, d) uint8, one row for each image, from 0 to `brightest`
    labels: NDArray[np.intp]  # (n,), the class of each image, from 0
    brightest: int  # the largest value of a pixel
    source: str  # a description of the data set


@dataclass(frozen=True, slots=True)
class Regression:
    """A regression data set."""

    names: tuple[str, ...]  # the names of the features
    features: NDArray[np.float64]  # (n, d)
    target: NDArray[np.float64]  # (n,), real numbers
    source: str  # a description of the data set


def load_mnist(source: DataSource) -> LabeledImages:
    """Return MNIST's 60000 training images in the original order. Raises ObjectiveError."""
    name = "mnist/mnist.npz"
    if path := source.file(name):
        pixels, labels = _read(path, partial(read_images, part="train"))
        return LabeledImages(pixels, labels, 255, f"MNIST's training images from {path}")
    bunch = _download(source, "MNIST", name, partial(_fetch_openml, "mnist_784"))
    pixels = np.asarray(bunch.data)[:60000]  # the test images come after
    labels = np.asarray(bunch.target)[:60000]
    return LabeledImages(pixels.astype(np.uint8), labels.astype(np.intp), 255, "MNIST's training images from OpenML")


def load_digits() -> LabeledImages:
    """Return the 1797 8×8 digits that scikit-learn bundles (UCI, optical recognition).

    The file is read without scikit-learn, whose import takes longer than the first evaluations.
    """
    package = find_spec("sklearn")
    assert package is not None, "bbkb depends on scikit-learn"
    file = Path(str(package.origin)).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return LabeledImages(table[:, :-1], table[:, -1].astype(np.intp), 16, "scikit-learn's bundled digits")


def load_abalone(source: DataSource) -> Regression:
    """Return UCI's Abalone: 4177 shells, d = 8 with sex coded 1 to 3; the target is rings."""
    name = "abalone/abalone.csv"
    if path := source.file(name):
        names, table = _read(path, _read_table)
        return Regression(names, table[:, :8], table[:, 8], f"Abalone from {path}")
    bunch = _download(source, "Abalone", name, partial(_fetch_openml, "abalone"))
    # OpenML has indices into these
    sexes = np.array([SEX_CODES[sex] for sex in bunch.categories["Sex"]])
    features = np.asarray(bunch.data, dtype=np.float64)
    features = np.column_stack([sexes[features[:, 0].astype(np.intp)], features[:, 1:]])
    target = np.asarray(bunch.target, dtype=np.float64)
    return Regression(tuple(map(str.lower, bunch.feature_names)), features, target, "Abalone from OpenML")


def load_cadata(source: DataSource) -> Regression:
    """Return California housing as published (Pace & Barry 1997): 20640 blocks, d = 8 raw counts;
    the target is in dollars."""
    name = "cadata/cal_housing.csv.gz"
    if path := source.file(name):
        names, table = _read(path, _read_table)
        return Regression(names, table[:, :8], table[:, 8], f"California housing from {path}")
    bunch = _download(source, "California housing", name, _fetch_housing)
    # scikit-learn's version divides three of the counts by the households, and the target by 100 000
    income, age, rooms, bedrooms, population, occupation, latitude, longitude = np.asarray(bunch.data).T
    households = np.rint(population / occupation)
    counts = [np.rint(rooms * households), np.rint(bedrooms * households), population, households]
    columns = "longitude latitude housing_median_age total_rooms total_bedrooms population households median_income"
    features = np.column_stack([longitude, latitude, age, *counts, income])
    target = np.rint(np.asarray(bunch.target) * 1e5)
    return Regression(tuple(columns.split()), features, target, "California housing from scikit-learn")


def _read(path: Path, reader: Callable[[Path], T]) -> T:
    try:
        return reader(path)
    except Exception as error:  # numpy, csv and gzip raise many types for a damaged file
        raise ObjectiveError(f"{path} is not a readable copy of this data set: {error!r}; replace it") from error


def check_archive(path: Path) -> None:
    """Raise ValueError if a file is not a NumPy archive; NumPy would treat it as pickled objects."""
    if not zipfile.is_zipfile(path):
        raise ValueError("the file is damaged, or it is not a NumPy archive (.npz)")


def read_images(path: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return the pixels (n, d) and the classes (n,) of a part of MNIST, `train` or `test`."""
    check_archive(path)
    with path.open("rb") as file, np.load(file) as arrays:  # numpy would not close a damaged file
        images = arrays[f"x_{part}"]
        labels = arrays[f"y_{part}"]
    return images.reshape(len(images), -1).astype(np.uint8, copy=False), labels.astype(np.intp)


def _read_table(path: Path) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the names of the eight features and the numbers (n, 9), with the target last."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    table = np.array([[SEX_CODES.get(cell, cell) for cell in row] for row in rows], dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != 9:
        raise ValueError(f"eight features and a target are expected, got {len(header)} columns and {len(rows)} rows")
    return tuple(header[:8]), table


def _download(source: DataSource, title: str, name: str, fetch: Callable[[], T]) -> T:
    """Return the result of `fetch` if the user has allowed it; otherwise raise ObjectiveError."""
    looked = f"{source.folder / name} does not exist" if source.folder else "no data folder is given"
    remedy = (
        f"name a folder that holds {name} by `data.folder` in the campaign file or the environment variable "
        f"{FOLDER_VARIABLE}"
    )
    if not source.may_download:
        raise ObjectiveError(f"{title} is needed: {looked}; {remedy}, or allow a download by `data.download: true`")
    try:
        return fetch()
    except Exception as error:  # network and scikit-learn raise many types
        raise ObjectiveError(f"{title} could not be downloaded: {error!r} ({looked}); {remedy}") from error


def _fetch_openml(name: str) -> Any:
    from sklearn.datasets import fetch_openml

    return fetch_openml(name, version=1, as_frame=False, parser="liac-arff")


def _fetch_housing() -> Any:
    from sklearn.datasets import fetch_california_housing

    return fetch_california_housing()
