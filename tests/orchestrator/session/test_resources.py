"""Tests of orchestrator/session/resources.py: a parameter gives the resources of each trial."""

import threading
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign.settings import Settings, plain
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.build import Resources, build, build_new, missing_program
from bbkb.orchestrator.session.executors import unenforced_limits
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.workers.messages import Share
from tests.present import present

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


def resources(**workers: Any) -> Resources | None:
    return build(settings_with(**workers)).resources


def test_resources_of_a_trial_come_from_its_parameters_or_the_section() -> None:
    trial_resources = resources(gpus_from="gpus", cpus=3, gpus=0.5)
    assert trial_resources is not None
    assert trial_resources.workers.share_of({"gpus": 2, "cores": 3}) == Share(cpus=3.0, gpus=2.0)
    assert trial_resources.workers.share_of({"gpus": None, "cores": 1}) == Share(cpus=3.0, gpus=0.5)
    assert trial_resources.largest == Share(cpus=3.0, gpus=2.0)


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
    assert resources(cpus=2.0) is None


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
        resources(gpus_from=name)


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
    resources = present(build(from_mapping(tree)).resources)
    assert resources.largest == Share(cpus=1.0, gpus=1.0)


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
