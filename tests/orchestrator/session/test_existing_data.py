"""Existing data: read from tables and runs, matched to candidates, and the messages when they are
wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bbkb import load, tune
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Choice, Ordered, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    Event,
    ExistingTaken,
    PickedTrial,
    TrialFailed,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.report.page import snapshot
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.known_results import existing
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store import runs
from bbkb.workers.messages import FailureKind
from tests.examples import examples
from tests.orchestrator.events import dispatch, opening
from tests.present import present

SPACE: Space = {
    "x": Range(1e-4, 1.0, log=True),
    "layers": Range(1, 6, integer=True),
    "kind": Choice(("relu", "tanh")),
    "bias": Choice((True, False)),
}


def candidates(size: int = 60, seed: int = 0) -> Candidates:
    return make_candidates(SPACE, size, "sobol", seed)


def grid() -> Candidates:
    x = np.linspace(0.0, 1.0, 11)
    return Candidates(x[:, None], {"x": x})


def read_table(path: Path, text: str, of: Candidates | None = None, **options: Any) -> ExistingTaken:
    path.write_text(text)
    return read({"table": str(path), **options}, of=of or grid())


def read(*sources: dict[str, Any], of: Candidates, direction: str = "maximize") -> ExistingTaken:
    tree = {"name": "c", "objective": {"name": "branin", "direction": direction}, "budget": {"evaluations": 3}}
    event = existing(from_mapping({**tree, "known_results": sources}), Problem(0, Pool(of), STRATEGIES["uniform"]()))
    assert event is not None
    return event


def cell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).strip("'")


def table(of: Candidates, arms: list[int]) -> str:
    """The rows of these arms as a spreadsheet writes them, with an irrelevant column that has empty
    cells."""
    names = list(of.columns)
    lines = [",".join([*names, "reward", "note"])]
    lines += [
        ",".join([*(cell(of.parameters(arm)[name]) for name in names), str(arm / 8), "" if arm % 2 else "odd"])
        for arm in arms
    ]
    return "\n".join(lines) + "\n"


@settings(max_examples=examples(15))
@given(arms=st.lists(st.integers(0, 59), min_size=1, max_size=40))
def test_row_finds_its_candidate_by_its_parameters(tmp_path_factory: pytest.TempPathFactory, arms: list[int]) -> None:
    taken = read_table(tmp_path_factory.mktemp("t") / "t.csv", table(candidates(), arms), candidates())
    assert taken.arms == tuple(arms)
    assert taken.values == tuple(arm / 8 for arm in arms)
    assert taken.left_out == ()


def test_parquet_table_is_existing_data(tmp_path: Path) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = [candidates().parameters(arm) for arm in (3, 5)]
    columns = {name: [row[name] for row in rows] for name in SPACE} | {"reward": [1.0, 2.0]}
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    taken = read({"table": str(tmp_path / "t.parquet")}, of=candidates())
    assert (taken.arms, taken.values) == ((3, 5), (1.0, 2.0))


def test_number_printed_to_twelve_digits_matches(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random(300) * 10.0 ** np.arange(-150, 150)
    rows = "".join(f"{value:.12g},1\n" for value in x)
    taken = read_table(tmp_path / "t.csv", f"x,reward\n{rows}", Candidates(x[:, None], {"x": x}))
    assert (sorted(taken.arms), taken.left_out) == (list(range(300)), ())


def test_results_of_no_candidate_are_counted_and_the_first_is_shown(tmp_path: Path) -> None:
    taken = read_table(tmp_path / "t.csv", "x,reward\n0.1,5\n0.15,6\n0.2,7\n0.99,8\n")
    assert (taken.arms, taken.values) == ((1, 2), (5.0, 7.0))
    reason = "no candidate is equal"
    assert taken.left_out == tuple(f"row {row} of the table: x={x} ({reason})" for row, x in ((2, 0.15), (4, 0.99)))
    assert "2 not learned (row 2 of the table: x=0.15" in str(taken)


def test_arms_may_be_named_by_their_index(tmp_path: Path) -> None:
    taken = read_table(tmp_path / "t.csv", "arm,score,reward\n10,1,0.5\n0,2,0.25\n11,3,1\n-1,4,1\n", reward="score")
    assert (taken.arms, taken.values, len(taken.left_out)) == ((10, 0), (1.0, 2.0), 2)


def test_parameter_called_arm_is_a_parameter(tmp_path: Path) -> None:
    lengths = np.array([7.0, 8.0])
    taken = read_table(tmp_path / "t.csv", "arm,reward\n8,1\n0,2\n", Candidates(lengths[:, None], {"arm": lengths}))
    assert (taken.arms, len(taken.left_out)) == ((1,), 1)


def test_row_number_is_optional_and_the_first_of_equal_rows_is_used(tmp_path: Path) -> None:
    x = np.array([0.1, 0.5, 0.5])
    of = Candidates(x[:, None], {"row": np.arange(3), "x": x})
    assert read_table(tmp_path / "t.csv", "x,reward\n0.5,1\n", of).arms == (1,)
    assert read_table(tmp_path / "u.csv", "row,x,reward\n2,0.5,1\n2,0.1,1\n", of).arms == (2,)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,value\n0.1,1\n", {}, r"t\.csv:1: .* column 'reward'.*the columns x, value; name it in"),
        ("x,rewrad\n0.1,1\n", {}, "did you mean 'rewrad'"),
        ("x,reward\n0.1,1\n", {"reward": "loss"}, "need a column 'loss'"),
        ("y,reward\n0.1,1\n", {}, r"t\.csv:1: .* or by every parameter; .* y, reward lack x"),
        ("x,reward\n0.1,1\n0.2,nan\n", {}, r"t\.csv:3: column 'reward' must hold finite numbers, got 'nan': fix"),
        ("x,reward\n0.1,1\n0.2,inf\n", {}, r"t\.csv:3: column 'reward' must hold finite numbers, got 'inf': fix"),
        ("x,reward\n0.1,\n", {}, r"t\.csv:2: column 'reward' has an empty cell"),
        ("x,reward\n0.1,good\n", {}, "column 'reward' must be numbers, got 'good'"),
        ("x,reward\n0.1,1,2\n", {}, r"t\.csv:2: a row must have 2 cells"),
        ("x,reward\n", {}, "at least one row"),
        ("arm,reward\n0,1\n1.5,1\n", {}, r"'arm' must hold whole numbers, got '1.5' in row 2 of the table"),
        ("arm,reward\nfirst,1\n", {}, "'arm' must hold whole numbers, got 'first'"),
        ("x,reward\n0.15,1\n0.25,2\n", {}, r"none of the 2 results of .*t\.csv belongs to a candidate .*x=0.15"),
        ("arm,reward\n11,1\n", {}, "arm must be from 0 to 10"),
    ],
)
def test_wrong_table_is_reported_with_position_and_remedy(
    tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_table(tmp_path / "t.csv", text, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.csv", r"known_results\.0: .*absent\.csv cannot be read as a CSV table: No such file"),
        ("table.xlsx", r"known_results\.0: table must end in \.csv.*the folder of a run is \{run: FOLDER\}"),
    ],
)
def test_missing_data_are_reported(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read({"table": str(tmp_path / name)}, of=grid())
    with pytest.raises(UserError, match=r"known_results\.0: .* is not a run: it has no campaign\.yaml"):
        read({"run": str(tmp_path)}, of=grid())
    (tmp_path / "campaign.yaml").touch()
    with pytest.raises(UserError, match=r"known_results\.0: .*campaign\.yaml is a file: name the folder of a run"):
        read({"run": str(tmp_path / "campaign.yaml")}, of=grid())


def test_results_of_several_sources_are_one_event(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,reward\n0.1,5\n0.15,6\n")
    given_results = {"results": [{"parameters": {"x": x}, "value": x} for x in (0.99, 0.3)]}
    event = read(given_results, {"table": str(tmp_path / "t.csv")}, of=grid())
    assert (event.arms, event.values) == ((3, 1), (0.3, 5.0))
    assert [text.partition(" (")[0] for text in event.left_out] == ["result 0: x=0.99", "row 2 of the table: x=0.15"]
    assert event.source == f"the campaign file and {tmp_path / 't.csv'}"
    assert event.best_parameters == {"x": 0.1}


def other_run(folder: Path, direction: str = "minimize", events: list[Event] | None = None) -> runs.Run:
    """A run over the grid, three trials of which two succeeded."""
    settings = from_mapping(
        {
            "name": "other",
            "runs": str(folder),
            "objective": {"name": "branin", "direction": direction},
            "budget": {"evaluations": 3},
        }
    )
    parts = build(settings)
    new_run = create_run(settings, replace(parts, problem=replace(parts.problem, pool=Pool(grid()))))
    with new_run.store() as store:
        store.claim(new_run.name, "test").append(evaluations(dict(plain(settings))) if events is None else events)
    return new_run


def evaluations(settings: dict[str, Any]) -> list[Event]:
    picks = tuple(
        PickedTrial(trial=trial, arm=arm, parameters=grid().parameters(arm), mean=0.0, width=1.0, variance=1.0)
        for trial, arm in enumerate((4, 7, 4))
    )
    common: dict[str, Any] = {"attempt": 1, "started": 0.0, "finished": 1.0, "worker": "w", "time": 1.0}
    return [
        opening(settings, slots=1),
        BatchChosen(time=0.0, round=0, picks=picks, reason="limit", seconds=0.0),
        dispatch((0, 1), (1, 1), (2, 1)),
        TrialSucceeded(trial=2, value=0.75, **common),
        TrialFailed(trial=1, failure=FailureKind.ERROR, message="", is_final=True, **common),
        TrialSucceeded(trial=0, value=0.25, **common),
    ]


def test_evaluations_of_another_run_are_read_from_its_folder_or_database(tmp_path: Path) -> None:
    run = other_run(tmp_path)
    for source in ({"run": str(run.folder)}, {"run": run.name, "store": f"sqlite:///{run.place}"}):
        taken = read(source, of=grid(), direction="minimize")
        assert (taken.arms, taken.values, taken.left_out) == ((4, 4), (0.25, 0.75), ())
        assert taken.source == f"run {run.name}"


def test_run_over_other_candidates_matches_by_equal_parameters(tmp_path: Path) -> None:
    run, x = other_run(tmp_path), np.array([0.9, 0.4])
    others = Candidates(x[:, None], {"x": x})
    assert read({"run": str(run.folder)}, of=others, direction="minimize").arms == (1, 1)
    with pytest.raises(UserError, match=r"by every parameter; the columns x lack y"):
        read({"run": str(run.folder)}, of=Candidates(x[:, None], {"y": x}), direction="minimize")


def test_results_may_lack_conditional_parameters(tmp_path: Path) -> None:
    space: Space = {"x": Choice((1, 2)), "n": Ordered((3, 4), when={"x": 2})}
    begin = {"runs": str(tmp_path), "enqueue": [{"x": 1}]}  # the first trial lacks `n`
    how: dict[str, Any] = {"direction": "maximize", "executor": "inline", "progress": False, "settings": begin}
    result = tune(lambda x, n=0: x + n, space, evaluations=3, **how)
    (tmp_path / "t.csv").write_text("x,n,reward\n1,,1\n2,3,5\n2,4,6\n")
    of = make_candidates(space, 3, "sobol", 0)
    for source in ({"run": str(result.folder)}, {"table": str(tmp_path / "t.csv")}):
        taken = read(source, of=of)
        found = {value: of.parameters(arm) for arm, value in zip(taken.arms, taken.values, strict=True)}
        assert found == {1.0: {"x": 1}, 5.0: {"x": 2, "n": 3}, 6.0: {"x": 2, "n": 4}}
    assert len(read_table(tmp_path / "u.csv", "x,reward\n1,1\n2,5\n", of).left_out) == 1


def test_run_of_the_other_direction_or_without_results_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has direction minimize and this campaign maximize"):
        read({"run": str(other_run(tmp_path).folder)}, of=grid())
    empty = other_run(tmp_path, events=[])
    with pytest.raises(UserError, match="has no evaluation that succeeded: start without it, or name another run"):
        read({"run": str(empty.folder)}, of=grid(), direction="minimize")


def test_campaign_that_is_not_in_the_database_is_reported(tmp_path: Path) -> None:
    run = other_run(tmp_path)
    with pytest.raises(UserError, match="no log named 'nothere' in its store"):
        read({"run": "nothere", "store": f"sqlite:///{run.place}"}, of=grid(), direction="minimize")


BEST_KNOWN = """
name: c
objective: {{callable: "{folder}/train.py:objective", direction: {direction}}}
space: {{x: {{choices: [1, 2, 3, 4]}}}}
known_results: [{{table: "{folder}/earlier.csv"}}]
budget: {{evaluations: 2}}
workers: {{executor: inline, count: 1}}
runs: "{folder}/runs"
"""


@pytest.mark.parametrize(("direction", "value", "x"), [("maximize", 30.0, 3), ("minimize", -20.0, 2)])
def test_best_trial_may_be_existing_data_and_is_marked_so(tmp_path: Path, direction: str, value: float, x: int) -> None:
    (tmp_path / "train.py").write_text("def objective(x):\n    return 0.0\n")
    (tmp_path / "earlier.csv").write_text("x,reward\n2,-20\n3,30\n1,5\n")
    (tmp_path / "c.yaml").write_text(BEST_KNOWN.format(folder=tmp_path, direction=direction))
    run = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--run", "r"], env={"COLUMNS": "200"})
    assert f"best value {value:g}, {direction}d known results: {tmp_path}" in " ".join(run.output.split())
    folder = str(tmp_path / "runs" / "r")
    status = json.loads(CliRunner().invoke(app, ["status", folder, "--json"]).stdout)
    assert (status["best_value"], status["best_trial"], status["best_parameters"]) == (value, None, {"x": x})
    assert status["best_origin"].startswith(f"known results: {tmp_path}")
    best = CliRunner().invoke(app, ["best", folder, "--format", "json"], env={"COLUMNS": "200"})
    assert json.loads(best.stdout) == {"x": x}
    assert f"the best value, {value:g}, comes from known results" in best.stderr
    result = load(folder).best
    assert (result.trial, result.value, result.status, result.parameters) == (None, value, "existing", {"x": x})
    assert f"known results: {tmp_path}" in CliRunner().invoke(app, ["compare", folder], env={"COLUMNS": "200"}).output
    assert f"known results: {tmp_path}" in str(
        snapshot(read_history(runs.open_run(Path(folder))), "r", figures=[])["answer"]
    )


LOSS: dict[str, Any] = {"direction": "minimize", "executor": "inline", "progress": False}
SQUARE: Space = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}


def loss(x: float, y: float) -> float:
    return (x - 0.3) ** 2 + (y - 0.6) ** 2


def test_every_result_of_an_own_run_is_learned_in_a_continuous_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates that were appended while the run grew are candidates of the new run, too."""
    monkeypatch.chdir(tmp_path)
    first = tune(loss, SQUARE, evaluations=25, run="a", **LOSS)
    how = {**LOSS, "known_results": [{"run": "runs/a"}], "seed": 1, "run": "b", "resume": True}
    second = tune(loss, SQUARE, evaluations=2, **how)
    known = present(second.known)
    assert sorted(known.values) == sorted(trial.value for trial in first.trials if trial.value is not None)
    assert known.left_out == ()
    assert present(second.best_observed.value) <= present(first.best_observed.value)
    assert len(tune(loss, SQUARE, evaluations=4, **how)) == 4  # the same source does not change the run


def test_results_outside_the_space_are_learned_and_never_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best values are beyond a bound or forbidden; one is no value of the choice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y,model,reward\n.1,.5,1,.9\n1.5,.2,1,-9\n.2,.3,2,-8\n.5,.5,3,-9\n")
    space: Space = {**SQUARE, "model": Choice(("1", "2"))}
    known_results = [{"table": "t.csv"}]
    settings = {"forbid": [{"model": "2"}]}
    arguments: dict[str, Any] = {**LOSS, "known_results": known_results, "run": "a", "settings": settings}
    with pytest.warns(UserWarning, match="1 not learned.*model must be one of '1', '2'"):
        result = tune(lambda x, y, model: x + y, space, evaluations=14, **arguments)
    known = present(result.known)
    assert (known.values, known.outside_count, len(known.left_out)) == ((0.9, -9.0, -8.0), 2, 1)
    assert all(trial.parameters["x"] <= 1 and trial.parameters["model"] == "1" for trial in result.trials)
    assert present(result.best_observed.value) >= 0
    assert present(present(result.best).value) >= 0
    again = tune(lambda x, y, model: x + y, space, evaluations=16, resume=True, **arguments)
    assert [trial.parameters for trial in again.trials][:14] == [trial.parameters for trial in result.trials]


def test_strategy_whose_candidates_are_fixed_names_the_results_outside_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y,reward\n.5,.5,1\n1.5,.2,-9\n")
    with pytest.warns(UserWarning, match="x must be from 0 to 1, got 1.5"):
        result = tune(loss, SQUARE, evaluations=1, strategy="uniform", known_results=[{"table": "t.csv"}], **LOSS)
    assert present(result.known).values == (1.0,)


@pytest.mark.parametrize("given", [{"x": 0.1}, {"x": 0.1, "y": None}])
def test_result_that_lacks_a_parameter_is_not_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    known_results = [{"results": [{"parameters": p, "value": v} for p, v in ((given, -9), ({"x": 0.1, "y": 0.3}, 2))]}]
    with pytest.warns(UserWarning, match="y is missing|y must be a number"):
        result = tune(loss, SQUARE, evaluations=1, known_results=known_results, **LOSS)
    assert present(result.known).values == (2.0,)
