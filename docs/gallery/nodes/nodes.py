"""Kill one of four nodes of a Ray cluster while 64 evaluations run on it.

All nodes are on this machine, and an evaluation sleeps instead of computing.
"""

import threading
import time

import numpy as np
from ray.cluster_utils import Cluster

from bbkb import Range, tune


def height(x, y, seed):
    """Sleep for some seconds, and return a hill's height."""
    time.sleep(np.random.default_rng(seed).uniform(4, 12))
    return -((x - 0.3) ** 2) - (y - 0.6) ** 2


if __name__ == "__main__":
    options = {"num_cpus": 16, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    *_, last = [cluster.add_node(**options) for _ in range(3)]
    failure = threading.Thread(target=cluster.remove_node, args=(last, False))

    def watch(trial):
        """Kill a node when trial 200 has ended."""
        if trial.trial == 200:
            failure.start()

    result = tune(
        height,
        {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)},
        evaluations=512,
        workers=64,
        direction="maximize",
        address=cluster.address,
        run="nodes",
        settings={"objective": {"deterministic": True}},
        on_result=watch,
    )
    failure.join()
    cluster.shutdown()
    print(result.best.parameters, result.best.value)
