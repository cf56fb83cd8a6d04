"""A campaign with two objectives and a constraint, from the file to the front: one run, checked in
all its outputs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bbkb import Result, load, tune
from bbkb.objectives.objective import Report
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.campaign.events import CampaignCreated, TrialSucceeded, body_of
from bbkb.orchestrator.campaign.results import TrialResult
from bbkb.orchestrator.engine.replaying import replay_until
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.history.facts import facts, headline
from bbkb.orchestrator.report.figure import Spec
from bbkb.orchestrator.report.page import figures_of, snapshot, trial_table
from bbkb.orchestrator.report.progress import best_so_far, best_steps
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.store.verify import verify
from tests.orchestrator.runs import bbkb, history_of, tune_here

SPACE = {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}
OBJECTIVES: list[dict[str, Any]] = [
    {"metric": "accuracy"},
    {"metric": "size", "direction": "minimize", "reference": 2.0},
]
CONSTRAINTS: list[dict[str, Any]] = [{"metric": "memory", "at_most": 1.2}]


def train(x: float, y: float) -> dict[str, float]:
    return {"accuracy": 1 - (x - 0.7) ** 2 - (y - 0.3) ** 2, "size": x + y, "memory": 2 * x}


def train_and_report(x: float, y: float, report: Report) -> dict[str, float]:
    metrics = train(x, y)
    for step in (1, 2, 4):
        report(metrics["accuracy"] * step / 4, step=step)
    return metrics


def run_campaign(
    folder: Path, evaluations: int = 40, function: Callable[..., dict[str, float]] = train, **goals: Any
) -> Result:
    settings = {"runs": str(folder), "workers": {"executor": "simulated"}, "seed": 3}
    return tune(
        function,
        SPACE,
        evaluations=evaluations,
        workers=4,
        progress=False,
        settings=settings,
        **goals,
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_campaign(tmp_path_factory.mktemp("runs"), objectives=OBJECTIVES, constraints=CONSTRAINTS)


def output_of(*arguments: str) -> str:
    return bbkb(*arguments).stdout


def test_front_has_the_feasible_trials_that_none_dominates(result: Result) -> None:
    feasible = [row for row in result.rows() if row["metric.memory"] <= 1.2]
    front = {(trial.value, trial.metrics["size"]) for trial in result.front}
    for row in feasible:
        value, size = row["value"], row["metric.size"]
        is_beaten = any(a >= value and b <= size and (a, b) != (value, size) for a, b in front)
        assert is_beaten != ((value, size) in front)
    assert [trial.value for trial in result.front] == sorted(
        (float(trial.value or 0.0) for trial in result.front), reverse=True
    )
    assert result.best == result.front[0]
    assert result.best.value == max(row["value"] for row in feasible)
    assert result.hypervolume is not None
    assert result.hypervolume > 1.3
    assert load(result.folder).front == result.front
    assert f"front: {len(result.front)} trials (hypervolume " in repr(result)


def test_callback_gets_the_trials_of_the_result(tmp_path: Path) -> None:
    delivered: list[TrialResult] = []
    result = run_campaign(
        tmp_path, evaluations=9, on_result=delivered.append, objectives=OBJECTIVES, constraints=CONSTRAINTS
    )
    assert sorted(delivered, key=lambda trial: trial.trial or 0) == list(result.trials)


def test_search_spreads_along_the_front(result: Result) -> None:
    sizes = sorted(trial.metrics["size"] for trial in result.front)
    assert len(sizes) >= 8
    assert sizes[-1] - sizes[0] > 0.5  # sizes are between 0 and 1


def test_draws_are_repeated_and_the_log_is_sound(result: Result) -> None:
    run = open_run(result.folder)
    problem = build(history_of(result).settings).problem
    replayed = replay_until(problem, list(run.events()), None, is_checked=True)
    assert replayed.repeated > 10
    assert replayed.differences == ()
    with run.store() as store:
        assert verify(store, run.name).problems == []


def test_resumed_campaign_continues_as_if_it_had_not_stopped(result: Result, tmp_path: Path) -> None:
    short = run_campaign(tmp_path, evaluations=24, objectives=OBJECTIVES, constraints=CONSTRAINTS)
    output_of("resume", str(short.folder), "--set", "budget.evaluations=40")
    longer = load(short.folder)
    assert len(longer.rows()) == 40
    assert [row["x"] for row in longer.rows()[:20]] == [row["x"] for row in result.rows()[:20]]
    assert longer.hypervolume == pytest.approx(result.hypervolume, rel=0.05)


def test_status_report_and_page_show_front_hypervolume_and_feasible_share(result: Result) -> None:
    status = history_of(result).status()
    assert status.goals is not None
    assert status.goals.front == len(result.front)
    assert status.goals.reference[1] == 2.0
    shown = snapshot(history_of(result), "c")
    assert "front" in [figure["name"] for figure in shown["figures"]]
    assert [row[0] for row in shown["answer"]["front"]["rows"]] == [trial.trial for trial in result.front][:20]


def test_pictures_tables_and_rows_mark_feasible_results(result: Result) -> None:
    rows, history = result.rows(), history_of(result)
    assert [row["trial.feasible"] for row in rows] == [row["metric.memory"] <= 1.2 for row in rows]
    assert [trial.is_feasible for trial in result.trials] == [row["trial.feasible"] for row in rows]
    infeasible = next(row for row in history.trials if row.is_feasible is False)
    memory = infeasible.metrics["memory"]
    why = f"infeasible: memory is {memory:.6g} and must be at most 1.2"
    assert rows[infeasible.trial]["trial.remark"] == why
    table = trial_table(history)
    place = [column["name"] for column in table["columns"]].index("remark")
    assert [row[place] is not None for row in table["rows"]] == [not row["trial.feasible"] for row in rows]
    assert why in output_of("status", str(result.folder), "--trial", str(infeasible.trial))
    parallel = next(figure for figure in figures_of(history) if figure.name == "parameters")
    assert "feasible" in [dimension["label"] for dimension in parallel.traces[0]["dimensions"]]


def drawn_course(result: Result) -> list[Spec]:
    figure = best_so_far(history_of(result))
    assert figure is not None
    return figure.traces


def test_best_is_on_the_front_when_several_trials_share_the_best_first_value(tmp_path: Path) -> None:
    def train_coarsely(x: float, y: float) -> dict[str, float]:
        return {"accuracy": float(x > 0.2), "size": x + y, "memory": 2 * x}

    result = run_campaign(tmp_path, 30, train_coarsely, objectives=OBJECTIVES, constraints=CONSTRAINTS)
    status = history_of(result).status()
    assert sum(trial.value == 1.0 for trial in result.trials) > 1
    assert result.best == result.front[0]
    assert status.best.metrics["size"] == result.front[0].metrics["size"]
    assert f"size {result.front[0].metrics['size']:.6g}" in status.best.text


def test_best_value_so_far_is_that_of_feasible_results(result: Result, tmp_path: Path) -> None:
    history = history_of(result)
    course = drawn_course(result)
    best, _, line = course
    assert [trace["name"] for trace in course] == ["evaluations", "infeasible", "best so far"]
    assert len(best["x"]) == sum(row.is_feasible is True for row in history.trials)
    assert line["y"][-1] == pytest.approx(result.best.value, rel=1e-5)
    assert max(row["value"] for row in result.rows()) > line["y"][-1] + 1e-3
    assert best_steps(history)[1][-1] == result.best.value
    never = [{"metric": "memory", "at_most": -1.0}]
    nothing = run_campaign(tmp_path, evaluations=8, objectives=OBJECTIVES[:1], constraints=never)
    assert [trace["name"] for trace in drawn_course(nothing)] == ["evaluations", "infeasible"]


def test_best_configuration_has_its_further_metrics(result: Result) -> None:
    status, memory = history_of(result).status(), result.best.metrics["memory"]
    assert status.best.metrics == {"size": result.best.metrics["size"], "memory": memory}
    assert f"memory {memory:.6g}" in status.best.text
    told = {fact.label: fact for fact in facts(status)}
    assert f"memory {memory:.6g}" in told["best value"].value
    assert f"best accuracy {result.best.value:.6g} (maximized)" in headline(status)
    assert f"memory {memory:.6g}" in output_of("status", str(result.folder))
    assert f"memory {memory:.6g}" in repr(result)
    assert told["feasible"].remark == "memory at most 1.2"


def test_commands_show_the_front(result: Result) -> None:
    folder = str(result.folder)
    best = yaml.safe_load(output_of("best", folder))
    assert [trial["objectives"]["accuracy"] for trial in best] == [trial.value for trial in result.front]
    assert best == json.loads(output_of("best", folder, "--format", "json"))
    assert len(output_of("best", folder, "--format", "args").splitlines()) == len(result.front)
    assert f"front of {len(result.front)}" in output_of("list", str(result.folder.parent))
    assert "feasible" in output_of("status", folder)


def test_log_of_one_objective_has_no_goals(tmp_path: Path) -> None:
    result = tune_here(tmp_path, lambda x, y: x, SPACE, evaluations=2, workers=1)
    created, *events = open_run(result.folder).events()
    assert isinstance(created, CampaignCreated)
    assert created.settings.goals.is_single
    succeeded = next(event for event in events if isinstance(event, TrialSucceeded))
    assert "metrics" not in json.loads(body_of(succeeded))
    assert history_of(result).status().goals is None
    assert result.front == (result.best,)


def test_reports_of_the_first_objective_are_shown_and_change_no_pick(result: Result, tmp_path: Path) -> None:
    reported = run_campaign(tmp_path, function=train_and_report, objectives=OBJECTIVES, constraints=CONSTRAINTS)
    assert [(row["x"], row["y"]) for row in reported.rows()] == [(row["x"], row["y"]) for row in result.rows()]
    ends = [row["value"] for row in reported.rows(reports=True) if row["step"] == 4]
    assert ends == [row["value"] for row in reported.rows()]


def test_uniform_supports_goals_and_has_no_best_trial_if_nothing_is_feasible(tmp_path: Path) -> None:
    never = [{"metric": "memory", "at_most": -1}]
    goals: dict[str, Any] = {"objectives": OBJECTIVES, "constraints": never}
    result = tune_here(tmp_path, train, SPACE, evaluations=3, **goals)
    assert result.front == ()
    assert result.hypervolume is None
    with pytest.raises(RunError, match="none of 3 results satisfies all constraints"):
        _ = result.best
    with pytest.raises(RunError, match="none of 3 results satisfies all constraints"):
        bbkb("best", result.folder)
    assert result.report.is_file()


def test_result_without_a_metric_fails_and_names_it(tmp_path: Path) -> None:
    def incomplete(x: float, y: float) -> dict[str, float]:
        return {"accuracy": x}

    result = tune_here(tmp_path, incomplete, SPACE, evaluations=2, objectives=OBJECTIVES)
    assert all("no metric 'size', which objectives.1 names" in str(row["error"]) for row in result.rows())
