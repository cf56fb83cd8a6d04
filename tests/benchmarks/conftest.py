"""Data sets of a few rows in the formats of the real files, so that experiments run in seconds."""

import csv
from pathlib import Path

import numpy as np
import pytest

from bbkb.objectives.reference import DataSource
from benchmarks.curves.problems import CurveProblem, load_taskset

ARMS = 24
STEPS = 27
COLUMNS = ("sex", "length", "diameter", "height", "whole", "shucked", "viscera", "shell", "rings")


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    """Make a data folder with 24 arms of Abalone and 60 learning curves of each TaskSet task."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ARMS, 8))
    rows = np.column_stack((features, features @ rng.normal(size=8))).tolist()
    (folder / "abalone").mkdir()
    with (folder / "abalone" / "abalone.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    at = rng.random((60, 8))
    end = np.sum((at[:, :2] - 0.4) ** 2, axis=1)
    losses = (end[:, None] + 1.0 / np.arange(1, STEPS + 1)).astype(np.float32)
    arrays = {f"valid_loss_{name}": losses.copy() for name in "abcdef"}
    arrays["valid_loss_b"][7, 5:] = np.nan
    (folder / "taskset").mkdir()
    np.savez(folder / "taskset" / "taskset.npz", hp=10.0 ** (-3 * at), **arrays)
    return DataSource(Path(folder))


@pytest.fixture
def problem(source: DataSource) -> CurveProblem:
    return load_taskset(0, source)
