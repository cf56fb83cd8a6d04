"""Fixtures of the tests of workers."""

from collections.abc import Callable, Iterator

import pytest

from bbkb.objectives.objective import Objective
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import Kind, Placement

Start = Callable[[Objective, int, Placement], RayExecutor]


@pytest.fixture(params=["task", "actor"])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts executors on Ray, which are closed after the test."""
    executors: list[RayExecutor] = []

    def start_one(objective: Objective, slots: int, placement: Placement) -> RayExecutor:
        executors.append(RayExecutor(objective, slots, placement))
        return executors[-1]

    yield start_one
    for executor in executors:
        executor.close()
