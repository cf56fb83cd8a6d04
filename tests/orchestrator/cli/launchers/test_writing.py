"""What all launchers share: the number of evaluations that fit on the nodes; and the command that submits a Ray job."""

import json
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.commands import launchers
from bbkb.orchestrator.cli.commands.launchers import command_for
from bbkb.orchestrator.cli.launchers.kubernetes import Pods, reasons, workers_on
from bbkb.orchestrator.cli.launchers.slurm import JobResources, script_for
from bbkb.orchestrator.cli.launchers.writing import least_nodes, places_of
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.loading import from_mapping

NODE = {"CPU": 4.0, "GPU": 2.0}


def settings_of(**workers: object) -> Settings:
    space = {
        "nodes": {"choices": [1, 3, 2]},
        "gpus": {"low": 0, "high": 4, "integer": True},
        "x": {"low": 0, "high": 1},
    }
    objective = {"callable": "train.py:train", "direction": "maximize"}
    return from_mapping(
        {"name": "n", "objective": objective, "space": space, "budget": {"evaluations": 4}, "workers": workers}
    )


@pytest.mark.parametrize(
    ("workers", "count", "places"),
    [
        ({"gpus": 0.6}, 3, 6),  # a share of a graphics processor counts on each one
        ({"machines": 2, "cpus": 3}, 5, 2),
        ({"machines": 3, "cpus": 2, "spread": "soft"}, 2, 1),
        ({"machines": 8, "cpus": 1, "ray_train": True}, 4, 2),  # workers of a trainer may share a node
    ],
)
def test_evaluations_that_fit_on_the_nodes_are_counted(workers: dict[str, Any], count: int, places: int) -> None:
    settings = settings_of(**workers)
    assert places_of(settings, [NODE] * count, "nodes") == places
    assert workers_on(Pods(image="i", pods=count, cpus=4, gpus=2), settings) == places


def test_too_few_nodes_for_one_evaluation_are_rejected() -> None:
    with pytest.raises(UserError, match=r"--pods must be enough for one evaluation, which takes 3 machines .* got 2"):
        workers_on(Pods(image="i", pods=2, cpus=4), settings_of(machines=3))
    with pytest.raises(UserError, match=r"--nodes must be enough for one evaluation, which takes 3 machines .* got 2"):
        script_for(JobResources(nodes=2, cpus=4), settings_of(machines=3), ["c.yaml"], "first", Path("/bin"))


def test_largest_trial_must_fit_if_a_parameter_gives_its_resources() -> None:
    with pytest.raises(UserError, match=r"--gpus must be >= the largest workers\.gpus_from, 4, which .* got 2"):
        workers_on(Pods(image="i", cpus=4, gpus=2), settings_of(gpus_from="gpus"))


def test_largest_trial_is_displayed_as_the_most_that_one_takes() -> None:
    sized = settings_of(machines=3, gpus_from="gpus")
    script = script_for(JobResources(nodes=3, cpus=4, gpus=4), sized, ["c.yaml"], "first", Path("/bin"))
    (count,) = [setting for setting in script.settings if setting.name == "workers.count"]
    assert "3 nodes, at most 1 CPU and 4 GPUs on each of 3 machines an evaluation" in count.reason


@pytest.mark.parametrize(("workers", "ending"), [({}, "2 pods of 4 CPUs"), ({"count": 3}, "replaces the campaign's 3")])
def test_replaced_count_of_workers_is_displayed(workers: dict[str, int], ending: str) -> None:
    (count, *_) = reasons(Pods(image="i", pods=2, cpus=4), settings_of(**workers), "first")
    assert (count.value, count.reason.endswith(ending)) == ("8", True)


def test_nodes_that_one_evaluation_needs_are_counted() -> None:
    assert least_nodes(settings_of(), [NODE] * 3) == 1
    assert least_nodes(settings_of(machines=2, cpus=3), [NODE] * 3) == 2
    assert least_nodes(settings_of(machines=3), [NODE] * 4) == 3
    assert least_nodes(settings_of(machines=2, cpus=4), [{"CPU": 3.0}, *[NODE] * 3]) == 3
    assert least_nodes(settings_of(machines=8, cpus=1, ray_train=True), [NODE] * 3) == 2


def job_settings(runs: str) -> Settings:
    campaign = {
        "name": "sine",
        "objective": {"name": "sine"},
        "budget": {"evaluations": 5},
        "workers": {"timeout_seconds": 600.0},
        "runs": runs,
    }
    return from_mapping(campaign)


def test_command_uploads_the_campaigns_folder_and_is_safe_to_repeat(tmp_path: Path) -> None:
    settings = job_settings("/shared/runs")
    command = command_for(settings, tmp_path / "c.yaml", ["seed=3"], "first", None, "http://head:8265")
    options, _, entrypoint = " ".join(command).partition(" -- ")
    assert f"--working-dir {tmp_path}" in options
    assert entrypoint == "bbkb run c.yaml --set seed=3 --set runs=/shared/runs --run first --or-resume"
    assert json.loads(command[command.index("--metadata-json") + 1]) == {"job_name": "first"}
    environment = json.loads(command[command.index("--runtime-env-json") + 1])
    assert environment == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "635"}}
    assert {setting.name for setting in launchers.reasons(settings, "first")} >= {
        "job_name",
        "RAY_JOB_STOP_WAIT_TIME_S",
    }


@pytest.mark.parametrize("runs", ["relative/runs", "{folder}/runs"])
def test_results_folder_inside_the_uploaded_folder_is_rejected(tmp_path: Path, runs: str) -> None:
    results = Path(runs.format(folder=tmp_path))
    with pytest.raises(UserError, match="--runs must be an absolute path on the cluster and outside"):
        command_for(job_settings("/shared/runs"), tmp_path / "c.yaml", [], "first", results, "http://head:8265")
