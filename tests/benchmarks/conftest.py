"""Data sets of a few rows in the formats of the real files, so that a complete experiment runs in a
short time."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

ARMS = 24
NAMES = ("sex", "length", "diameter", "height", "whole", "shucked", "viscera", "shell", "rings")


def _rows() -> list[list[str]]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ARMS, 8))
    target = features @ rng.normal(size=8)
    return [[f"{value:.6f}" for value in (*row, reward)] for row, reward in zip(features, target, strict=True)]


def _cells(count: int) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """The first cells with six vertices: a path and, bit by bit, further edges; operations counted
    in binary."""
    adjacency = np.zeros((count, 7, 7), np.uint8)
    operations = np.full((count, 7), -3, np.int8)
    operations[:, 0], operations[:, 5] = -1, -2
    skips = [(i, j) for i in range(6) for j in range(i + 2, 6)]
    for cell in range(count):
        adjacency[cell, range(5), range(1, 6)] = 1
        for bit, (i, j) in enumerate(skips[:3]):
            adjacency[cell, i, j] = cell >> bit & 1
        operations[cell, 1:5] = [2 * (cell >> (3 + bit) & 1) for bit in range(4)]
    return adjacency, operations


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests of this folder, which test nothing that is shipped, to `make test-all`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("thorough")


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 24 arms of Abalone and Cadata, and 40 cells of NAS-Bench-101, 20 of them
    recorded."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("abalone", "cadata", "nasbench101"):
        (folder / name).mkdir()
    with (folder / "abalone" / "abalone.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *_rows()])
    with gzip.open(folder / "cadata" / "cal_housing.csv.gz", "wt", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES, *_rows()])
    adjacency, operations = _cells(40)
    vertices = np.full(40, 6, np.uint8)
    space = folder / "nasbench101" / "space_423624.npz"
    np.savez(space, adjacency=adjacency, ops=operations, n_vertices=vertices)
    rng = np.random.default_rng(1)
    np.savez(
        folder / "nasbench101" / "nasbench101_30001.npz",
        adjacency=adjacency[:20],
        ops=operations[:20],
        n_vertices=vertices[:20],
        val_acc_108=rng.uniform(0.8, 0.95, 20).astype(np.float32),
        train_time_108=rng.uniform(500, 4000, 20).astype(np.float32),
    )
    return folder
