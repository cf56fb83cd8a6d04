"""`benchmarks.papers.writing`: Findings on the terminal and on disk: tables (also as CSV), all
numbers as JSON, and figures if possible.
"""

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.papers.findings import Curve, Figure, Findings, Interval, Panel, Table
from benchmarks.papers.writing import write

TABLE = Table("numbers", "Some numbers", ("method", "ratio", "stop"), [("a", Interval(0.5, 0.1, 3), 7), ("b", 1.5, 9)])
CURVE = Curve.over_seeds("a", np.arange(5.0), np.random.default_rng(0).random((3, 5)))
LONE = Curve.over_seeds("b", np.arange(3.0), np.ones((1, 3)))
FIGURE = Figure("picture", "A picture", [Panel("left", "t", "ratio", [CURVE, LONE]), Panel("right", "t", "s", [CURVE])])
FINDINGS = Findings([TABLE], [FIGURE], ["a note"], {"extra": np.float64(2.0)})


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def _printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tables_and_notes_are_printed(tmp_path: Path, console: Console) -> None:
    write(FINDINGS, tmp_path, console)
    for text in ("Some numbers", "0.50 ± 0.10", "1.5", "a note", "picture.svg"):
        assert text in _printed(console)


def test_a_csv_file_has_two_columns_for_an_interval(tmp_path: Path, console: Console) -> None:
    write(FINDINGS, tmp_path, console)
    with (tmp_path / "numbers.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["method", "ratio", "ratio ±", "stop"], ["a", "0.5", "0.1", "7"], ["b", "1.5", "", "9"]]


def test_the_json_holds_tables_and_curves_and_no_nan(tmp_path: Path, console: Console) -> None:
    write(FINDINGS, tmp_path, console)
    document = json.loads((tmp_path / "findings.json").read_text(encoding="utf-8"))
    assert document["tables"][0]["rows"][0][1] == {"mean": 0.5, "half_width": 0.1, "seeds": 3}
    curves = document["figures"][0]["panels"][0]["curves"]
    assert curves[0]["mean"] == CURVE.mean.tolist()
    assert curves[1]["half_width"] == [None] * 3
    assert document["numbers"] == {"extra": 2.0}


def test_a_figure_is_drawn_as_png_and_svg_with_its_labels(tmp_path: Path, console: Console) -> None:
    write(FINDINGS, tmp_path, console)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    for text in ("A picture", "left", "right", "ratio"):
        assert text in svg


def test_without_matplotlib_the_numbers_are_there_and_the_remedy_is_said(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    write(FINDINGS, tmp_path, console)
    assert "picture is not drawn" in _printed(console)
    assert "pip install" in _printed(console)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["findings.json", "numbers.csv"]
