"""Tests of workers/on_ray/trainers.py: evaluations with a trainer of Ray Train, on a cluster of two
nodes."""

from importlib.util import find_spec
from typing import Any

import pytest

from tests.workers.on_ray.test_gangs import only_failure, run_course

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch, which the trainer starts, is missing"),
]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_course(tmp_path_factory.mktemp("t"), "trained_unasked", "trained_too_long", "trained", "trained_by_more")


def test_trainers_of_ray_train_run_one_after_the_other_where_one_fits(course: dict[str, Any]) -> None:
    part = course["trained"]
    assert part["slots"] == 1
    assert [outcome["value"] for outcome in part["outcomes"]] == [0.0, 3.0]


def test_trainer_with_more_workers_than_the_evaluation_has_room_for_is_refused(course: dict[str, Any]) -> None:
    kind, message = only_failure(course["trained_by_more"])
    assert kind == "error"
    assert "workers.machines = 2 with {'CPU': 3.0} each, got 3 workers with {'CPU': 3}" in message


def test_trainer_in_an_evaluation_that_holds_processors_is_refused(course: dict[str, Any]) -> None:
    kind, message = only_failure(course["trained_unasked"])
    assert kind == "error"
    assert "only from a function and with workers.ray_train" in message


def test_time_out_ends_a_trainer(course: dict[str, Any]) -> None:
    assert only_failure(course["trained_too_long"])[0] == "timeout"
