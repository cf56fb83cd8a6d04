"""A small data folder in the format of TaskSet."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.recorded import load_taskset
from objectives.datasets import DataSource

STEPS = 27


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    at = rng.random((60, 8))
    end = np.sum((at[:, :2] - 0.4) ** 2, axis=1)
    steps = np.arange(1, STEPS + 1)
    arrays = {f"valid_loss_{name}": (end[:, None] + 1.0 / steps).astype(np.float32) for name in "abcdef"}
    arrays["valid_loss_b"][7, 5:] = np.nan
    (folder / "taskset").mkdir()
    np.savez(folder / "taskset" / "taskset.npz", hp=10.0 ** (-3 * at), **arrays)
    return DataSource(Path(folder))


@pytest.fixture
def problem(source: DataSource) -> CurveProblem:
    return load_taskset(0, source)
