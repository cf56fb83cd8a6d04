"""`bbkb.objectives.tabular`: a user's table as typed columns, and as an objective."""

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bbkb.objectives import tabular
from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.tabular import Table, encode, group, read_cells, read_columns, table_candidates, table_objective
from bbkb.orchestrator.bandit.arrays import Floats

TEXT = "depth,rate,optimizer\n2,1e-3,adam\n4,0.1,sgd\n\n8,1,sgd\n"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_columns_of_a_file_get_their_types(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "t.csv":
        path.write_text("\ufeff" + TEXT, encoding="utf-8")
    elif name == "t.csv.gz":
        path.write_bytes(gzip.compress(TEXT.encode()))
    else:
        write_parquet(path, depth=[2, 4, 8], rate=[0.001, 0.1, 1.0], optimizer=["adam", "sgd", "sgd"])
    columns = read_columns(path)
    assert {name: column.tolist() for name, column in columns.items()} == {
        "depth": [2, 4, 8],
        "rate": [0.001, 0.1, 1.0],
        "optimizer": ["adam", "sgd", "sgd"],
    }
    assert columns["depth"].dtype == np.int64


def write_parquet(path: Path, **columns: list[Any]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)


def test_empty_cell_of_a_parquet_file_has_its_row(tmp_path: Path) -> None:
    write_parquet(tmp_path / "hole.parquet", a=[1.0, None])
    with pytest.raises(ObjectiveError, match=r"hole.parquet:2: column 'a' has an empty cell"):
        read_columns(tmp_path / "hole.parquet")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_table_that_would_fill_the_memory_is_rejected(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabular, "MOST_ROWS", 2)
    path = tmp_path / name
    if name.endswith("parquet"):
        write_parquet(path, x=[1, 2, 3])
    else:
        with (gzip.open if name.endswith("gz") else open)(path, "wt") as file:
            file.write("x\n1\n2\n3\n")
    with pytest.raises(ObjectiveError, match="must have at most 2 rows, and has more"):
        read_columns(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ObjectiveError, match='pip install "pyarrow>=17", or give a CSV file'):
        read_columns(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a;b;acc\n1;x;0,5\n", r"t\.csv:1: columns must be separated by commas, got ';'; convert the table"),
        ("a\tb\n1\t2\n", r"t\.csv:1: columns must be separated by commas, got '\\t'"),
        (",a,acc\n0,1,.5\n", r"every column must have a name, column 1 has none; .* index=False"),
        ("a,b,a\n0,1,.5\n", r"every column must have a different name, got 'a' 2 times"),
        (b"a,b\n1,caf\xe9\n", r"a table must be UTF-8 text, got byte 0xe9; save it as UTF-8"),
        ("a,b\n1,2\n3\n", "t.csv:3: a row must have 2 cells like the header, got 1"),
        ("a,b\n1,2\n\n3,\n", "t.csv:4: column 'b' has an empty cell"),
        ("a\n1\n0.1O\n", "t.csv:3: column 'a' must be all numbers or all text; it begins with '1', got '0.1O'"),
        ("a\nauto\n16\n", "t.csv:3: column 'a' must be all numbers or all text; it begins with 'auto', got '16'"),
        ("a\n1\nnan\n", "t.csv:3: column 'a' must hold finite numbers, got 'nan'"),
        ("a\n1e999\n", "t.csv:2: column 'a' must hold finite numbers, got '1e999'"),
        ('a,b\n"x\ny",1\nz,oops\n', "t.csv:4: column 'b' must be all numbers"),
        ("a,b\n", "at least one row"),
        ("", "at least one row"),
        ('a\n"1\n', "cannot be read as a CSV table"),
    ],
)
def test_mistake_is_reported_with_file_line_and_column(tmp_path: Path, content: str | bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ObjectiveError, match=message):
        read_columns(tmp_path / "t.csv")


@pytest.mark.parametrize(("name", "message"), [("t.xlsx", "must end in .csv"), ("none.csv", "none.csv cannot be read")])
def test_invalid_table_file_is_rejected(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        read_columns(tmp_path / name)


@example(np.array([0.0, 5e-324]))  # the narrowest and the widest possible columns
@example(np.array([-1.7e308, 0.0, 1.7e308]))
@given(arrays.arrays(np.float64, st.integers(2, 20), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_scaled_to_the_unit_interval_in_order(column: Floats) -> None:
    if (column == column[0]).all():
        with pytest.raises(ObjectiveError, match="must have a feature column that varies, got x"):
            encode({"x": column})
        return
    feature = encode({"x": column})[:, 0]
    assert feature.min() == 0
    assert feature.max() == 1
    assert (np.diff(feature[np.argsort(column)]) >= 0).all()


def test_text_is_one_hot_at_distance_one_and_constants_are_left_out() -> None:
    features = encode({"c": np.array(["a", "b", "a"]), "k": np.array([3, 3, 3]), "t": np.array(["z", "z", "z"])})
    assert features.shape == (3, 2)
    assert np.linalg.norm(features[0] - features[1]) == pytest.approx(1)
    assert (features[0] == features[2]).all()


def test_column_of_names_is_rejected_before_it_fills_the_memory() -> None:
    with pytest.raises(ObjectiveError, match="text column 'id' must have at most 64 different values, got 65"):
        encode({"id": np.array([f"run-{i}" for i in range(65)])})


def test_unused_columns_may_contain_anything(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,,x\n2,3,4\n")
    header: list[str] = []

    def choose_columns(names: Sequence[str]) -> list[str]:
        header.extend(names)
        return ["a"]

    assert read_cells(tmp_path / "t.csv", choose_columns) == {"a": ([2, 3], ["1", "2"])}
    assert header == ["a", "b", "c"]


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


def test_users_table_is_candidates_and_with_a_target_an_objective(tmp_path: Path, silent: Report) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("rate,optimizer\n0.1,adam\n0.2,sgd\n0.4,adam\n")
    candidates = table_candidates(path)
    np.testing.assert_allclose(candidates.features[:, 0], [0, 1 / 3, 1])
    assert candidates.parameters(2) == {"rate": 0.4, "optimizer": "adam"}
    assert candidates.remark == ""
    path.write_text("rate,optimizer,accuracy\n0.1,adam,0.9\n0.2,sgd,0.8\n")
    table = table_objective(path, target="accuracy")
    assert table.features.shape == (2, 3)
    assert table.candidates().parameters(1) == {"row": 1, "rate": 0.2, "optimizer": "sgd"}
    assert table.candidates().remark == ""
    evaluation = table.evaluate({"row": 0}, 0, silent)
    assert (evaluation.value, dict(evaluation.metrics)) == (0.9, {"noise_free": 0.9})


def test_users_table_that_cannot_be_read_is_reported_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"^candidates\.table: .*cannot be read as a CSV table: No such file"):
        table_candidates(tmp_path / "gone.csv")


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
