"""Places for evaluations on the nodes of a cluster."""

import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray import cloudpickle
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Attempt, Share, TrialSucceeded
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import LOST_SECONDS, NamedNode, Placement, Sharing, check_fits, fair_parts, slots_of
from bbkb.workers.packing import Need, Node, fits, slots_on
from tests.processes import SOON, run_python

LOSES_NODES = """
import sys, time
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster
from bbkb.objectives.objective import Evaluation
from bbkb.workers.messages import Limits, Attempt
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.places import Placement

class Slow:
    def evaluate(self, parameters, seed, report):
        open(f"{folder}/{kind}-{parameters['x']}-{ray.get_runtime_context().get_node_id()}", "w").close()
        time.sleep(parameters["x"])
        return Evaluation(1.0)

folder, kind = sys.argv[1:]
options = dict(num_cpus=1, object_store_memory=100 * 2**20)
cluster = Cluster(initialize_head=True, head_node_args={**options, "num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(**options) for _ in range(2)]
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
executor = RayExecutor(Slow(), 2, Placement("nodes", "t", kind))
executor.submit([Attempt(0, 0, {"x": 2.0}, 0), Attempt(1, 1, {"x": 60.0}, 0)])
node_of = {}
while len(node_of) < 2:
    import glob
    node_of = {float(name.split("-")[-2]): name.split("-")[-1] for name in glob.glob(f"{folder}/{kind}-*")}
    time.sleep(0.05)
lost = next(node for node in nodes if node.node_id == node_of[60.0])
cluster.remove_node(lost, allow_graceful=False)
seen = {}
while batch := executor.next_outcomes(None):
    seen.update({outcome.trial: outcome for outcome in batch})
executor.close()
ray.shutdown()
cluster.shutdown()
print(", ".join(f"{trial} {getattr(outcome, 'failure', 'success')}" for trial, outcome in sorted(seen.items())))
"""


@pytest.mark.parametrize("kind", ["actor", pytest.param("task", marks=pytest.mark.slow)])
@pytest.mark.thorough
def test_attempt_on_a_dead_node_is_a_lost_node_and_others_continue(short_folder: str, kind: str) -> None:
    result = run_python("-c", LOSES_NODES, short_folder, kind, RAY_TMPDIR=short_folder, **SOON)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "0 success, 1 node lost"


@pytest.mark.slow
def test_number_of_workers_follows_the_slots_while_nodes_join_and_leave(tmp_path: Path, short_folder: str) -> None:
    out = tmp_path / "found.json"
    program = ("-m", "tests.workers.on_ray.growing_cluster", str(out))
    ignored = ("-W", "ignore::ResourceWarning")
    done = run_python(*ignored, *program, cwd=tmp_path, seconds=290, RAY_TMPDIR=short_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    print(done.stdout, document)
    assert (document["reason"], document["first"]) == ("stopped on request, after its running evaluations", 2)
    assert max(document["slots"]) == 6
    assert document["slots"][-1] == 3
    assert set(document["failures"]) <= {"node lost"}
    # attempts on the three lost nodes, and those that Ray sent there before it knew
    assert len(document["failures"]) <= 6
    assert document["least_in_flight"] == 6  # in steady state no slot is empty
    assert document["numbers"][-1] <= 9  # six at a time, and up to three whose names were not free yet
    assert document["processes"] <= 12  # six, replacements of those on lost nodes, and a few to spare


def test_need_that_fits_no_node_is_rejected_with_the_list_of_nodes() -> None:
    small, large = {"CPU": 4.0, "memory": 2.0**33}, {"CPU": 8.0, "GPU": 1.0, "memory": 2.0**34}
    nodes = [*(NamedNode(f"10.0.0.{number}", small) for number in range(10)), NamedNode("10.0.1.1", large)]
    check_fits(Need(cpus=8.0, gpus=0.5), nodes)
    with pytest.raises(ExecutorError) as refused:
        check_fits(Need(cpus=4.0, gpus=2.0), nodes)
    assert "must fit on one node, got CPU 4, GPU 2" in str(refused.value)
    assert "10.0.0.0, 10.0.0.1" in str(refused.value)
    assert "and 2 more: CPU 4, GPU 0" in str(refused.value)
    assert "10.0.1.1: CPU 8, GPU 1" in str(refused.value)


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


REFUSED_SECONDS = 2.0  # without an answer, after which Ray has no room for a group
AMOUNTS = st.sampled_from([0.0, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0])
NODES = st.lists(
    st.fixed_dictionaries({"CPU": st.integers(0, 6).map(float), "GPU": st.integers(0, 3).map(float)}), max_size=3
)


def test_share_below_one_comes_from_a_single_graphics_processor() -> None:
    assert slots_on([{"CPU": 64.0, "GPU": 8.0}], Need(cpus=1.0, gpus=0.4)) == 16
    assert slots_on([{"CPU": 64.0, "GPU": 8.0}], Need(cpus=1.0, gpus=1 / 7)) == 56
    assert slots_on([{"CPU": 64.0, "GPU": 8.0}], Need(cpus=1.0, gpus=3.0)) == 2


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("amount", [0.3, 0.4, 2 / 3, 1 / 7, 0.1429, 2.0])
def test_raylet_accepts_exactly_the_counted_slots(amount: float) -> None:
    node = {"CPU": 4.0, "GPU": 2.0}
    assert len(accepted({"GPU": amount}, most=30)) == slots_on([node], Need(gpus=amount))
    assert len(accepted({"CPU": amount}, most=30)) == slots_on([node], Need(cpus=amount))


def accepted(bundle: dict[str, float], most: int) -> list[PlacementGroup]:
    """Groups of one bundle that the cluster takes at the same time, at most this many; they are
    removed again."""
    groups: list[PlacementGroup] = []
    before = ray.available_resources()
    while len(groups) < most:
        group = placement_group([bundle])
        if not group.wait(REFUSED_SECONDS):
            remove_placement_group(group)
            break
        groups.append(group)
    for group in groups:
        remove_placement_group(group)
    while any(ray.available_resources().get(name, 0.0) < before[name] for name in bundle):
        time.sleep(0.05)
    return groups


@given(NODES, AMOUNTS, AMOUNTS, st.integers(1, 3), st.booleans())
def test_count_is_the_largest_number_that_fits_one_by_one(
    nodes: list[Node], cpus: float, gpus: float, machines: int, is_spread: bool
) -> None:
    need = Need(cpus=cpus + 0.5, gpus=gpus, machines=machines, is_spread=is_spread)
    counted = slots_on(nodes, need)
    assert fits(nodes, [need] * counted)
    assert not fits(nodes, [need] * (counted + 1))


@given(NODES, st.lists(AMOUNTS, max_size=5))
def test_fits_accepts_only_needs_that_some_assignment_allows(nodes: list[Node], amounts: list[float]) -> None:
    needs = [Need(cpus=1.0, gpus=amount) for amount in amounts]
    if fits(nodes, needs):
        assert any(map(has_room, assignments(nodes, amounts)))


def assignments(nodes: list[Node], amounts: list[float]) -> Iterator[list[tuple[Node, list[float]]]]:
    """Yield every way to divide the amounts among the nodes."""
    for numbers in itertools.product(range(len(nodes)), repeat=len(amounts)):
        yield [
            (node, [amount for amount, at in zip(amounts, numbers, strict=True) if at == number])
            for number, node in enumerate(nodes)
        ]


def has_room(assignment: list[tuple[Node, list[float]]]) -> bool:
    """Return whether each node can hold its attempts, by bounds that any packing keeps."""
    return all(
        len(amounts) <= node["CPU"]
        and sum(amounts) <= node["GPU"] + 1e-9
        and sum(amount > 0.5 for amount in amounts if amount < 1.0) + sum(a for a in amounts if a >= 1.0) <= node["GPU"]
        for node, amounts in assignment
    )


def test_parts_of_one_evaluation_take_nodes_of_their_own_unless_they_may_share_one() -> None:
    nodes: list[Node] = [{"CPU": 4.0}, {"CPU": 4.0}]
    assert slots_on(nodes, Need(cpus=3.0, machines=2)) == 1
    assert slots_on(nodes, Need(cpus=2.0, machines=2)) == 2
    assert slots_on(nodes[:1], Need(cpus=2.0, machines=2)) == 0
    assert slots_on(nodes[:1], Need(cpus=2.0, machines=2, is_spread=False)) == 1
    assert slots_on([{"CPU": 8.0}, {"CPU": 1.0}], Need(cpus=1.0, machines=2)) == 1


def test_memory_counts_when_needs_differ() -> None:
    nodes: list[Node] = [{"CPU": 8.0, "memory": 10.0}]
    assert fits(nodes, [Need(cpus=1.0, memory=6.0), Need(cpus=1.0, memory=4.0)])
    assert not fits(nodes, [Need(cpus=1.0, memory=6.0), Need(cpus=1.0, memory=5.0)])
