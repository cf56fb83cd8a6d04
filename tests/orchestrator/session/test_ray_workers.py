"""Tests of the settings of evaluations that take several machines, from the campaign file to Ray's
placement."""

import pytest

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.session.executors import first_workers, placement_of
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Share
from bbkb.workers.on_ray.places import NamedNode, check_fits


def settings_of(**workers: object) -> Settings:
    return from_mapping(
        {"name": "gangs", "objective": {"name": "branin"}, "budget": {"evaluations": 4}, "workers": workers}
    )


def test_evaluation_on_several_machines_runs_in_worker_actors() -> None:
    settings = settings_of(machines=2, cpus=3)
    placement = placement_of(settings, "gangs", None)
    assert (placement.kind, placement.machines, placement.is_spread) == ("actor", 2, True)
    assert placement.share_of(None) == Share(cpus=3.0, gpus=0.0, machines=2)
    assert first_workers(settings, "gangs") is None


def test_trial_whose_parameter_gives_gpus_has_the_machines_too() -> None:
    workers = settings_of(machines=2, gpus_from="gpus").workers
    assert workers.share_of({"gpus": 4}) == Share(cpus=1.0, gpus=4.0, machines=2)
    assert workers.share_of({"gpus": None}) == Share(cpus=1.0, gpus=0.0, machines=2)


def test_trainers_of_ray_train_have_a_group_whose_parts_may_share_a_node() -> None:
    placement = placement_of(settings_of(ray_train=True), "trainers", None)
    assert (placement.kind, placement.is_spread) == ("actor", False)
    assert type(placement.crew).__name__ == "TrainerCrew"


@pytest.mark.parametrize(
    ("workers", "rule"),
    [
        ({"machines": 2, "executor": "inline"}, "must be 1 without workers.executor ray, got 2"),
        ({"machines": 2, "executor": "simulated"}, "must be 1 without workers.executor ray, got 2"),
        ({"machines": 2, "kind": "task"}, "must be actor or auto if workers.machines is above 1"),
        ({"ray_train": True, "executor": "inline"}, "ray_train needs workers.executor ray"),
        ({"ray_train": True, "kind": "task"}, "must be actor or auto"),
        ({"machines": 0}, "workers.machines"),
        ({"machines": 2, "spread": "wide"}, "workers.spread"),
    ],
)
def test_settings_that_cannot_work_are_rejected(workers: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        settings_of(**workers)


def test_machines_that_the_cluster_can_never_provide_are_rejected_with_the_list_of_nodes() -> None:
    nodes = [NamedNode(f"10.0.0.{number}", {"CPU": 4.0}) for number in range(2)]
    strict, soft = (
        placement_of(settings_of(machines=3, cpus=2, spread=spread), "g", None) for spread in ("strict", "soft")
    )
    check_fits(soft.largest_need(), nodes)
    with pytest.raises(
        ExecutorError, match=r"must fit on 3 nodes, got CPU 2 on each; the nodes have 10.0.0.0, 10.0.0.1"
    ):
        check_fits(strict.largest_need(), nodes)
