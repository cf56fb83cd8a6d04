"""The contract of all objectives in the table (a new one is tested as soon as it is listed); cross-validation of
scikit-learn's estimators, against scikit-learn's own; misplaced arguments."""

import dataclasses
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pydantic import TypeAdapter
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import bbkb
from bbkb import BbkbError, CandidateOptimizer, Choice, Constraint, Optimizer, Range, strategies, tune
from bbkb.objectives.command import ShellCommand
from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.estimator import MOST_VALUES, SklearnEstimator
from bbkb.objectives.external import call_with
from bbkb.objectives.objective import (
    Candidates,
    Evaluation,
    HasCandidates,
    HasOptimum,
    InvalidValueError,
    Machine,
    Objective,
    ObjectiveError,
    Parameters,
    Report,
)
from bbkb.objectives.reference import OBJECTIVES, DataSource, ObjectiveOptions, find_objective
from bbkb.objectives.returned import WithMetrics
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.options import build, load_objective
from bbkb.workers.evaluate import Reports, evaluate
from bbkb.workers.messages import Attempt, Limits, TrialFailed, TrialSucceeded
from tests.objectives.recorded_files import write_tables

HEADERS = {
    "abalone/abalone.csv": "sex,length,diameter,height,whole,shucked,viscera,shell,rings",
    "cadata/cal_housing.csv.gz": "longitude,latitude,age,rooms,bedrooms,population,households,income,value",
}
# what an objective needs besides the installation; its own tests cover the message when it is
# missing
EXTRAS = {"mnist_cnn": "torch", "nas_cell": "torch"}
# objectives whose defaults take long or do not exist
OPTIONS = {
    "mnist_cnn": {"epochs": 1, "train_size": 200},
    "sklearn": {"estimator": "sklearn.svm.SVC", "data": "iris"},
    "nas_cell": {"epochs": 1, "train_size": 100, "validation_size": 100, "vertices": 5},
}
HERE = [name for name in OBJECTIVES if name not in EXTRAS or find_spec(EXTRAS[name])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small stand-ins of the tables, so that the contract is the same on every machine."""
    import gzip

    root = tmp_path_factory.mktemp("data")
    for name, header in HEADERS.items():
        numbers = np.random.default_rng(0).random((40, 9)).round(3)
        text = "\n".join([header, *(",".join(map(str, row)) for row in numbers)])
        (root / name).parent.mkdir()
        (root / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    write_tables(root)
    return root


@pytest.fixture(params=HERE)
def options(request: pytest.FixtureRequest) -> ObjectiveOptions:
    return TypeAdapter(find_objective(request.param)).validate_python(OPTIONS.get(request.param, {}))


@pytest.fixture
def objective(options: ObjectiveOptions, folder: Path) -> Objective:
    return options.load(DataSource(folder))


@pytest.fixture
def candidates(options: ObjectiveOptions, objective: Objective) -> Candidates:
    space = options.default_space()
    if space == {}:  # the campaign file gives it
        space = {"C": Range(0.1, 10.0, log=True)}
    if space is None:
        assert isinstance(objective, HasCandidates)
        return objective.candidates()
    return make_candidates(space, 16)


def some_arms(candidates: Candidates) -> range:
    """Return arms to evaluate: all of a small table, the first ones if an evaluation trains."""
    return range(min(len(candidates), 40 if len(candidates) <= 40 else 4))


def without_seconds(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation without its duration."""
    metrics = {name: metric for name, metric in evaluation.metrics.items() if not name.endswith("seconds")}
    return dataclasses.replace(evaluation, metrics=metrics)


def test_options_are_a_frozen_dataclass_that_rejects_unknown_keys(options: Any) -> None:
    kind = type(options)
    assert dataclasses.is_dataclass(kind)
    assert hash(options) == hash(dataclasses.replace(options))
    with pytest.raises(RefusalError, match="no_such_option"):
        build(kind, {"no_such_option": 1})


def test_bundled_objective_has_candidates_or_a_space(options: ObjectiveOptions, objective: Objective) -> None:
    assert isinstance(objective, Objective)
    assert (options.default_space() is None) == isinstance(objective, HasCandidates)


def test_value_is_finite_for_every_candidate_and_never_beyond_the_optimum(
    objective: Objective, candidates: Candidates, silent: Report
) -> None:
    evaluations = [objective.evaluate(candidates.parameters(arm), 0, silent) for arm in some_arms(candidates)]
    for evaluation in evaluations:
        assert type(evaluation.value) is float
        assert math.isfinite(evaluation.value)
        assert all(type(metric) is float and math.isfinite(metric) for metric in evaluation.metrics.values())
    noise_free = [evaluation.metrics["noise_free"] for evaluation in evaluations if "noise_free" in evaluation.metrics]
    assert bool(noise_free) == isinstance(objective, HasOptimum)
    if isinstance(objective, HasOptimum):
        assert objective.optimum(maximize=False) <= min(noise_free)
        assert max(noise_free) <= objective.optimum(maximize=True)
    if isinstance(objective, HasOptimum) and isinstance(objective, HasCandidates):
        assert objective.optimum(maximize=True) == max(noise_free)


def test_parameters_and_seed_determine_the_evaluation_here_and_on_a_worker(
    objective: Objective, candidates: Candidates, silent: Report
) -> None:
    there = pickle.loads(pickle.dumps(objective))
    for arm, seed in ((0, 0), (0, 1), (len(candidates) - 1, 2**63)):
        parameters = candidates.parameters(arm)
        first, again, elsewhere = (
            without_seconds(instance.evaluate(parameters, seed, silent)) for instance in (objective, objective, there)
        )
        assert first == again == elsewhere


def test_candidates_are_equal_after_pickling(candidates: Candidates) -> None:
    there = pickle.loads(pickle.dumps(candidates))
    np.testing.assert_array_equal(there.features, candidates.features)
    assert not there.features.flags.writeable
    assert [there.parameters(arm) for arm in (0, len(there) - 1)] == [
        candidates.parameters(arm) for arm in (0, len(candidates) - 1)
    ]
    assert (there.repeats, there.conditional, there.remark) == (
        candidates.repeats,
        candidates.conditional,
        candidates.remark,
    )


def test_evaluating_changes_nothing(objective: Objective, candidates: Candidates, silent: Report) -> None:
    before, parameters = pickle.dumps(objective), candidates.parameters(0)
    parameters_before = dict(parameters)
    objective.evaluate(parameters, 0, silent)
    assert pickle.dumps(objective) == before
    assert parameters == parameters_before


TWO = Machine(0, 2, ("10.0.0.1", "10.0.0.2"), 29500)
SECOND = replace(TWO, rank=1)


def test_url_is_the_address_and_port_of_rank_0() -> None:
    assert SECOND.url == "tcp://10.0.0.1:29500"
    assert replace(TWO, addresses=("fd00::1", "fd00::2")).url == "tcp://[fd00::1]:29500"


def test_command_gets_placeholders_environment_and_hostfile() -> None:
    command = ShellCommand(
        'echo "$MASTER_ADDR $MASTER_PORT $NODE_RANK $RANK $WORLD_SIZE" >&2; '
        "echo {machine} {machines} {address} {port} >&2; cat $BBKB_HOSTFILE >&2; exit 3"
    )
    command.check(["x"])
    with pytest.raises(RuntimeError) as failed:
        command.evaluate({}, 0, Reports(machine=SECOND))
    assert "10.0.0.1 29500 1 1 2\n" in str(failed.value)
    assert "1 2 10.0.0.1 29500\n10.0.0.1\n10.0.0.2" in str(failed.value)


def test_command_on_one_machine_has_index_0_of_1() -> None:
    assert ShellCommand("echo {machine}{machines}").evaluate({}, 0, Reports()).value == 1.0
    assert ShellCommand("echo {machine}").evaluate({"machine": 7}, 0, Reports()).value == 7.0, "a parameter comes first"


def test_function_gets_its_machine_and_only_the_first_one_returns_a_value() -> None:
    def objective(x: float, machine: Machine) -> float | None:
        return x + machine.count if machine.rank == 0 else None

    assert call_with(objective, {"x": 1.0}, 0, Reports(machine=TWO), "objective").value == 3.0
    assert call_with(objective, {"x": 1.0}, 0, Reports(), "objective").value == 2.0
    call_with(objective, {"x": 1.0}, 0, Reports(machine=SECOND), "objective")
    with pytest.raises(InvalidValueError):
        call_with(lambda x: None, {"x": 1.0}, 0, Reports(machine=TWO), "objective")


class NoMetrics:
    """Returns a value without metrics."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        return Evaluation(1.0)


def test_metrics_are_required_only_on_the_first_machine() -> None:
    objective = WithMetrics(NoMetrics(), "value", (("accuracy", "constraints.0"),))
    attempt = Attempt(0, 0, {}, 0)
    assert isinstance(evaluate(objective, attempt, Limits(), machine=SECOND), TrialSucceeded)
    assert isinstance(evaluate(objective, attempt, Limits(), machine=TWO), TrialFailed)


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


SPACE = {"x": Range(0.0, 1.0)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tune(abs, SPACE, n_trials=20), "n_trials is not an argument of tune; did you mean 'evaluations'"),  # type: ignore[call-arg]
        (lambda: tune(abs, SPACE, 20), "tune takes only objective, space by position.*20, such as evaluations"),  # type: ignore[call-arg]
        (lambda: Optimizer(SPACE, "minimize", sedd=1), "sedd is not an argument of Optimizer; did you mean 'seed'"),  # type: ignore[call-arg]
        (lambda: CandidateOptimizer([[0.0]], sedd=1), "sedd is not an argument of CandidateOptimizer; did you"),  # type: ignore[call-arg]
        (lambda: Optimizer(SPACE, "minimize").ask(n=2), "n is not an argument of Optimizer.ask; did you mean 'limit'"),  # type: ignore[call-arg]
        (lambda: strategies.BBKB(covrage=0.1), "covrage is not an argument of BBKB; did you mean 'coverage'"),  # type: ignore[call-arg]
        (lambda: Range(0, 1, loog=True), "loog is not an argument of Range; did you mean 'log'"),  # type: ignore[call-arg]
        (lambda: Choice([1, 2], zzz=1), "its arguments are choices, weights"),  # type: ignore[arg-type, call-arg]
        (lambda: bbkb.Objective("a", mode="minimize"), "did you mean 'direction'"),  # type: ignore[call-arg]
        (lambda: Constraint("a", max=3), "did you mean 'at_most'"),  # type: ignore[call-arg]
        (lambda: bbkb.load("runs/a", foo=1), "foo is not an argument of load; its arguments are folder"),  # type: ignore[call-arg]
    ],
)
def test_wrong_argument_is_rejected_with_the_correct_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_traceback_of_a_mistake_ends_near_the_users_line_and_has_no_cause(tmp_path: Path) -> None:
    mistakes: list[Callable[[], object]] = [
        lambda: Range(1, 0),
        lambda: tune(abs, SPACE, evaluations=-1, direction="minimize"),
        lambda: tune(
            lambda x: x,
            SPACE,
            evaluations=1,
            direction="minimize",
            executor="inline",
            known_results=[{"table": str(tmp_path / "missing.csv")}],
        ),
    ]
    for mistake in mistakes:
        with pytest.raises((ValueError, BbkbError)) as raised:
            mistake()
        last = raised.traceback[-2]
        assert (str(last.path), last.name) == (__file__, "<lambda>")
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_mistake_in_imported_code_keeps_its_cause(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(BbkbError) as raised:
        tune({"callable": f"{tmp_path}/broken.py:f"}, SPACE, evaluations=1, direction="minimize", executor="inline")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_did_you_mean_prefers_the_same_letters_and_is_empty_if_nothing_is_similar() -> None:
    assert did_you_mean("lgo", ["low", "high", "log"]) == "; did you mean 'log'?"
    assert did_you_mean("lerning_rate", ["learning_rate", "l2"]) == "; did you mean 'learning_rate'?"
    assert did_you_mean("zzz", ["learning_rate", "l2"]) == ""
