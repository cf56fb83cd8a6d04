"""`benchmarks.papers.regression`: Calandriello et al. 2020, section 5, figures 1 and 2: regret
ratio and time on Abalone and Cadata.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers.calandriello_2020 import LABELS, method
from benchmarks.papers.campaigns import Comparison, campaign, run_all
from benchmarks.papers.experiment import Request
from benchmarks.papers.experiments import find_experiment
from benchmarks.papers.findings import Findings, Interval, Table
from benchmarks.papers.regression import METHODS, TIMED, comparison, ratios

HORIZON = 12


def _run(name: str, out: Path, data: Path, methods: tuple[str, ...] = METHODS, seeds: int = 2) -> Findings:
    return find_experiment(name).run(Request(seeds=seeds, evaluations=HORIZON, methods=methods, out=out, data=data))


def _column(table: Table, name: str) -> list[Interval]:
    place = table.columns.index(name)
    return [cell for row in table.rows if isinstance(cell := row[place], Interval)]


@pytest.mark.parametrize("name", ["abalone", "cadata"])
def test_every_method_has_its_row_and_its_curves(name: str, tmp_path: Path, data_folder: Path) -> None:
    rows = _run(name, tmp_path, data_folder, seeds=1)
    assert [row[0] for row in rows.tables[0].rows] == [LABELS[method_name] for method_name in METHODS]
    shown = [LABELS[method_name] for method_name in METHODS if method_name != "uniform"]
    assert [[curve.label for curve in panel.curves] for panel in rows.figures[0].panels] == [shown, shown]


def test_both_data_sets_stand_beside_each_other_in_the_papers_two_figures(tmp_path: Path, data_folder: Path) -> None:
    rows = _run("regression", tmp_path, data_folder, ("bbkb",), seeds=1)
    assert [table.name for table in rows.tables] == ["abalone", "cadata"]
    titles = [[panel.title for panel in figure.panels] for figure in rows.figures]
    assert titles == [[f"{shown} on {name}" for name in ("abalone", "cadata")] for shown in ("Regret ratio", "Time")]


def test_the_table_says_where_the_curves_end_and_uniform_is_the_measure(tmp_path: Path, data_folder: Path) -> None:
    rows = _run("cadata", tmp_path, data_folder, ("bbkb", "gp_ucb"))
    intervals = _column(rows.tables[0], "regret ratio")
    ends = [curve.mean[-1] for curve in rows.figures[0].panels[0].curves]
    assert [interval.mean for interval in intervals] == pytest.approx([*ends, 1.0])
    assert intervals[-1].half_width == 0.0
    seconds = [interval.mean for interval in _column(rows.tables[0], f"s for {min(TIMED, HORIZON)} pulls")]
    assert [curve.mean[-1] for curve in rows.figures[0].panels[1].curves] == pytest.approx(seconds[:-1])


def test_the_settings_are_those_of_appendix_d(tmp_path: Path, data_folder: Path) -> None:
    request = Request(seeds=1, evaluations=HORIZON, methods=METHODS, out=tmp_path, data=data_folder)
    compared = comparison("abalone", request)
    strategies: dict[str, Any] = {
        method.name: campaign(compared, method, 0, request).strategy for method in compared.methods
    }
    expected = {"bbkb": 17.5, "bbkb_local": 17.5, "bkb": 17.5, "gp_ucb": 5.0, "gp_bucb": 12.5, "async_ts": 10.0}
    assert {name: strategies[name].kernel.lengthscale for name in expected} == expected
    assert {strategies[name].delta for name in expected} == {1 / HORIZON}
    assert [strategies[name].termination for name in ("bbkb", "bbkb_local")] == ["global", "global_then_local"]


def test_a_method_that_stops_early_is_compared_with_the_beginning_of_uniform(tmp_path: Path, data_folder: Path) -> None:
    methods = [method("gp_ucb", 5.0, HORIZON, stop=4), method("uniform", 5.0, HORIZON)]
    request = Request(seeds=1, evaluations=HORIZON, methods=(), out=tmp_path, data=data_folder)
    results = run_all(Comparison("short", {"objective": {"name": "abalone"}}, methods), request)
    expected = results["gp_ucb"][0].regret / results["uniform"][0].regret[:4]
    np.testing.assert_allclose(ratios(results, "gp_ucb"), [expected])


def test_bandwidths_are_swept_beside_one_uniform_policy(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.papers.bandwidth.BANDWIDTHS", (5.0, 17.5))
    rows = _run("bandwidth", tmp_path, data_folder, ("async_ts",), seeds=1)
    assert [[panel.title for panel in figure.panels] for figure in rows.figures] == [["b = 5", "b = 17.5"]] * 2
    assert [len(row) for table in rows.tables for row in table.rows] == [3, 3]
    assert len(list(tmp_path.glob("*/uniform-*"))) == 2  # one a data set
