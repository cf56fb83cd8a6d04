"""Tests of workers/gangs/trainers.py: evaluations with a trainer of Ray Train, on a cluster of two
nodes."""

from typing import Any

import pytest

from tests.workers.gangs.test_ranks import HAS_TORCH, only_failure, run_course, with_torch

pytestmark = [pytest.mark.thorough, pytest.mark.slow]  # five minutes on two cores
PARTS = (
    "trained_unasked",
    "trained_on_another_ray",
    "trained_too_long",
    "trained",
    *(["trained_by_torch"] if HAS_TORCH else []),
    "trained_by_more",
    "trained_until_killed",
    "trained_on_lost_node",
)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_course(tmp_path_factory.mktemp("t"), *PARTS)


def test_trainers_of_ray_train_take_turns_if_one_fits(course: dict[str, Any]) -> None:
    part = course["trained"]
    assert part["slots"] == 1
    assert [outcome["value"] for outcome in part["outcomes"]] == [3.0, 6.0]


@with_torch
def test_trainer_of_pytorch_sums_over_its_workers(course: dict[str, Any]) -> None:
    assert [outcome["value"] for outcome in course["trained_by_torch"]["outcomes"]] == [3.0]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("trained_on_another_ray", "workers.ray_train needs the Ray Train of Ray 2.60, got 2."),
        ("trained_by_more", "workers.machines = 2 with {'CPU': 3.0} each, got 3 workers with {'CPU': 3}"),
        ("trained_unasked", "only from a function and with workers.ray_train"),
    ],
    ids=["another version of Ray", "more workers than there is room for", "without ray_train"],
)
def test_trainer_that_cannot_run_fails_with_the_requirement(course: dict[str, Any], part: str, text: str) -> None:
    kind, message = only_failure(course[part])
    assert kind == "error"
    assert text in message


def test_time_out_ends_a_trainer(course: dict[str, Any]) -> None:
    assert only_failure(course["trained_too_long"])[0] == "timeout"


def test_killed_worker_of_a_trainer_is_a_lost_worker_and_not_an_error_of_the_function(course: dict[str, Any]) -> None:
    assert only_failure(course["trained_until_killed"])[0] == "worker lost"


def test_lost_node_of_a_trainers_worker_is_the_nodes_fault(course: dict[str, Any]) -> None:
    assert only_failure(course["trained_on_lost_node"])[0] == "node lost"
