"""Tests of workers/gangs/trainer_check.py, and of the evaluations to which it applies."""

import os
import sys

import pytest

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.objectives.returned import WithMetrics
from bbkb.workers.executor import ExecutorError
from bbkb.workers.on_ray.crews import refuse_trainers
from bbkb.workers.on_ray.gangs import TrainerCrew

CHECK = "bbkb.workers.on_ray.trainer_check"
VARIABLE = "RAY_TRAIN_CALLBACKS"


@pytest.mark.parametrize("others", ["", "own.Callback"])
def test_functions_are_checked_and_commands_get_no_variable_of_the_check(
    monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    monkeypatch.setenv(VARIABLE, others)
    for _ in range(2):
        refuse_trainers(PythonCallable("train:train"))
        assert os.environ[VARIABLE].removeprefix(",").split(",") == [*filter(None, [others]), f"{CHECK}.TrainerCheck"]
    refuse_trainers(WithMetrics(ShellCommand("true"), "value", ()))
    assert os.environ.get(VARIABLE, "") == others


@pytest.mark.parametrize("part", ["callbacks.placement_group_callback", "execution.callback", "execution.worker_group"])
def test_ray_without_the_inner_parts_is_rejected_with_the_version_that_has_them(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    pytest.importorskip("ray.train.v2")
    monkeypatch.delitem(sys.modules, CHECK, raising=False)
    monkeypatch.setitem(sys.modules, f"ray.train.v2._internal.{part}", None)
    with pytest.raises(
        ExecutorError, match=r"^workers\.ray_train needs the Ray Train of Ray 2\.60, got .*: pip install"
    ):
        TrainerCrew()
