"""`bbkb.orchestrator.settings.loading`: relative paths, and the files of older runs."""

import json
from pathlib import Path

import pytest

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import from_mapping, load


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
    assert loaded.objective.options == PythonCallable("m:f", (str(folder), str(Path.cwd())))
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
    assert load(file).objective.options == PythonCallable("m:f", (str(tmp_path),))
    twice = {"search_paths": [str(tmp_path)] * 2}  # as an older version wrote it
    recorded = load(file, [f"objective.options={twice}"])
    assert from_mapping(recorded.resolved()).resolved() == recorded.resolved()
    assert recorded.objective.options == PythonCallable("m:f", (str(tmp_path),) * 2)


def test_command_runs_beside_the_campaign_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "name: x\nbudget: {evaluations: 5}\n"
        "objective: {command: 'run {a}', direction: maximize, options: {memory_bytes: 5}}\n"
        "space: {a: {low: 0, high: 1}}\n"
    )
    loaded = load(tmp_path / "x.yaml")
    assert loaded.objective.options == ShellCommand("run {a}", str(tmp_path), memory_bytes=5)
    assert loaded.objective.load(loaded.data.source()) is loaded.objective.options
    assert from_mapping(loaded.resolved()) == loaded
    elsewhere = load(tmp_path / "x.yaml", ["objective.options={working_directory: ..}"])
    assert isinstance(elsewhere.objective.options, ShellCommand)
    assert elsewhere.objective.options.working_directory == str(tmp_path.parent)


def test_data_folder_of_the_environment_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BBKB_DATA", str(tmp_path))
    tree = {"name": "x", "objective": {"name": "sine"}, "budget": {"evaluations": 3}}
    resolved = from_mapping(tree).resolved()
    monkeypatch.delenv("BBKB_DATA")
    assert from_mapping(resolved).data.folder == str(tmp_path)
    assert from_mapping(tree).data.folder is None


OLDER_RUN: dict[str, object] = {
    **from_mapping({"name": "x", "objective": {"name": "branin"}, "budget": {"evaluations": 5}}).resolved(),
    "strategy": {"name": "gp_ucb"},
}


@pytest.mark.parametrize(
    ("start", "source"),
    [
        ({"path": "results/t.csv"}, {"table": "{folder}/results/t.csv", "reward": "reward"}),
        ({"path": "t.csv", "reward": "loss"}, {"table": "{folder}/t.csv", "reward": "loss"}),
        ({"path": "runs/a"}, {"run": "{folder}/runs/a", "store": None}),
        ({"path": "sqlite:///o", "campaign": "c"}, {"run": "c", "store": "sqlite:///{folder}/o"}),
        ({"path": "postgresql://host/db", "campaign": "c"}, {"run": "c", "store": "postgresql://host/db"}),
    ],
)
def test_warm_start_of_an_older_run_is_a_source(
    tmp_path: Path, start: dict[str, str], source: dict[str, str | None]
) -> None:
    strategy = {"name": "gp_ucb", "warm_start": {"name": "data", **start}}
    (tmp_path / "x.yaml").write_text(json.dumps({**OLDER_RUN, "strategy": strategy}))
    settings = load(tmp_path / "x.yaml")
    located = {key: value and value.format(folder=tmp_path) for key, value in source.items()}
    assert settings.resolved()["known_results"] == [located]
    assert isinstance(warm_start_of(settings.strategy), DataStart)
    assert from_mapping(settings.resolved()) == settings


def test_sections_of_an_older_run_are_sources() -> None:
    listed = {"results": [{"parameters": {"x": 0.5, "y": 0.5}, "value": 1.0}]}
    space = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
    older = {"existing_data": listed, "earlier": {"runs": ["/runs/a"], "first": [{"x": 0.5, "y": 0.5}]}, "space": space}
    known = {"known_results": [listed, {"best_of": ["/runs/a"], "first": [{"x": 0.5, "y": 0.5}]}], "space": space}
    assert from_mapping({**OLDER_RUN, **older}) == from_mapping({**OLDER_RUN, **known})
    assert from_mapping({**OLDER_RUN, "existing_data": None, "earlier": None}) == from_mapping(OLDER_RUN)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("existing_data", {"results": []}, "existing_data is not a known key; did you mean 'known_results'"),
        ("earlier", ["runs/a"], "earlier is not a known key; did you mean 'known_results'"),
        ("strategy", {"name": "gp_ucb", "warm_start": {"name": "data", "path": "t.csv"}}, "path is not a known key"),
    ],
)
def test_older_spellings_of_known_results_are_rejected_with_the_new_key(key: str, value: object, message: str) -> None:
    tree = {"name": "x", "objective": {"name": "branin"}, "budget": {"evaluations": 5}, key: value}
    with pytest.raises(ConfigError, match=message):
        from_mapping(tree)
