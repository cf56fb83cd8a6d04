"""What a campaign is built from: resources by parameter, and early stopping that needs reports."""

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bbkb import Campaign, Range, tune
from bbkb.objectives.problems.training.cnn import ConvolutionalNetwork, ConvolutionalTraining
from bbkb.objectives.problems.training.images import Rows
from bbkb.orchestrator.campaign.events import ReportsArrived, SessionOpened, TrialsContinued
from bbkb.orchestrator.campaign.settings import ModelStopping, Settings, plain
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.running.resume import with_recorded
from bbkb.orchestrator.session.build import (
    build,
    build_new,
    missing_program,
    remark_on_reports,
    with_training,
)
from bbkb.orchestrator.session.executors import unenforced_limits
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.runs import open_run
from bbkb.workers.messages import Share
from tests.orchestrator.runs import tune_here

SPACE = {
    "model": {"choices": ["tree", "network"]},
    "gpus": {"choices": [1, 2], "when": {"model": "network"}},
    "cores": {"low": 1, "high": 3, "integer": True},
    "lr": {"low": 0.0, "high": 2.0},
}


def settings_with(**workers: Any) -> Settings:
    tree = {
        "name": "shared",
        "objective": {"command": "echo 1", "direction": "maximize"},
        "space": SPACE,
        "budget": {"evaluations": 3},
        "workers": {"count": 2, **workers},
    }
    return from_mapping(tree)


def largest(**workers: Any) -> Share | None:
    return build(settings_with(**workers)).largest


def test_resources_of_a_trial_come_from_its_parameters_or_the_section() -> None:
    workers = {"gpus_from": "gpus", "cpus": 3, "gpus": 0.5}
    share_of = settings_with(**workers).workers.share_of
    assert share_of({"gpus": 2, "cores": 3}) == Share(cpus=3.0, gpus=2.0)
    assert share_of({"gpus": None, "cores": 1}) == Share(cpus=3.0, gpus=0.5)
    assert largest(**workers) == Share(cpus=3.0, gpus=2.0)


def test_missing_program_is_rejected_if_commands_run_here() -> None:
    here = settings_with(executor="inline")
    for command, is_there in (
        ("pyhton train.py", False),
        ("PYTHONPATH=. echo 1", True),
        ("if true; then echo 1; fi", True),
    ):
        tree = {**plain(here), "objective": {"command": command, "direction": "maximize"}}
        assert (missing_program(from_mapping(tree)) == "") is is_there
    tree["objective"] = {"command": "pyhton train.py", "direction": "maximize"}
    with pytest.raises(UserError, match=r"objective\.command: .* no program 'pyhton'; did you mean 'python'\?"):
        build_new(from_mapping(tree))
    tree["workers"] = {"count": 1}
    build_new(from_mapping(tree))  # other machines may have it


def test_resources_are_equal_for_all_trials_without_such_a_parameter() -> None:
    assert largest(cpus=2.0) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", r"workers\.gpus_from must be one of .*did you mean 'gpus'"),
        ("model", "model has '(tree|network)'"),
        ("lr", "whole above 1"),
    ],
)
def test_parameter_without_a_number_of_processors_is_rejected(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        largest(gpus_from=name)


def test_trials_may_take_no_graphics_processor(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("amount,score\n0,1.0\n1,2.0\n")
    tree = {
        "name": "table",
        "objective": {"direction": "maximize"},
        "candidates": {"table": str(table), "target": "score"},
        "budget": {"evaluations": 2},
        "workers": {"count": 1, "gpus_from": "amount"},
    }
    assert build(from_mapping(tree)).largest == Share(cpus=1.0, gpus=1.0)


def test_timeout_beyond_the_range_of_an_alarm_is_rejected_before_anything_runs() -> None:
    errors: list[str] = []

    def build_there(**workers: Any) -> None:
        try:
            build(settings_with(executor="inline", **workers))
        except UserError as error:
            errors.append(str(error))

    for workers in ({"timeout_seconds": 2.5}, {}):
        thread = threading.Thread(target=build_there, kwargs=workers, name="search")
        thread.start()
        thread.join()
    (message,) = errors
    assert "needs the program's main thread" in message
    assert "got 2.5 in the thread 'search'" in message
    build_there(timeout_seconds=2.5)  # here it is kept
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("executor", "named"),
    [
        ("inline", "workers.memory_gb is not enforced"),
        ("simulated", "workers.memory_gb and workers.timeout_seconds are not enforced"),
        ("ray", ""),
    ],
)
def test_limits_that_an_executor_does_not_enforce_are_named(executor: str, named: str) -> None:
    limits = {"memory_gb": 1, "timeout_seconds": 3}
    assert unenforced_limits(settings_with(executor=executor, **limits)).startswith(named)
    assert bool(unenforced_limits(settings_with(executor=executor, **limits))) == bool(named)
    assert unenforced_limits(settings_with(executor=executor, count=1)) == ""
    assert "workers.count has no effect" in unenforced_limits(settings_with(executor="inline", count=4))
    assert "workers.memory_gb is not enforced" in unenforced_limits(settings_with(executor="inline", memory_gb=1))


MODULE = """
def silent(x, **more):
    return x

def reporting(x, report):
    report(x, 1)
    return x
"""


def function(tmp_path: Path, name: str) -> dict[str, Any]:
    return {"callable": f"{tmp_path}/functions.py:{name}", "direction": "maximize"}


def tree(tmp_path: Path, objective: dict[str, Any], **sections: Any) -> dict[str, Any]:
    (tmp_path / "functions.py").write_text(MODULE)
    return {
        "name": "stopped",
        "objective": objective,
        "space": {"x": {"low": 0.0, "high": 1.0}},
        "budget": {"evaluations": 3},
        "early_stopping": {"rule": "median"},
        "workers": {"executor": "inline"},
        **sections,
    }


def test_function_without_report_is_rejected_with_early_stopping(tmp_path: Path) -> None:
    silent = function(tmp_path, "silent")
    settings = from_mapping(tree(tmp_path, silent))
    with pytest.raises(UserError, match=r"^early_stopping\.rule needs .* has no argument `report`: add it"):
        build_new(settings)
    build(settings)  # a run that has begun is continued
    build_new(from_mapping(tree(tmp_path, silent, early_stopping=None)))


def test_parameter_called_report_hides_the_function_of_that_name(tmp_path: Path) -> None:
    space = {"x": {"low": 0.0, "high": 1.0}, "report": {"low": 0.0, "high": 1.0}}
    objective = function(tmp_path, "reporting")
    with pytest.raises(UserError, match="`report` is a parameter of the space: rename it"):
        build_new(from_mapping(tree(tmp_path, objective, space=space)))


def test_function_that_reports_and_a_command_are_accepted(tmp_path: Path) -> None:
    for objective in (function(tmp_path, "reporting"), {"command": "echo {x}", "direction": "maximize"}):
        build_new(from_mapping(tree(tmp_path, objective)))


def test_tune_rejects_a_function_without_report_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a function that reports values"):
        tune(
            lambda x: x,
            {"x": Range(0, 1)},
            evaluations=3,
            direction="minimize",
            settings={"early_stopping": {"rule": "asha"}, "runs": str(tmp_path / "runs")},
        )
    assert not list((tmp_path / "runs").glob("*/campaign.yaml"))


@pytest.mark.parametrize(
    ("trainings", "last_step", "first"),
    [(10, 52, (10, 7)), (20, 52, (20, 7)), (40, 27, (40, 4)), (4, 52, (8, 4)), (1, 8, (8, 1))],
)
def test_short_first_trainings_end_at_the_pauses_of_trials(
    tmp_path: Path, trainings: int, last_step: int, first: tuple[int, int]
) -> None:
    rule = {"rule": "model", "last_step": last_step, "continue": True}
    objective = function(tmp_path, "reporting")
    budget = {"evaluations": 1000, "steps": trainings * last_step}
    settings = from_mapping(tree(tmp_path, objective, early_stopping=rule, budget=budget, strategy={"name": "bbkb"}))
    decided = with_training(settings, build(settings).objective).early_stopping
    assert isinstance(decided, ModelStopping)
    assert (decided.first_trials, decided.first_steps) == first


EPOCHS = 12


def softmax_tree(tmp_path: Path, **sections: Any) -> dict[str, Any]:
    """A campaign file with the two lines of early stopping."""
    return {
        "name": "softmax",
        "objective": {
            "name": "mnist_logistic_regression",
            "options": {"epochs": EPOCHS, "dataset": "digits", "train_size": 100},
            "direction": "maximize",
        },
        "early_stopping": {"rule": "model"},
        "budget": {"steps": 15 * EPOCHS},
        "workers": {"executor": "inline"},
        "runs": str(tmp_path / "runs"),
        **sections,
    }


def decide(tree: dict[str, Any]) -> tuple[ModelStopping, bool]:
    settings = from_mapping(tree)
    decided = with_training(settings, build_new(settings).parts.training_objective)
    assert isinstance(decided.early_stopping, ModelStopping)
    return decided.early_stopping, decided.workers.trial_folders


def test_training_that_is_part_of_bbkb_continues_and_ends_with_its_epochs(tmp_path: Path) -> None:
    rule, has_folders = decide(softmax_tree(tmp_path))
    assert (rule.continues, rule.last_step, has_folders) == (True, EPOCHS, True)
    assert rule.first_trials
    rule, has_folders = decide(softmax_tree(tmp_path, early_stopping={"rule": "model", "continue": False}))
    assert (rule.continues, rule.last_step, has_folders) == (False, EPOCHS, False)


def test_last_step_other_than_the_epochs_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"last_step must be 12, the epochs of this objective, or be left out, got 9"):
        build_new(from_mapping(softmax_tree(tmp_path, early_stopping={"rule": "model", "last_step": 9})))
    assert decide(softmax_tree(tmp_path, early_stopping={"rule": "model", "last_step": EPOCHS}))[0].last_step == EPOCHS


def test_training_of_one_epoch_has_no_last_step(tmp_path: Path) -> None:
    objective = {**softmax_tree(tmp_path)["objective"], "options": {"epochs": 1, "dataset": "digits"}}
    assert decide(softmax_tree(tmp_path, objective=objective))[0].last_step is None


def test_resumed_run_keeps_its_decisions(tmp_path: Path) -> None:
    begun = {"rule": "model", "continue": "anew", "first_trials": 0, "first_steps": 1}
    old = from_mapping(softmax_tree(tmp_path, early_stopping=begun))
    for resumed in (old, with_recorded(old, from_mapping(softmax_tree(tmp_path)))):
        decided = with_training(resumed, build(resumed).training_objective, is_begun=True)
        assert decided.early_stopping == old.early_stopping
        assert not decided.workers.trial_folders


def test_reports_of_another_quantity_than_the_result_are_named_if_compared(tmp_path: Path) -> None:
    rows = Rows(np.zeros((12, 64), np.uint8), np.arange(12) % 2, 1 / 16)
    tested, validated = (
        ConvolutionalTraining(rows, rows, rows, ConvolutionalNetwork(returns=returns), "")
        for returns in ("test", "validation")
    )
    settings = from_mapping(softmax_tree(tmp_path))
    assert "write returns: validation into objective.options" in remark_on_reports(settings, tested)
    assert remark_on_reports(settings, validated) == remark_on_reports(settings, build(settings).objective) == ""
    assert remark_on_reports(from_mapping(softmax_tree(tmp_path, early_stopping={"rule": "median"})), tested) == ""


def test_trainings_pause_and_continue_from_checkpoints_with_two_lines(tmp_path: Path) -> None:
    (tmp_path / "softmax.yaml").write_text(yaml.safe_dump(softmax_tree(tmp_path)))
    result = Campaign.from_file(tmp_path / "softmax.yaml").run(progress=False)
    events = list(open_run(result.folder).events())
    opened = next(event for event in events if isinstance(event, SessionOpened))
    rule = opened.settings.early_stopping
    assert isinstance(rule, ModelStopping)
    assert rule.last_step == EPOCHS
    assert any(isinstance(event, TrialsContinued) for event in events)
    reports = [report for event in events if isinstance(event, ReportsArrived) for report in event.reports]
    reached: dict[int, int] = {}
    for trial, attempt, step, _ in reports:
        assert step >= reached.get(trial, 0) if attempt > 1 else step == reached.get(trial, 0) + 1
        reached[trial] = step
    assert max(attempt for _, attempt, _, _ in reports) > 2
    for folder in (result.folder / "trials").iterdir():
        assert len(list(folder.glob("step-*.npz"))) == 1


def test_search_continues_after_a_first_trial_that_reports_only_nan(tmp_path: Path) -> None:
    calls: list[float] = []

    def trained(x: float, report: Any) -> float:
        calls.append(x)
        for step in range(1, 9):
            report(float("nan") if len(calls) == 1 else x * step, step)
        return 8.0 * x

    settings = {"early_stopping": {"rule": "model", "last_step": 8}, "strategy": {"name": "bbkb"}}
    result = tune_here(tmp_path, trained, settings=settings, evaluations=8)
    assert result.best.status == "succeeded"
    first = [row["value"] for row in result.rows(reports=True) if row["trial"] == 0]
    assert math.isnan(first[0])
