"""`bbkb.orchestrator.settings.loading`: relative paths."""

from pathlib import Path

import pytest

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.settings.options import load_objective, objective_of


def test_relative_paths_refer_to_the_folder_of_the_campaign_file(tmp_path: Path) -> None:
    folder = tmp_path / "below"
    folder.mkdir()
    (folder / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f', direction: maximize}\n"
        "candidates: {table: t.csv}\nstore: sqlite:///log.db\ndata: {folder: sets}\nruns: out\n"
    )
    loaded = load(folder / "x.yaml")
    assert loaded.candidates.table == str(folder / "t.csv")
    assert loaded.data.folder == str(folder / "sets")
    assert loaded.store == f"sqlite:///{folder / 'log.db'}"
    assert objective_of(loaded.objective) == PythonCallable("m:f", (str(folder), str(Path.cwd())))
    assert loaded.runs == str(Path.cwd() / "out"), "results belong where the user is"
    assert load(folder / "x.yaml", ["store=sqlite:////db"]).store == "sqlite:////db"
    assert load(folder / "x.yaml", ["store=postgresql://h/db"]).store == "postgresql://h/db"


def test_folder_of_the_file_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: x\nbudget: {evaluations: 5}\nobjective: {callable: 'm:f', direction: maximize}\n"
        "space: {a: {low: 0, high: 1}}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert objective_of(load(file).objective) == PythonCallable("m:f", (str(tmp_path),))
    twice = {"search_paths": [str(tmp_path)] * 2}
    recorded = load(file, [f"objective.options={twice}"])
    assert plain(from_mapping(plain(recorded))) == plain(recorded)
    assert objective_of(recorded.objective) == PythonCallable("m:f", (str(tmp_path),) * 2)


def test_command_runs_beside_the_campaign_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\n"
        "objective: {command: 'run {a}', direction: maximize, options: {memory_bytes: 5}}\n"
        "space: {a: {low: 0, high: 1}}\n"
    )
    loaded = load(tmp_path / "x.yaml")
    assert objective_of(loaded.objective) == ShellCommand("run {a}", str(tmp_path), memory_bytes=5)
    assert load_objective(loaded.objective, loaded.data) == objective_of(loaded.objective)
    assert from_mapping(plain(loaded)) == loaded
    elsewhere = load(tmp_path / "x.yaml", ["objective.options={working_directory: ..}"])
    assert elsewhere.objective.options is not None
    assert elsewhere.objective.options["working_directory"] == str(tmp_path.parent)


def test_data_folder_of_the_environment_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBKB_DATA", str(tmp_path))
    tree = {"name": "x", "objective": {"name": "sine"}, "budget": {"evaluations": 3}}
    resolved = plain(from_mapping(tree))
    monkeypatch.delenv("BBKB_DATA")
    assert from_mapping(resolved).data.folder == str(tmp_path)
    assert from_mapping(tree).data.folder is None
