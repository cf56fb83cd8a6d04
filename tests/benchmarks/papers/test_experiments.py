"""`benchmarks.papers.experiments`: The experiments by their names on the command line."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.papers.__main__ import app
from benchmarks.papers.experiments import EXPERIMENTS, find_experiment
from orchestrator.errors import UserError


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_listed_experiment_says_what_it_is(name: str) -> None:
    experiment = find_experiment(name)
    assert experiment.summary
    assert experiment.source
    assert experiment.evaluations > 0
    assert set(experiment.default_methods) <= set(experiment.methods)


def test_an_unknown_experiment_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="did you mean 'abalone'"):
        find_experiment("abalon")


def test_methods_come_in_the_experiments_order_and_all_by_default() -> None:
    experiment = replace(find_experiment("abalone"), methods=("a", "b", "c"), default_methods=())
    assert experiment.chosen(("c", "a")) == ("a", "c")
    assert experiment.chosen(()) == ("a", "b", "c")
    assert replace(experiment, default_methods=("b",)).chosen(()) == ("b",)
    with pytest.raises(UserError, match="--methods must be some of a,b,c, got 'd'"):
        experiment.chosen(("d",))


def test_the_command_lists_the_experiments() -> None:
    done = CliRunner().invoke(app, ["list"])
    assert done.exit_code == 0
    assert all(name in done.output for name in EXPERIMENTS)


def test_the_command_runs_an_experiment_and_says_where_its_numbers_are(tmp_path: Path, data_folder: Path) -> None:
    options = [
        "--seeds",
        "1",
        "--evaluations",
        "6",
        "--methods",
        "bbkb",
        "--out",
        str(tmp_path),
        "--data",
        str(data_folder),
    ]
    done = CliRunner().invoke(app, ["abalone", *options])
    assert done.exit_code == 0, done.output
    assert "Global-BBKB" in done.output
    results = tmp_path / "results-6"
    assert sorted(path.suffix for path in results.iterdir()) == [".csv", ".json", ".png", ".svg"]
    assert str(results / "findings.json") in done.output
