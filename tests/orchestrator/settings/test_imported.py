"""Tests of orchestrator/settings/imported.py: results of other tuners become existing data, read
once."""

import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from bbkb import Campaign, Result
from bbkb.orchestrator.campaign.settings import GivenResults, Settings
from bbkb.orchestrator.cli.optuna_study import to_optuna
from bbkb.orchestrator.errors import ConfigError, UserError
from bbkb.orchestrator.running.resume import with_recorded
from bbkb.orchestrator.settings.loading import from_mapping, load
from tests.orchestrator.runs import history_of
from tests.present import present

SPACE = {
    "x": {"low": 0.0, "high": 1.0},
    "n": {"low": 1, "high": 9, "integer": True},
    "model": {"choices": ["svm", "forest"]},
    "C": {"low": 1e-3, "high": 1e3, "log": True, "when": {"model": "svm"}},
}


def given_in(settings: Settings) -> list[GivenResults]:
    return [source for source in settings.known_results if isinstance(source, GivenResults)]


@pytest.fixture(autouse=True)
def _silence_optuna() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def value(parameters: dict[str, Any]) -> float:
    return float((parameters["x"] - 0.3) ** 2 + parameters["n"] + (parameters["model"] == "svm"))


def objective(trial: optuna.Trial) -> float:
    parameters: dict[str, Any] = {
        "x": trial.suggest_float("x", 0.0, 2.0),  # wider than the campaign's space
        "n": trial.suggest_int("n", 1, 9),
        "model": trial.suggest_categorical("model", ["svm", "forest"]),
    }
    if parameters["model"] == "svm":
        parameters["C"] = trial.suggest_float("C", 1e-3, 1e3, log=True)
    if trial.number == 3:
        raise optuna.TrialPruned
    return value(parameters)


def study_in(storage: Any, trials: int = 12, name: str = "earlier") -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(storage=storage, study_name=name, sampler=sampler)
    study.optimize(objective, n_trials=trials)
    return study


def tree(tmp_path: Path, existing: Any, **changes: Any) -> dict[str, Any]:
    return {
        "name": "continued",
        "objective": {"callable": f"{tmp_path / 'objective.py'}:value", "direction": "minimize"},
        "space": SPACE,
        "budget": {"evaluations": 4},
        "workers": {"executor": "inline", "count": 1},
        "known_results": [existing],
        "runs": str(tmp_path / "runs"),
        **changes,
    }


def run(tree: dict[str, Any], tmp_path: Path) -> Result:
    (tmp_path / "objective.py").write_text("def value(x, n, model, C=None):\n    return (x - 0.3) ** 2 + n\n")
    campaign = Campaign.__new__(Campaign)
    campaign.settings = from_mapping(tree)
    return campaign.run(progress=False)


@pytest.mark.parametrize("kind", ["sqlite", "path", "journal"])
def test_study_is_existing_data_with_its_trials_outside_the_space(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "study"
    url = f"sqlite:///{file}" if kind == "sqlite" else str(file)
    storage: Any = f"sqlite:///{file}"
    if kind == "journal":
        storage = JournalStorage(JournalFileBackend(str(file)))
    study = study_in(storage)
    complete = [trial for trial in study.trials if trial.state is optuna.trial.TrialState.COMPLETE]
    inside = [trial for trial in complete if trial.params["x"] <= 1.0]
    assert 0 < len(inside) < len(complete) == 11
    result = run(tree(tmp_path, {"optuna": url}), tmp_path)
    existing = present(history_of(result).existing)
    outside = [trial for trial in complete if trial not in inside]
    assert list(existing.values) == [trial.value for trial in (*inside, *outside)]
    assert (existing.outside_count, existing.left_out) == (len(outside), ())
    assert existing.source.startswith("Optuna study 'earlier'")
    assert existing.source.endswith("(1 incomplete trial omitted)")
    assert len(result) == 4
    assert min(trial.value or 0.0 for trial in inside) not in [row["value"] for row in result.rows()]


def test_resume_does_not_read_the_study_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = study_in(url)
    file_tree = tree(tmp_path, {"optuna": url, "study": "earlier"})
    result = run(file_tree, tmp_path)
    before = load(result.folder / "campaign.yaml")
    study.optimize(objective, n_trials=3)
    now = from_mapping(file_tree)
    count_before, count_now = (len(given_in(known)[0].results) for known in (before, now))
    assert count_now > count_before
    assert with_recorded(before, now).known_results == before.known_results
    (tmp_path / "study.db").unlink()
    campaign = Campaign.from_file(result.folder / "campaign.yaml")
    assert campaign.settings.known_results == before.known_results


def test_run_exported_to_a_study_and_imported_again_gives_the_same_results(tmp_path: Path) -> None:
    first = run(
        tree(tmp_path, {"results": [{"parameters": {"x": 0.5, "n": 2, "model": "forest"}, "value": 2.04}]}), tmp_path
    )
    url = f"sqlite:///{tmp_path / 'made.db'}"
    assert to_optuna(history_of(first), "made", url, tmp_path) == 4
    assert to_optuna(history_of(first), "made", url, tmp_path) == 0, "a second export adds nothing"
    study = optuna.load_study(study_name="made", storage=url)
    assert [trial.value for trial in study.trials] == [row["value"] for row in first.rows()]
    assert study.best_trial.params == {
        name: value for name, value in first.best.parameters.items() if value is not None
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study.optimize(objective, n_trials=1)  # Optuna continues with it, perhaps outside the space
        again = run(tree(tmp_path, {"optuna": url}), tmp_path)
    existing = present(history_of(again).existing)
    assert list(existing.values)[:4] == [row["value"] for row in first.rows()]


def test_study_of_something_else_is_rejected(tmp_path: Path) -> None:
    first = run(
        tree(tmp_path, {"results": [{"parameters": {"x": 0.5, "n": 2, "model": "forest"}, "value": 2.0}]}), tmp_path
    )
    url = f"sqlite:///{tmp_path / 'made.db'}"
    optuna.create_study(storage=url, study_name="made", direction="maximize")
    with pytest.raises(UserError, match="must have direction minimize, got maximize"):
        to_optuna(history_of(first), "made", url, tmp_path)


@pytest.mark.parametrize(
    ("existing", "message"),
    [
        (3, r"known_results\.0 must be a mapping with one of the keys table, run, optuna"),
        ({"optuna": "none.db"}, r"known_results\.0\.optuna: .*none\.db must be the file of an Optuna storage"),
        ({"optuna": "empty.db", "study": "x"}, "study must name one of the studies"),
        ({"optuna": "one.db", "studdy": "x"}, "known_results.0.studdy is not a known key; did you mean 'study'"),
        ({"table": "a.csv", "run": "b"}, "known_results.0.run is not a known key; valid names: table, reward"),
        ({"table": "a.csv", "metric": "b"}, "known_results.0.metric is not a known key; valid names: table, reward"),
        ({"optuna": "wrong.db"}, "has direction maximize and this campaign minimize"),
        ({"optuna": "two.db"}, r"must have one objective, got 2"),
        ({"ray_tune": ".", "metric": "loss"}, "must be the folder of a Ray Tune experiment"),
        ({"ray_tune": "."}, "metric must be a metric that"),
        ({"results": []}, "known_results.0.results must have at least 1 entries"),
        ({"results": [{"parameters": {}, "value": float("nan")}]}, r"results\.0\.value must be a finite number"),
        ({"results": [{"parameters": {"x": object()}, "value": 1.0}]}, r"results\.0\.parameters\.x must be"),
        ({"results": [{"parameters": {"x": [object()]}, "value": 1.0}]}, "x must be texts, numbers"),
    ],
)
def test_invalid_existing_data_are_rejected_with_their_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(existing, dict) and existing.get("optuna", "none.db") != "none.db":
        file = existing["optuna"]
        existing = {**existing, "optuna": f"sqlite:///{file}"}
        directions = {"wrong.db": ["maximize"], "two.db": ["minimize", "minimize"]}.get(file, ["minimize"])
        optuna.create_study(storage=f"sqlite:///{file}", study_name="made", directions=directions)
    with pytest.raises(ConfigError, match=message):
        from_mapping(tree(tmp_path, existing))


def test_ray_tune_experiment_is_existing_data(tmp_path: Path) -> None:
    """Of the files that Ray Tune writes; `tests/orchestrator/adapters` has one that Tune itself
    wrote."""
    for number, line in enumerate(['{"loss": 2.0, "config": {"x": 0.5, "inner": {"n": 2}}}', '{"loss": "nan"', ""]):
        (tmp_path / "tuned" / f"trial_{number}").mkdir(parents=True)
        first = '{"loss": 9.0, "config": {"x": 0.25, "inner": {"n": 3}}}\n' if number < 2 else ""
        (tmp_path / "tuned" / f"trial_{number}" / "result.json").write_text(first + line)
    changed = tree(tmp_path, {"ray_tune": str(tmp_path / "tuned"), "metric": "loss"})
    changed["space"] = {"x": SPACE["x"], "inner.n": SPACE["n"]}
    [existing] = given_in(from_mapping(changed))
    assert [(dict(result.parameters), result.value) for result in existing.results] == [
        ({"x": 0.5, "inner.n": 2}, 2.0),
        ({"x": 0.25, "inner.n": 3}, 9.0),
    ]


def test_constant_of_all_results_need_not_be_a_parameter(tmp_path: Path) -> None:
    results = [{"parameters": {"x": x, "n": 2, "model": "forest", "epochs": 3}, "value": x} for x in (0.25, 0.5)]
    result = run(tree(tmp_path, {"results": results}), tmp_path)
    existing = present(history_of(result).existing)
    assert existing.values == (0.25, 0.5)
    results[0] = {"parameters": {"x": 0.25, "n": 2, "model": "forest", "epochs": 4}, "value": 0.25}
    with pytest.raises(UserError, match=r"results\.0: .* has the parameter epochs, and candidates have x, n"):
        run(tree(tmp_path, {"results": results}), tmp_path)
