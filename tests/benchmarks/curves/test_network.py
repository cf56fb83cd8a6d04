"""The curves of the guide's network: read from their file, trained where they are missing."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.curves import network
from benchmarks.curves.families import load_problem
from benchmarks.curves.network import NetworkTrainings
from benchmarks.early_stopping import curves
from benchmarks.early_stopping.curves import EPOCHS, LearningCurve
from objectives.datasets import DataSource


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "CONFIGURATIONS", 8)


def test_more_configurations_begin_with_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    configurations = NetworkTrainings().configurations()
    monkeypatch.setattr(network, "CONFIGURATIONS", 16)
    assert NetworkTrainings().configurations()[:8] == configurations


def test_curves_in_the_file_are_a_problem(tmp_path: Path) -> None:
    configurations = NetworkTrainings().configurations()
    ends = np.linspace(0.1, 0.8, len(configurations)).tolist()
    lines = [
        asdict(LearningCurve(configuration=configuration, accuracies=(0.1,) * (EPOCHS - 1) + (end,), seconds=27.0))
        for configuration, end in zip(configurations, ends, strict=True)
    ]
    (tmp_path / "network.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    problem = load_problem("own-network", DataSource(), tmp_path)
    assert (problem.best, problem.median) == pytest.approx((0.8, 0.45))
    assert problem.curve(configurations[3])[[0, -1]] == pytest.approx([0.1, ends[3]])


def test_missing_curves_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(objective: object, configuration: curves.Configuration, seed: int) -> LearningCurve:
        return LearningCurve(configuration=configuration, accuracies=(seed / 10,) * EPOCHS, seconds=27.0)

    monkeypatch.setattr(network.NetworkOptions, "load", lambda options, source: None)
    monkeypatch.setattr(curves, "train", train)
    assert load_problem("own-network", DataSource(), tmp_path).best == pytest.approx(0.7)
    assert len((tmp_path / "network.jsonl").read_text().splitlines()) == 8
