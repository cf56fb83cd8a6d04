"""`bbkb.objectives.tabular`: Objectives that are tables: an evaluation looks up the row of an arm."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.objectives.objective import Candidates, ObjectiveError, Report
from bbkb.objectives.tabular import Table, group, table_candidates, table_objective

FEATURES = np.array([[0.0], [0.5], [1.0]])
COLUMNS = {"depth": np.array([1, 2, 3])}


def test_candidate_has_its_row_and_its_readable_values(silent: Report) -> None:
    table = Table(FEATURES, COLUMNS, np.array([0.1, 0.3, 0.2]))
    candidates = table.candidates()
    assert candidates.parameters(1) == {"row": 1, "depth": 2}
    for arm, target in enumerate([0.1, 0.3, 0.2]):
        evaluation = table.evaluate(candidates.parameters(arm), 7, silent)
        assert evaluation.value == evaluation.metrics["noise_free"] == target
    assert (table.optimum(maximize=True), table.optimum(maximize=False)) == (0.3, 0.1)


def test_seed_selects_one_of_the_existing_repeats(silent: Report) -> None:
    table = Table(FEATURES, COLUMNS, np.array([[1.0, 2.0, np.nan], [5.0, np.inf, 7.0], [0.0, 0.0, 0.0]]))
    values = {table.evaluate({"row": 0}, seed, silent).value for seed in range(50)}
    assert values == {1.0, 2.0}
    assert table.evaluate({"row": 1}, 0, silent).metrics["noise_free"] == 6.0
    assert table.optimum(maximize=True) == 6.0


def test_noise_has_the_requested_deviation_and_seconds_are_reported(silent: Report) -> None:
    table = Table(FEATURES, COLUMNS, np.array([1.0, 2.0, 3.0]), noise_std=0.2, seconds=np.array([10.0, 20.0, 30.0]))
    evaluations = [table.evaluate({"row": 2}, seed, silent) for seed in range(2000)]
    values = np.array([evaluation.value for evaluation in evaluations])
    assert abs(values.mean() - 3) < 5 * 0.2 / np.sqrt(2000)
    assert abs(values.std() - 0.2) < 0.02
    assert {evaluation.metrics["seconds"] for evaluation in evaluations} == {30.0}
    assert {evaluation.metrics["noise_free"] for evaluation in evaluations} == {3.0}


@pytest.mark.parametrize("row", [-1, 3, 1.0, "1", None])
def test_missing_row_is_rejected(silent: Report, row: object) -> None:
    with pytest.raises(ValueError, match="parameter 'row' must be an integer from 0 to 2, got"):
        Table(FEATURES, COLUMNS, np.zeros(3)).evaluate({"row": row}, 0, silent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": np.zeros(4)}, "target must have 3 rows like its features, got 4"),
        ({"target": np.array([1.0, np.nan, 2.0])}, "must have a finite target, row 1 has none"),
        ({"seconds": np.zeros(2)}, r"seconds must be \(3,\), got shape \(2,\)"),
        ({"columns": {"row": np.zeros(3)}}, "must not be called 'row'"),
        ({"columns": {"depth": np.zeros(2)}}, "has 2 values for 3 arms"),
        ({"features": np.full((3, 1), np.nan)}, "features must be finite"),
    ],
)
def test_table_with_inconsistent_parts_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ObjectiveError, ValueError), match=message):
        Table(**{"features": FEATURES, "columns": COLUMNS, "target": np.zeros(3), **change})


def test_users_table_with_a_target_is_an_objective(tmp_path: Path, silent: Report) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("rate,optimizer,accuracy\n0.1,adam,0.9\n0.2,sgd,0.8\n")
    table = table_objective(path, target="accuracy")
    assert table.features.shape == (2, 3)
    assert table.candidates().parameters(1) == {"row": 1, "rate": 0.2, "optimizer": "sgd"}
    evaluation = table.evaluate({"row": 0}, 0, silent)
    assert (evaluation.value, dict(evaluation.metrics)) == (0.9, {"noise_free": 0.9})


def test_users_table_that_cannot_be_read_is_reported_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"^candidates\.table: .*cannot be read as a CSV table: No such file"):
        table_candidates(tmp_path / "gone.csv")


def test_users_table_without_a_target_is_candidates(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    path.write_text("rate,optimizer\n0.1,adam\n0.2,sgd\n0.4,adam\n")
    candidates = table_candidates(path)
    np.testing.assert_allclose(candidates.features[:, 0], [0, 1 / 3, 1])
    assert candidates.parameters(2) == {"rate": 0.4, "optimizer": "adam"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("acuracy", "candidates.target must be a column of .*got 'acuracy'; did you mean 'accuracy'"),
        ("optimizer", "candidates.target: column 'optimizer' of .* must be numbers, got text"),
    ],
)
def test_invalid_target_is_rejected(tmp_path: Path, target: str, message: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("optimizer,accuracy\nadam,0.9\nsgd,0.8\n")
    with pytest.raises(ObjectiveError, match=message):
        table_objective(path, target)


TABLE = "rate,optimizer,accuracy\n0.2,sgd,0.8\n0.1,adam,0.9\n0.2,sgd,0.6\n0.1,sgd,0.5\n0.2,sgd,0.7\n"


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=30))
def test_equal_rows_share_the_index_of_the_first(rows: list[tuple[int, ...]]) -> None:
    columns = {"number": np.array([row[0] for row in rows]), "text": np.array([row[1] for row in rows])}
    groups = group(columns)
    assert [rows[first] for first in groups.first] == list(dict.fromkeys(rows))
    assert [int(groups.first[candidate]) for candidate in groups.of] == [rows.index(row) for row in rows]
    values = groups.repeats(np.arange(len(rows), dtype=float))
    for index, first in enumerate(groups.first):
        expected = [number for number, row in enumerate(rows) if row == rows[first]]
        assert values[index][~np.isnan(values[index])].tolist() == expected


def test_merged_row_draws_one_of_its_values_and_names_the_merged_rows(tmp_path: Path, silent: Report) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(TABLE)
    table = table_objective(path, "accuracy")
    candidates = table.candidates()
    assert [candidates.parameters(arm)["optimizer"] for arm in range(len(candidates))] == ["sgd", "adam", "sgd"]
    evaluations = [table.evaluate({"row": 0}, seed, silent) for seed in range(50)]
    assert {evaluation.value for evaluation in evaluations} == {0.6, 0.7, 0.8}
    assert "2 rows of" in candidates.remark
    assert "row 3 repeats row 1" in candidates.remark
    assert "an evaluation draws one of the values" in candidates.remark


def test_rows_stay_separate_candidates_on_request(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(TABLE)
    unmerged = table_objective(path, "accuracy", duplicates="keep").candidates()
    assert (len(unmerged), unmerged.remark) == (5, "")
    path.write_text("rate,optimizer\n0.2,sgd\n0.1,adam\n0.2,sgd\n")
    assert (len(table_candidates(path)), len(table_candidates(path, "keep"))) == (2, 3)
    assert "row 3 repeats row 1" in table_candidates(path).remark


@pytest.mark.parametrize("target", ["", "accuracy"])
def test_table_without_duplicates_is_unchanged(tmp_path: Path, target: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("rate,accuracy\n0.3,0.8\n0.1,0.9\n0.2,0.8\n")

    def read(duplicates: Literal["merge", "keep"]) -> Candidates:
        if target:
            return table_objective(path, target, duplicates).candidates()
        return table_candidates(path, duplicates)

    merged, unmerged = read("merge"), read("keep")
    assert merged.remark == ""
    np.testing.assert_array_equal(merged.features, unmerged.features)
    assert all((merged.columns[name] == unmerged.columns[name]).all() for name in unmerged.columns)
