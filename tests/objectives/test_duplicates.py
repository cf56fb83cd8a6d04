"""Equal rows of a user's table are merged into one candidate, with a message to the user; or each
stays a separate candidate."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.duplicates import group
from objectives.objective import Report
from objectives.tabular import table_candidates, table_objective

TABLE = "rate,optimizer,accuracy\n0.2,sgd,0.8\n0.1,adam,0.9\n0.2,sgd,0.6\n0.1,sgd,0.5\n0.2,sgd,0.7\n"


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=30))
def test_row_belongs_to_the_first_equal_row(rows: list[tuple[int, ...]]) -> None:
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
def test_table_without_duplicates_is_unchanged(tmp_path: Path, target: str | None) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("rate,accuracy\n0.3,0.8\n0.1,0.9\n0.2,0.8\n")
    merged = table_objective(path, target).candidates() if target else table_candidates(path)
    unmerged = (
        table_objective(path, target, duplicates="keep").candidates() if target else table_candidates(path, "keep")
    )
    assert merged.remark == ""
    assert (merged.features == unmerged.features).all()
    assert {name: list(column) for name, column in merged.columns.items()} == {
        name: list(column) for name, column in unmerged.columns.items()
    }
