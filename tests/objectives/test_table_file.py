"""`bbkb.objectives.table_file`: A user's table, CSV or Parquet, as typed columns; a mistake is reported
with file, line and column.
"""

import gzip
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from bbkb.objectives import table_file
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.table_file import encode, read_cells, read_columns
from bbkb.orchestrator.bandit.arrays import Floats

TEXT = "depth,rate,optimizer\n2,1e-3,adam\n4,0.1,sgd\n\n8,1,sgd\n"


def check(columns: Mapping[str, NDArray[np.generic]]) -> None:
    assert list(columns) == ["depth", "rate", "optimizer"]
    assert columns["depth"].tolist() == [2, 4, 8]
    assert columns["depth"].dtype == np.int64
    assert columns["rate"].tolist() == [0.001, 0.1, 1.0]
    assert columns["optimizer"].tolist() == ["adam", "sgd", "sgd"]


def test_csv_columns_get_their_types(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeff" + TEXT, encoding="utf-8")
    check(read_columns(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a;b;acc\n1;x;0,5\n", r"t\.csv:1: columns must be separated by commas, got ';'; convert the table"),
        (b"a\tb\n1\t2\n", r"t\.csv:1: columns must be separated by commas, got '\\t'"),
        (b",a,acc\n0,1,.5\n", r"every column must have a name, column 1 has none; .* index=False"),
        (b"a,b,a\n0,1,.5\n", r"every column must have a different name, got 'a' 2 times"),
        (b"a,b\n1,caf\xe9\n", r"a table must be UTF-8 text, got byte 0xe9; save it as UTF-8"),
    ],
)
def test_table_of_another_program_is_rejected_with_the_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ObjectiveError, match=message):
        read_columns(tmp_path / "t.csv")


def test_compressed_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    check(read_columns(path))


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"depth": [2, 4, 8], "rate": [0.001, 0.1, 1.0], "optimizer": ["adam", "sgd", "sgd"]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    check(read_columns(tmp_path / "t.parquet"))
    parquet.write_table(pyarrow.table({"a": [1.0, None]}), tmp_path / "hole.parquet")
    with pytest.raises(ObjectiveError, match=r"hole.parquet:2: column 'a' has an empty cell"):
        read_columns(tmp_path / "hole.parquet")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_table_that_would_fill_the_memory_is_rejected(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "MOST_ROWS", 2)
    path = tmp_path / name
    if name.endswith("parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), path)
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
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "t.csv:3: a row must have 2 cells like the header, got 1"),
        ("a,b\n1,2\n\n3,\n", "t.csv:4: column 'b' has an empty cell"),
        ("a\n1\n0.1O\n", "t.csv:3: column 'a' must be all numbers or all text; it begins with '1', got '0.1O'"),
        ("a\nauto\n16\n", "t.csv:3: column 'a' must be all numbers or all text; it begins with 'auto', got '16'"),
        ("a\n1\nnan\n", "t.csv:3: column 'a' must hold finite numbers, got 'nan'"),
        ("a\n1e999\n", "t.csv:2: column 'a' must hold finite numbers, got '1e999'"),
        ('a,b\n"x\ny",1\nz,oops\n', "t.csv:4: column 'b' must be all numbers"),
        ("a,a\n1,2\n", "every column must have a different name, got 'a' 2 times"),
        ("a,\n1,2\n", "every column must have a name, column 2 has none"),
        ("a,b\n", "at least one row"),
        ("", "at least one row"),
        ('a\n"1\n', "cannot be read as a CSV table"),
    ],
)
def test_mistake_is_reported_with_file_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ObjectiveError, match=message):
        read_columns(tmp_path / "t.csv")


@pytest.mark.parametrize(("name", "message"), [("t.xlsx", "must end in .csv"), ("none.csv", "none.csv cannot be read")])
def test_invalid_table_file_is_rejected(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        read_columns(tmp_path / name)


@settings(max_examples=50, deadline=None)
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
