"""Tests of workers/on_ray/sharing.py: campaigns on one cluster divide its slots."""

import sys
import time

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.messages import Attempt, Share, TrialSucceeded
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import Placement
from bbkb.workers.on_ray.sharing import LOST_SECONDS, Sharing, fair_parts, slots_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import this file

PARTS = st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0.01, 1.0), min_size=1, max_size=6)


@given(PARTS)
def test_parts_are_fair_and_use_all_requested_slots(demands: dict[str, float]) -> None:
    parts = fair_parts(demands)
    assert sum(parts.values()) == pytest.approx(min(1.0, sum(demands.values())))
    most = max(parts.values())
    for name, part in parts.items():  # the smaller part is all that was requested
        assert part == pytest.approx(most) or part == demands[name]


@given(PARTS, st.integers(1, 50))
def test_slots_belong_to_one_campaign_and_equal_demands_get_equal_shares(demands: dict[str, float], there: int) -> None:
    places = {name: slots_of(name, there, demands) for name in demands}
    assert sum(places.values()) <= there
    equal = dict.fromkeys(demands, 1.0)
    shares = [slots_of(name, there, equal) for name in equal]
    assert sum(shares) == there
    assert max(shares) - min(shares) <= 1


def test_silent_campaign_is_ignored(ray_cluster: str) -> None:
    now = [0.0]
    # apart from campaigns of other tests on this cluster, which may have left their entries or may
    # still end
    one, other = (Sharing(name, lambda: now[0], namespace="test of silence") for name in ("one", "other"))
    assert one.own(4, 4) == 4
    assert other.own(4, 4) == 2
    assert one.own(4, 4) == 2
    now[0] += LOST_SECONDS + 1.0
    assert one.own(4, 4) == 4
    assert other.own(4, 4) == 2  # it was only slow
    assert one.own(4, 4) == 2
    other.leave()
    assert one.own(4, 4) == 4
    one.leave()


class Graphics:
    """The value is the number of graphics processors that Ray has assigned."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        time.sleep(0.05)
        return Evaluation(float(len(ray.get_gpu_ids())))


@pytest.mark.parametrize("kind", ["task", "actor"])
def test_trials_get_the_gpus_that_they_request(ray_cluster: str, kind: str) -> None:
    placement = Placement(f"graphics {kind}", "t", "task" if kind == "task" else "actor", largest=Share(cpus=1, gpus=2))
    executor = RayExecutor(Graphics(), 4, placement)
    amounts = [2, 0, 1, 1, 2, 0]
    executor.submit([Attempt(i, i, {}, 0, share=Share(cpus=1, gpus=gpus)) for i, gpus in enumerate(amounts)])
    values: dict[int, float] = {}
    while batch := executor.next_outcomes(None):
        assert all(isinstance(outcome, TrialSucceeded) for outcome in batch), batch
        values.update((outcome.trial, outcome.value) for outcome in batch if isinstance(outcome, TrialSucceeded))
    executor.close()
    assert [values[i] for i in range(len(amounts))] == amounts


class Sleep:
    """Takes a tenth of a second."""

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        time.sleep(0.1)
        return Evaluation(0.0)


def test_campaigns_share_the_slots_equally_and_the_last_one_gets_all(ray_cluster: str) -> None:
    executors = [RayExecutor(Sleep(), 4, Placement(f"half {name}", "t", "task")) for name in "ab"]
    for executor in executors:
        executor.submit([Attempt(i, i, {}, 0) for i in range(2000)])
    slots: list[tuple[int, ...]] = []
    workers: list[set[str]] = [set(), set()]
    # worker processes start one after the other, on a busy machine within many seconds
    while (2, 2) not in slots or min(map(len, workers)) < 2:
        for executor, used in zip(executors, workers, strict=True):
            used.update(outcome.worker for outcome in executor.next_outcomes(0.05))
        slots.append(tuple(executor.slots for executor in executors))
    counts = [0, 0]
    while min(counts) < 30:
        for number, executor in enumerate(executors):
            counts[number] += len(executor.next_outcomes(0.02))
    assert max(counts) <= 2 * min(counts), "both have two places, and so about the same number of results"
    executors[0].close()
    while executors[1].slots < 4:
        executors[1].next_outcomes(0.05)
    executors[1].close()
