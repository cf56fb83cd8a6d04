"""When short evaluations become tasks."""

import pytest

from bbkb.workers.messages import TrialSucceeded
from bbkb.workers.on_ray.executor import MANY, MEASURED, Durations


def success(seconds: float) -> TrialSucceeded:
    return TrialSucceeded(trial=0, attempt=0, started=0.0, finished=seconds, worker="w", value=1.0)


@pytest.mark.parametrize(
    ("evaluations", "seconds", "expected"),
    [
        pytest.param(MEASURED + MANY, 0.001, MEASURED, id="many-are-left"),
        pytest.param(MEASURED + MANY - 1, 0.001, MANY, id="too-few-are-left"),
        pytest.param(0, 0.001, MANY, id="unknown-number"),
        pytest.param(10 * MANY, 0.15, None, id="long-evaluations"),
    ],
)
def test_attempts_become_tasks_if_many_short_ones_follow(
    evaluations: int, seconds: float, expected: int | None
) -> None:
    durations = Durations("auto", evaluations)
    became_tasks = None
    for count in range(1, MANY + 1):
        durations.learn(success(seconds), 1.0)
        if durations.is_short and became_tasks is None:
            became_tasks = count
    assert became_tasks == expected
