"""Tests of orchestrator/session/training.py: early stopping needs an objective that reports."""

from pathlib import Path
from typing import Any

import pytest

from bbkb import Range, tune
from orchestrator.errors import UserError
from orchestrator.session.assemble import build, build_new
from orchestrator.session.training import with_training
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.sections import ModelStoppingSettings

MODULE = """
def silent(x, **more):
    return x

def reporting(x, report):
    report(x, 1)
    return x
"""


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


def test_a_function_without_report_is_refused_where_trials_are_stopped_early(tmp_path: Path) -> None:
    settings = from_mapping(tree(tmp_path, {"callable": f"{tmp_path}/functions.py:silent"}))
    with pytest.raises(
        UserError, match=r"^early_stopping\.rule needs .* `report` is no argument of it: add the argument"
    ):
        build_new(settings)
    build(settings)  # a run that an older version began is continued
    build_new(from_mapping(tree(tmp_path, {"callable": f"{tmp_path}/functions.py:silent"}, early_stopping=None)))


def test_a_parameter_called_report_hides_the_function_of_that_name(tmp_path: Path) -> None:
    space = {"x": {"low": 0.0, "high": 1.0}, "report": {"low": 0.0, "high": 1.0}}
    objective = {"callable": f"{tmp_path}/functions.py:reporting"}
    with pytest.raises(UserError, match="`report` is a parameter of the space: rename the parameter"):
        build_new(from_mapping(tree(tmp_path, objective, space=space)))


@pytest.mark.parametrize("objective", [{"callable": "{}/functions.py:reporting"}, {"command": "train {{x}}"}])
def test_a_function_that_reports_and_a_command_are_accepted(tmp_path: Path, objective: dict[str, str]) -> None:
    build_new(from_mapping(tree(tmp_path, {key: text.format(tmp_path) for key, text in objective.items()})))


def test_tune_refuses_it_before_anything_is_written(tmp_path: Path) -> None:
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
def test_short_first_trainings_end_where_trials_pause(
    tmp_path: Path, trainings: int, last_step: int, first: tuple[int, int]
) -> None:
    rule = {"rule": "model", "last_step": last_step, "continue": True}
    objective = {"callable": f"{tmp_path}/functions.py:reporting"}
    budget = {"evaluations": 1000, "steps": trainings * last_step}
    settings = from_mapping(tree(tmp_path, objective, early_stopping=rule, budget=budget, strategy={"name": "bbkb"}))
    decided = with_training(settings, build(settings).objective).early_stopping
    assert isinstance(decided, ModelStoppingSettings)
    assert (decided.first_trials, decided.first_steps) == first
