"""Cross-validation of scikit-learn's estimators, against scikit-learn's own; mistakes have their
place."""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bbkb.objectives.estimator import MOST_VALUES, SklearnEstimator
from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.settings.options import load_objective

SVM, RIDGE, TREE = "sklearn.svm.SVC", "sklearn.linear_model.Ridge", "sklearn.tree.DecisionTreeClassifier"


def load_estimator(**options: Any) -> Any:
    return SklearnEstimator(**options).load(DataSource())


def write_table(folder: Path, rows: list[str]) -> str:
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    return str(folder / "table.csv")


def test_estimator_score_equals_scikit_learns_cross_validation() -> None:
    """An oracle: `cross_val_score` with the same preparation, if nothing is missing and nothing is
    text."""
    reports: list[Any] = []
    evaluation = load_estimator(estimator=SVM, data="iris").evaluate(
        {"C": 2.0, "gamma": 0.1}, 0, lambda value, step: reports.append((step, value))
    )
    features, target = load_iris(return_X_y=True)
    splitter = StratifiedKFold(5, shuffle=True, random_state=0)
    expected = cross_val_score(make_pipeline(StandardScaler(), SVC(C=2.0, gamma=0.1)), features, target, cv=splitter)
    assert evaluation.value == evaluation.metrics["mean"] == pytest.approx(expected.mean())
    assert evaluation.metrics["std"] == pytest.approx(expected.std())
    assert evaluation.metrics["fit_seconds"] > 0.0
    assert [step for step, _ in reports] == [1, 2, 3, 4, 5]
    assert [value for _, value in reports] == pytest.approx([expected[:folds].mean() for folds in range(1, 6)])


def test_seed_is_the_estimators_random_state_unless_the_space_gives_one(silent: Report) -> None:
    tree = load_estimator(estimator=TREE, data="wine")
    values = [tree.evaluate({"max_features": 1, "splitter": "random"}, seed, silent).value for seed in (1, 1, 2, 3)]
    assert values[0] == values[1]
    assert len(set(values)) > 1
    fixed = [tree.evaluate({"max_features": 1, "random_state": 5}, seed, silent).value for seed in (1, 2)]
    assert fixed[0] == fixed[1]


def test_text_columns_and_missing_cells_are_prepared(tmp_path: Path, silent: Report) -> None:
    """The text determines the class, or the number if the text is missing: both must reach the
    estimator."""
    rows = ["size,colour,empty,kind"]
    for number in range(60):
        colour = ("red", "blue", "?")[number % 3]
        size = "" if number % 7 == 0 and colour != "?" else str(number % 2)
        kind = {"red": "apple", "blue": "plum", "?": ("apple", "plum")[number % 2]}[colour]
        rows.append(f"{size},{colour},,{kind}")
    objective = load_estimator(estimator=TREE, data=write_table(tmp_path, rows), target="kind", scoring="accuracy")
    assert objective.table.numbers.shape == (60, 2)
    assert objective.table.texts.shape == (60, 1)
    assert np.isnan(objective.table.numbers[:, 1]).all()
    assert objective.evaluate({}, 0, silent).value == 1.0


def test_text_column_of_many_values_has_a_limited_number_of_features(tmp_path: Path) -> None:
    rows = ["name,y", *(f"name{number % 200},{number % 2}" for number in range(400))]
    objective = load_estimator(estimator=TREE, data=write_table(tmp_path, rows), target="y")
    pipeline = objective._pipeline({}, 0).fit(objective.table.features, objective.table.target)
    assert pipeline[0].transform(objective.table.features).shape == (400, MOST_VALUES + 1)


def test_regressor_has_the_requested_score(silent: Report) -> None:
    options = {"estimator": RIDGE, "data": "diabetes"}
    r2 = load_estimator(**options).evaluate({"alpha": 1.0}, 0, silent).value
    error = load_estimator(**options, scoring="neg_mean_absolute_error").evaluate({"alpha": 1.0}, 0, silent).value
    assert 0.3 < r2 < 0.6
    assert -60 < error < -30
    assert math.isfinite(r2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "SVC", "data": "iris"}, r"must be a dotted name such as sklearn\.svm\.SVC, got 'SVC'"),
        ({"estimator": SVM, "data": "iri"}, "one of breast_cancer.*did you mean 'iris'"),
        ({"estimator": SVM, "data": "a.csv"}, "target must name the column of a.csv"),
        ({"estimator": SVM, "data": "iris", "target": "y"}, "target must not be given: iris has its own"),
    ],
)
def test_impossible_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SklearnEstimator(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "sklearn.svm.SVCC"}, "has no 'SVCC'; did you mean 'SVC'"),
        ({"estimator": "sklearn.smv.SVC"}, "no module named 'sklearn.smv'"),
        ({"estimator": "pathlib.Path"}, "must name a class with fit, get_params and set_params"),
        ({"estimator": "sklearn.ensemble.VotingClassifier"}, "can be instantiated without arguments"),
        ({"scoring": "acuracy"}, "got 'acuracy'; did you mean 'accuracy'"),
        ({"folds": 51}, "folds must be at most the rows of every class of iris, 50"),
    ],
)
def test_estimator_options_are_checked_before_the_campaign(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        load_estimator(**{"estimator": SVM, "data": "iris", **options})


@pytest.mark.parametrize(
    ("rows", "estimator", "message"),
    [
        (["a,kind", "1,x", "2,"], SVM, r"table\.csv:3: column 'kind' has an empty cell"),
        (["a,kind", "1,x", "two,y", "?,y"], SVM, r"table\.csv:3: column 'a' must be all numbers or all text"),
        (["a,kinds", "1,x"], SVM, "target must be a column of .*got 'kind'; did you mean 'kinds'"),
        (["a,kind"], SVM, r"^objective\.options\.data: .* must have at least one row"),
        (["kind", "x"], SVM, "must have a column besides 'kind'"),
        (["a,kind", "1,x", "2,y"], RIDGE, "target of the regressor .* must be numbers"),
    ],
)
def test_mistakes_in_a_table_have_their_line(rows: list[str], estimator: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ObjectiveError, match=message):
        load_estimator(estimator=estimator, data=write_table(tmp_path, rows), target="kind")


def campaign(folder: Path, space: str, estimator: str = SVM) -> Path:
    file = folder / "campaign.yaml"
    write_table(folder, ["a,kind", *(f"{number},{'xy'[number % 2]}" for number in range(20))])
    file.write_text(
        "name: one\n"
        f"objective: {{name: sklearn, options: {{estimator: {estimator}, data: table.csv, target: kind}}}}\n"
        f"space:\n  {space}\n"
        "budget: {evaluations: 3}\n"
    )
    return file


def test_table_path_is_relative_to_the_campaign_file(tmp_path: Path) -> None:
    settings = load(campaign(tmp_path, "C: {low: 0.1, high: 10}"))
    assert settings.objective.options is not None
    assert settings.objective.options["data"] == str(tmp_path / "table.csv")
    assert len(cast(Any, load_objective(settings.objective, settings.data)).table.target) == 20


def test_parameter_unknown_to_the_estimator_is_rejected_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"campaign\.yaml:4: space\.gama is not a parameter of .*did you mean 'gamma'"
    ):
        load(campaign(tmp_path, "gama: {low: 0.1, high: 10}"))


def test_estimator_that_cannot_be_imported_is_rejected_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"campaign\.yaml:2: .*has no 'SVK'"):
        load(campaign(tmp_path, "C: {low: 0.1, high: 10}", "sklearn.svm.SVK"))
