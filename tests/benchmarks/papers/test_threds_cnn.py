"""`benchmarks.papers.threds_cnn`: Salgia et al. 2021, appendix D.3, figure 7: five hyper-parameters
of a convolutional network on MNIST.
"""

import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers.campaigns import campaign
from benchmarks.papers.experiment import Request
from benchmarks.papers.findings import Interval
from benchmarks.papers.measured import Measured
from benchmarks.papers.salgia_2021 import LABELS, METHODS
from benchmarks.papers.threds_cnn import AT, CNN_TWIN, OPTIMUM, TWIN_TABLE, set_optimum, training_comparison
from objectives.objective import ObjectiveError


@pytest.fixture
def twin_folder(tmp_path: Path) -> Path:
    """A folder with a table of 64 settings, the best of which has an accuracy of 0.9."""
    folder = tmp_path / "twin"
    folder.mkdir()
    rows = [(*levels, round(0.9 - 0.1 * sum(levels), 3)) for levels in itertools.product(range(4), range(4), range(4))]
    with (folder / TWIN_TABLE).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("first_kernel", "second_kernel", "hidden", "accuracy"), *rows])
    return folder


def request_(folder: Path, data: Path | None, methods: tuple[str, ...] = METHODS) -> Request:
    return Request(seeds=1, evaluations=AT[0], methods=methods, out=folder, data=data)


def test_the_twin_is_measured_by_its_best_setting(tmp_path: Path, twin_folder: Path) -> None:
    methods = ("gp_threds", "probability_of_improvement")
    results = CNN_TWIN.run(request_(tmp_path / "out", twin_folder, methods))
    table = results.tables[0]
    assert [row[0] for row in table.rows] == [LABELS[name] for name in methods]
    at_50, at_200, simple = (
        [row[table.columns.index(name)] for row in table.rows]
        for name in ("average regret at 50", "average regret at 200", "simple regret")
    )
    ends = [curve.mean[-1] for curve in results.figures[0].panels[0].curves]
    assert [cell.mean for cell in at_50 if isinstance(cell, Interval)] == pytest.approx(ends)
    assert at_200 == ["–"] * len(methods)  # no run is that long
    assert min(cell.mean for cell in simple if isinstance(cell, Interval)) == pytest.approx(0.0)


def test_without_the_twins_table_it_is_said_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"python -m benchmarks\.tabulate_cnn FOLDER.*--data"):
        CNN_TWIN.run(request_(tmp_path, data=tmp_path))


def test_the_settings_are_those_of_appendix_d(tmp_path: Path) -> None:
    compared = training_comparison(3, request_(tmp_path, None))
    files = {method.name: campaign(compared, method, 0, request_(tmp_path, None)) for method in compared.methods}
    assert all(settings.resolved()["objective"]["options"]["epochs"] == 3 for settings in files.values())
    assert all(settings.candidates.size is None for settings in files.values())
    strategies: dict[str, Any] = {name: settings.strategy for name, settings in files.items()}
    assert {(strategies[name].norm_bound, strategies[name].noise_scale) for name in METHODS[:2]} == {(0.5, 0.01)}
    assert [strategies[name].delta for name in METHODS[:2]] == [0.02, 0.025]
    threds = strategies["gp_threds"]
    assert (threds.low, threds.high, threds.max_local_pulls, threds.grid_points) == (0.3, 1.4, 8, 1536)
    assert (threds.first, threds.pruning_constant, threds.threshold_constant) == ("random", 0.2, 0.11)
    assert (strategies["igp_ucb"].initial_points, strategies["adaptive_discretization"].constants) == (
        23808,
        "chaining",
    )
    assert strategies["default"].model is not None


def test_the_regret_of_real_trainings_is_against_the_papers_optimum() -> None:
    nothing = np.zeros(2, np.intp)
    unknown = Measured(nothing, np.array([0.9, 0.8]), np.nan, np.ones(2), np.ones(2), np.arange(2), nothing, 0)
    (run,) = set_optimum({"gp_threds": (unknown,)})["gp_threds"]
    np.testing.assert_allclose(run.average_regret, [OPTIMUM - 0.9, OPTIMUM - 0.85])
