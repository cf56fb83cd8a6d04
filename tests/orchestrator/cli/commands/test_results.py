"""Tests of orchestrator/cli/commands/results.py: the best configuration, and runs side by side."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from bbkb.objectives.parameters import Choice, Range
from bbkb.orchestrator.api import Result
from bbkb.orchestrator.api.arguments import Space
from bbkb.orchestrator.cli.commands.results import BestFormat, _format
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.report.progress import best_steps, comparison
from tests.histories import history_of
from tests.orchestrator.quick import bbkb, tune_here


def run(tmp_path: Path, name: str, **workers: Any) -> Result:
    settings = {"workers": {"executor": "inline", "retries": 0, **workers}}
    space: Space = {"x": Range(0.0, 1.0), "model": Choice(("a model", "it's"))}
    folder = tmp_path / "runs"
    return tune_here(folder, lambda x, model: x, space, settings, evaluations=5, name=name)


def output_of(*arguments: str, columns: int = 200) -> str:
    result = bbkb(*arguments, columns=columns)
    return result.stdout if arguments[0] == "best" else result.output  # notes about it are on standard error


def test_best_prints_a_configuration_for_the_next_script(tmp_path: Path) -> None:
    result = run(tmp_path, "one")
    expected = dict(result.best.parameters)
    folder = str(result.folder)
    assert yaml.safe_load(output_of("best", folder)) == expected
    assert json.loads(output_of("best", folder, "--format", "json")) == expected
    words = shlex.split(output_of("best", folder, "--format", "args"))
    assert words == ["--x", str(expected["x"]), "--model", expected["model"]]


def test_best_prints_arguments_with_a_dash_for_argparse() -> None:
    words = shlex.split(_format({"level": "-O3", "shift": -0.5, "name": "a b", "none": None}, BestFormat.ARGS))
    parser = argparse.ArgumentParser()
    for name in ("level", "shift", "name"):
        parser.add_argument(f"--{name}")
    assert vars(parser.parse_args(words)) == {"level": "-O3", "shift": "-0.5", "name": "a b"}


def test_list_shows_the_oldest_run_first_and_names_a_damaged_one(tmp_path: Path) -> None:
    first, second = run(tmp_path, "one"), run(tmp_path, "two")
    damaged = tmp_path / "runs" / "damaged"
    damaged.mkdir()
    (damaged / "campaign.yaml").write_text("store: sqlite\n")
    output = output_of("list", str(tmp_path / "runs"))
    assert output.index(first.folder.name) < output.index(second.folder.name)
    assert "damaged is unreadable" in output
    assert f"{first.best.value:.6g}" in output


def test_list_names_an_empty_folder(tmp_path: Path) -> None:
    assert "has no runs" in output_of("list", str(tmp_path))


def test_compare_shows_runs_side_by_side(tmp_path: Path) -> None:
    results = [run(tmp_path, "one"), run(tmp_path, "two")]
    folders = [str(result.folder) for result in results]
    output = output_of("compare", *folders)
    assert all(f"{result.best.value:.6g}" in output for result in results)
    assert "…" not in output_of("compare", *folders, columns=50)
    assert output_of("compare", *folders * 3, columns=60).count("best value") == 3  # two runs beside each other
    assert "uniform" in output
    assert "it's" in output or "a model" in output


def test_compare_finds_runs_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path, "one")
    monkeypatch.chdir(tmp_path)
    assert f"{result.best.value:.6g}" in output_of("compare", result.folder.name)


@pytest.mark.parametrize("ending", [".html", ".png", ".svg"])
def test_compare_draws_runs_into_one_figure(tmp_path: Path, ending: str) -> None:
    first, second = run(tmp_path, "one"), run(tmp_path, "two")
    file = tmp_path / f"curves{ending}"
    output_of("compare", str(first.folder), str(second.folder), "--picture", str(file))
    content = file.read_bytes()
    if ending == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        assert b"Best value so far" in content or b"<svg" in content
    if ending == ".html":
        assert first.folder.name.encode() in content
        assert second.folder.name.encode() in content


def test_compare_rejects_an_unknown_kind_of_figure(tmp_path: Path) -> None:
    result = run(tmp_path, "one")
    with pytest.raises(UserError, match=r"must end with \.html or one of \.png"):
        bbkb("compare", result.folder, "--picture", "x.gif")


def test_compare_curve_has_each_improvement_and_the_last_result(tmp_path: Path) -> None:
    result = run(tmp_path, "one")
    places, values = best_steps(history_of(result))
    assert values == sorted(values)
    assert values[-1] == result.best.value
    assert places[-1] == 5


def test_compare_gives_repetitions_of_a_campaign_one_color(tmp_path: Path) -> None:
    one, two = ((name, history_of(run(tmp_path, name))) for name in ("one", "two"))
    other = ("other", history_of(run(tmp_path, "other", retries=3)))
    ((first, second, third),) = [figure.traces for figure in comparison([one, two, other])]
    assert first["line"] == second["line"] != third["line"]
    ((first, second),) = [figure.traces for figure in comparison([one, two])]
    assert first["line"] != second["line"]


def test_list_fits_into_80_columns(tmp_path: Path) -> None:
    goals = [{"metric": "value", "direction": "maximize"}, {"metric": "size", "direction": "minimize"}]
    result = run(tmp_path, "classifier")
    folder = tmp_path / "runs"
    several = tune_here(folder, lambda x: {"value": x, "size": x}, objectives=goals, evaluations=5, name="several")
    lines = output_of("list", str(tmp_path / "runs"), columns=80).splitlines()
    assert len(lines) == 3
    assert result.folder.name in lines[1]
    assert several.folder.name in lines[2]
    assert lines[2].rstrip().endswith("front of 5")
