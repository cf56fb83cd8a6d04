"""Nodes that die during evaluations: a cluster of several nodes on this machine, in its own
process."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import Limits
from bbkb.workers.on_ray.packing import Need
from bbkb.workers.on_ray.places import NamedNode, Placement, check_fits
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
print(", ".join(f"{trial} {getattr(outcome, 'kind', 'success')}" for trial, outcome in sorted(seen.items())))
"""


@pytest.fixture
def short_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="bb", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.parametrize("kind", ["actor", pytest.param("task", marks=pytest.mark.slow)])
@pytest.mark.thorough
def test_attempt_on_a_dead_node_is_a_lost_node_and_others_continue(short_folder: str, kind: str) -> None:
    result = run_python("-c", LOSES_NODES, short_folder, kind, RAY_TMPDIR=short_folder, **SOON)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "0 success, 1 node lost"


@pytest.mark.usefixtures("ray_cluster")
def test_memory_request_is_at_most_the_memory_of_the_largest_node() -> None:
    placement = Placement("memory", "t", limits=Limits(memory_bytes=2**28))
    assert placement.memory_request(1.0) == 2**28
    assert placement.memory_request(2.0) == 2**29
    largest = placement.memory_request(1e9)
    assert largest == placement.memory_request(1e12)
    assert Placement("unlimited", "t").memory_request(2.0) is None


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
