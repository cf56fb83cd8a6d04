"""Nodes that die under evaluations: a cluster of several nodes on this machine, in a process of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.messages import Limits
from workers.on_ray.places import memory_request

REPOSITORY = Path(__file__).parents[3]

SOON = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}

LOSES_NODES = """
import sys, time
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster
from objectives.objective import Evaluation
from workers.messages import Limits, Trial
from workers.on_ray.executor import RayExecutor
from workers.on_ray.places import Placement

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
executor = RayExecutor(Slow(), 2, Limits(), Placement("nodes", "t", kind))
executor.submit([Trial(0, 0, {"x": 2.0}, 0), Trial(1, 1, {"x": 60.0}, 0)])
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


@pytest.mark.parametrize("kind", ["task", "actor"])
def test_an_attempt_whose_node_dies_is_the_nodes_fault_and_others_go_on(short_folder: str, kind: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", LOSES_NODES, short_folder, kind],
        env={**os.environ, **SOON, "PYTHONPATH": str(REPOSITORY), "RAY_TMPDIR": short_folder},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "0 success, 1 node lost"


@pytest.mark.usefixtures("ray_cluster")
def test_no_attempt_asks_for_more_memory_than_the_largest_node_has() -> None:
    limits = Limits(memory_bytes=2**28)
    assert memory_request(limits, 1.0) == 2**28
    assert memory_request(limits, 2.0) == 2**29
    largest = memory_request(limits, 1e9)
    assert largest == memory_request(limits, 1e12)
    assert memory_request(Limits(), 2.0) is None
