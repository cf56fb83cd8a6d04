"""`benchmarks.papers.nasbench101`: Calandriello et al. 2020, section 5, figures 3, 4 and 7: NAS-
Bench-101 with and without initial evaluations.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from benchmarks.papers.calandriello_2020 import LABELS
from benchmarks.papers.experiment import Request
from benchmarks.papers.nasbench101 import CELLS, METHODS, NASBENCH101, STARTED, initial_evaluations
from benchmarks.papers.nasbench101_cells import Cells, predict_unknown
from objectives.datasets import DataSource
from objectives.objective import ObjectiveError
from orchestrator.campaign.events import ExistingTaken
from orchestrator.store.runs import open_run

BESIDE = Path(__file__).parents[4] / "shared" / "data"
REAL = [
    Path(folder)
    for folder in (os.environ.get("BBKB_DATA"), BESIDE)
    if folder and (Path(folder) / "nasbench101").is_dir()
]


@pytest.mark.slow
def test_the_whole_experiment_runs_on_a_few_cells(tmp_path: Path, data_folder: Path) -> None:
    request = Request(seeds=1, evaluations=12, methods=METHODS, out=tmp_path, data=data_folder)
    results = NASBENCH101.run(request)
    rivals = [LABELS[name] for name in METHODS if name != "uniform"]
    for figure in results.figures:
        assert all([curve.label for curve in panel.curves] == rivals for panel in figure.panels)
    for cells in CELLS:
        assert len(list(tmp_path.glob(f"{cells}-initial/*"))) == len(STARTED)
        events = open_run(next(tmp_path.glob(f"{cells}-initial/bbkb-*"))).events()
        taken = next(event for event in events if isinstance(event, ExistingTaken))
        assert (len(taken.arms), taken.unmatched) == (
            round(len(Cells(cells).load(DataSource(data_folder)).features) * 2000 / 12416),
            0,
        )
    assert {row[0] for table in results.tables for row in table.rows} == {*rivals, "uniform"}


def test_initial_evaluations_are_different_cells_and_the_same_whenever_asked(tmp_path: Path, data_folder: Path) -> None:
    request = Request(seeds=1, evaluations=12, methods=METHODS, out=tmp_path, data=data_folder)
    first, other = (initial_evaluations("all", seed, request) for seed in (0, 1))
    again = initial_evaluations("all", 0, replace(request, out=tmp_path / "elsewhere"))
    assert first.read_text() == again.read_text() != other.read_text()
    header, *lines = first.read_text().splitlines()
    assert header == "arm,reward"
    rows = [int(line.split(",")[0]) for line in lines]
    assert len(rows) == len(set(rows)) == round(40 * 2000 / 12416)
    values = Cells("all").load(DataSource(data_folder)).target[rows, 0]
    printed = [float(line.split(",")[1]) for line in lines]
    assert np.abs(printed - values).max() < 5 * Cells().noise_std


@pytest.mark.parametrize("cells", ["recorded", "all"])
def test_features_are_two_halves_of_norm_at_most_one(cells: Literal["recorded", "all"], data_folder: Path) -> None:
    features = Cells(cells).load(DataSource(data_folder)).features
    assert features.shape == (20 if cells == "recorded" else 40, 19)
    assert np.linalg.norm(features[:, :15], axis=1).max() <= 1.0
    assert np.linalg.norm(features[:, 15:], axis=1).max() <= 1.0


def test_recorded_cells_keep_their_accuracy_among_all(data_folder: Path) -> None:
    source = DataSource(data_folder)
    recorded, everything = Cells("recorded").load(source), Cells("all").load(source)
    rows = {row.tobytes(): index for index, row in enumerate(everything.features)}
    places = [rows[row.tobytes()] for row in recorded.features]
    np.testing.assert_array_equal(everything.target[places], recorded.target)
    assert everything.optimum(maximize=True) == recorded.optimum(maximize=True)
    assert recorded.seconds is not None
    assert everything.seconds is not None
    np.testing.assert_array_equal(everything.seconds[places], recorded.seconds)
    assert "stand-in" in everything.description


def test_a_stand_in_follows_what_is_smooth_and_stays_below_the_best_known() -> None:
    features = np.random.default_rng(0).random((200, 3))
    accuracies, seconds = 0.9 - 0.1 * features.sum(axis=1), np.exp(6.0 + features[:, 0])
    predicted, times = predict_unknown(features[:60], accuracies[:60], seconds[:60], features)
    assert np.corrcoef(predicted[60:], accuracies[60:])[0, 1] > 0.98
    assert np.corrcoef(times[60:], seconds[60:])[0, 1] > 0.98
    assert predicted.max() == accuracies[:60].max()


def test_data_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"space_423624\.npz|nasbench101_30001\.npz"):
        Cells().load(DataSource(tmp_path))


@pytest.mark.parametrize(("folder", "cells", "recorded"), [(None, 40, 20), *((folder, 12416, 914) for folder in REAL)])
def test_the_papers_space_is_found_whole(folder: Path | None, cells: int, recorded: int, data_folder: Path) -> None:
    source = DataSource(folder or data_folder)
    features = Cells("all").load(source).features
    assert len(features) == len(np.unique(features, axis=0)) == cells
    assert len(Cells("recorded").load(source).features) == recorded
