"""Tests of benchmarks/tabulate_cnn.py, with a formula instead of the network."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tabulate_cnn import Row, grid, read, tabulate, write
from objectives.objective import Candidates, Evaluation, Parameters, Report
from objectives.tabular import table_objective
from objectives.training.cnn import ConvolutionalNetwork


@dataclass(frozen=True)
class Formula:
    """Diverges at the largest learning rate; else a number that tells all settings and seeds
    apart."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        if parameters["learning_rate"] == 0.1:
            return Evaluation(math.nan)
        return Evaluation(
            parameters["hidden"] / parameters["batch_size"] - math.log10(parameters["learning_rate"]) + seed
        )


@pytest.fixture
def silent() -> Report:
    return lambda value, step=None, **_: None


@pytest.fixture(scope="module")
def candidates() -> Candidates:
    return grid(ConvolutionalNetwork())


@pytest.fixture(scope="module")
def rows(candidates: Candidates) -> list[Row]:
    return list(tabulate(Formula(), candidates, seed=7))


def test_the_grid_is_part_of_the_papers_space(candidates: Candidates) -> None:
    assert len(candidates) == 4 * 4 * 4 * 3 * 6
    for name, parameter in ConvolutionalNetwork().default_space().items():
        levels = getattr(parameter, "ordered", range(10, 41))
        assert set(candidates.columns[name].tolist()) <= set(levels)


def test_every_setting_has_its_value_with_a_seed_of_its_own(candidates: Candidates, rows: list[Row]) -> None:
    for arm in (0, 1, len(rows) - 2):
        expected = Formula().evaluate(candidates.parameters(arm), 7 + arm, silent).value
        assert rows[arm]["accuracy"] == (0.0 if math.isnan(expected) else expected)
    assert {row["accuracy"] for row in rows if row["log10_learning_rate"] == -1} == {0.0}


def test_the_tables_read_back_as_objectives(tmp_path: Path, rows: list[Row], silent: Report) -> None:
    """Both give the values of the rows, and no two settings look alike; only the second knows the
    seconds."""
    write(iter(rows), tmp_path / "new")
    plain = table_objective(tmp_path / "new" / "mnist_cnn.csv", "accuracy")
    timed = table_objective(tmp_path / "new" / "mnist_cnn_timed.csv", "accuracy", seconds="seconds")
    np.testing.assert_array_equal(plain.features, timed.features)
    assert plain.features.shape == (len(rows), 5)
    assert len(np.unique(plain.features, axis=0)) == len(rows)
    for arm in (0, 500, len(rows) - 1):
        evaluation = timed.evaluate({"row": arm}, 0, silent)
        assert evaluation.value == plain.evaluate({"row": arm}, 0, silent).value == rows[arm]["accuracy"]
        assert evaluation.metrics["seconds"] == rows[arm]["seconds"]


def test_powers_stand_by_their_exponent(tmp_path: Path, rows: list[Row]) -> None:
    write(iter(rows), tmp_path)
    with (tmp_path / "mnist_cnn.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {row["log2_batch_size"] for row in lines} == {"3", "5", "7", "9"}
    assert {row["log10_learning_rate"] for row in lines} == {"-6", "-5", "-4", "-3", "-2", "-1"}


def test_a_table_that_was_interrupted_continues_after_its_last_row(
    tmp_path: Path, candidates: Candidates, rows: list[Row]
) -> None:
    write(iter(rows[:5]), tmp_path)
    continued = write(tabulate(Formula(), candidates, seed=7, first=len(read(tmp_path))), tmp_path)
    assert [row["accuracy"] for row in continued] == [row["accuracy"] for row in rows]
