"""The process of test_gangs.py: gangs of two machines on two nodes.

python gang_course.py FOLDER PART...

Each part prints a line of JSON: its name and its result.
"""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.objectives.objective import Objective
from bbkb.workers.messages import Attempt, Limits, Outcome
from bbkb.workers.on_ray.executor import RayExecutor
from bbkb.workers.on_ray.gangs import RankCrew, TrainerCrew
from bbkb.workers.on_ray.ledger import HeldAttempt, Ledger
from bbkb.workers.on_ray.places import Placement
from tests.waiting import is_alive

HERE = Path(__file__).parent
NODE: dict[str, Any] = {"num_cpus": 4, "object_store_memory": 80 * 2**20}


def main(folder: str, *names: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
    os.environ["RAY_ADDRESS"] = cluster.address  # for processes that look for a cluster on this machine
    for _ in range(2):
        cluster.add_node(**NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    parts = {part.__name__: part for part in PARTS}
    for name in names:
        if name in TRAININGS:
            result = train(folder, name, **TRAININGS[name])
        elif name in ENDINGS:
            result = ended(folder, name)
        elif name in LOSSES:
            result = LOSSES[name](folder, cluster)
        else:
            result = parts[name](folder)
        print(json.dumps({name: result}), flush=True)
    ray.shutdown()
    cluster.shutdown()


def function(name: str) -> PythonCallable:
    return PythonCallable(f"{HERE / 'gang_objectives.py'}:{name}")


def executor_of(objective: Objective, name: str, limits: Limits = Limits(), **options: Any) -> RayExecutor:  # noqa: B008
    placement = Placement(
        name, "t", "actor", cpus=3.0, machines=2, limits=limits, **{"crew": RankCrew(name), **options}
    )
    return RayExecutor(objective, 3, placement)


def attempts(folder: str, name: str, count: int = 1) -> list[Attempt]:
    return [Attempt(i, i, {"at": folder, "name": name}, 0) for i in range(count)]


def outcomes(executor: RayExecutor) -> list[dict[str, Any]]:
    descriptions: list[dict[str, Any]] = []
    while batch := executor.next_outcomes(None):
        descriptions += [described(outcome) for outcome in batch]
    return descriptions


def described(outcome: Outcome) -> dict[str, Any]:
    names = ("trial", "kind", "value", "failure", "message", "metrics", "step")
    return {name: getattr(outcome, name) for name in names if hasattr(outcome, name)}


def wait_for(happens: Callable[[], bool]) -> None:
    while not happens():
        time.sleep(0.05)


def wait_for_pids(folder: str, name: str, goes_on: Callable[[], bool] = lambda: True) -> list[int]:
    files = [Path(folder, f"{name}-{rank}.pid") for rank in range(2)]
    wait_for(lambda: all(file.exists() for file in files) or not goes_on())
    return [int(file.read_text()) for file in files]


def groups() -> list[str]:
    return [row["name"] for row in placement_group_table().values() if row["state"] != "REMOVED"]


def closed(executor: RayExecutor, folder: str, name: str) -> dict[str, Any]:
    """Take all outcomes, close the executor, and wait until its processes and groups are gone."""
    by_trial = outcomes(executor)
    executor.close()
    pids = wait_for_pids(folder, name)
    wait_for(lambda: not any(map(is_alive, pids)) and not groups())
    return {"outcomes": by_trial}


def sums(folder: str) -> dict[str, Any]:
    executor = executor_of(function("total"), "sums")
    executor.submit([Attempt(i, i, {"x": float(i)}, 0) for i in range(3)])
    by_trial = outcomes(executor)
    placement_groups = groups()
    executor.close()
    wait_for(lambda: not groups())
    return {"slots": executor.slots, "outcomes": by_trial, "groups": placement_groups}


def evaluated(objective: Objective, name: str) -> dict[str, Any]:
    """Return the outcome of one evaluation with x = 4; wait until its group is gone."""
    executor = executor_of(objective, name)
    executor.submit([Attempt(0, 0, {"x": 4.0}, 0)])
    by_trial = outcomes(executor)
    executor.close()
    wait_for(lambda: not groups())
    return {"outcomes": by_trial}


def command(folder: str) -> dict[str, Any]:
    run = f"{shlex.join([sys.executable, str(HERE / 'gang_objectives.py')])} {{x}}"
    checked = f"test $(wc -l < $BBKB_HOSTFILE) = 2 && test $MASTER_PORT = {{port}} && {run}"
    return evaluated(ShellCommand(checked), "command")


def gloo(folder: str) -> dict[str, Any]:
    return evaluated(function("total_by_gloo"), "gloo")


def torchrun(folder: str) -> dict[str, Any]:
    script = Path(folder, "sum.py")
    script.write_text(
        "import os, sys\n"
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "tensor = torch.tensor([float(sys.argv[1]) * (dist.get_rank() + 1)])\n"
        "dist.all_reduce(tensor)\n"
        "if dist.get_rank() == 0:\n"
        "    print(tensor.item())\n"
        "dist.destroy_process_group()\n"
    )
    run = f"{shlex.quote(sys.executable)} -m torch.distributed.run --nnodes {{machines}} --node-rank {{machine}}"
    run += f" --master-addr {{address}} --master-port {{port}} {script} {{x}}"
    return evaluated(ShellCommand(run), "torchrun")


def begun(folder: str, name: str, objective: str, limits: Limits = Limits()) -> RayExecutor:  # noqa: B008
    """An executor that evaluates one attempt of this function."""
    executor = executor_of(function(objective), name, limits)
    executor.submit(attempts(folder, name))
    return executor


def ended(folder: str, name: str) -> dict[str, Any]:
    """One of `ENDINGS`: an evaluation that fails or takes too long."""
    result = closed(begun(folder, name, *ENDINGS[name]), folder, name)
    return {**result, "asked": Path(folder, f"{name}.asked").exists()}


def stopped(folder: str) -> dict[str, Any]:
    executor = executor_of(function("report_on"), "stopped")
    executor.listen(lambda values: {value.trial for value in values})
    executor.submit(attempts(folder, "stopped"))
    return closed(executor, folder, "stopped")


def killed_rank(folder: str) -> dict[str, Any]:
    by_rank = {}
    for rank in range(2):
        name = f"killed_{rank}"
        executor = begun(folder, name, "wait")
        os.kill(wait_for_pids(folder, name)[rank], signal.SIGKILL)
        by_rank[str(rank)] = closed(executor, folder, name)
    return by_rank


def killed_command(folder: str) -> dict[str, Any]:
    """Check that the programs started by the ranks have also ended."""
    command = f"echo $$ > {folder}/.c{{machine}}; mv {folder}/.c{{machine}} {folder}/killed-{{machine}}.pid; sleep 300"
    executor = executor_of(ShellCommand(command), "killed_command")
    executor.submit([Attempt(0, 0, {}, 0)])
    os.kill(wait_for_pids(folder, "killed")[1], signal.SIGKILL)
    return closed(executor, folder, "killed")


ABANDONS = """
import logging
import sys
import ray
sys.path.insert(0, sys.argv[1])
import gang_course
ray.init(address=sys.argv[2], log_to_driver=False, logging_level=logging.ERROR)
executor = gang_course.executor_of(gang_course.function("wait"), sys.argv[4])
executor.submit(gang_course.attempts(sys.argv[3], sys.argv[4]))
while executor.next_outcomes(1.0) is not None:
    pass
"""


def abandoned(folder: str, name: str) -> list[int]:
    """The processes of a gang whose campaign's process is killed."""
    address = ray.get_runtime_context().gcs_address
    process = subprocess.Popen([sys.executable, "-c", ABANDONS, str(HERE), address, folder, name])
    pids = wait_for_pids(folder, name, lambda: process.poll() is None)
    process.kill()
    process.wait()
    return pids


def adopted(folder: str) -> dict[str, Any]:
    """A gang continues if its campaign's process is killed, and the next session gets its result."""
    pids = abandoned(folder, "adopted")
    executor = executor_of(function("wait"), "adopted")
    attempts = executor.adopt({0: 1})
    Path(folder, "adopted.go").touch()
    return {"held": sorted(attempts), "alive": all(map(is_alive, pids)), **closed(executor, folder, "adopted")}


def orphaned(folder: str) -> dict[str, Any]:
    """The campaign's process is killed, then rank 0: the next session ends their group."""
    pids = abandoned(folder, "orphaned")
    os.kill(pids[0], signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids)))
    before = groups()
    executor = executor_of(function("wait"), "orphaned")
    attempts = executor.adopt({0: 1})
    after = groups()
    executor.close()
    return {"held": sorted(attempts), "before": before, "after": after}


def train(
    folder: str,
    name: str,
    count: int = 1,
    objective: str = "train_on_ray",
    limits: Limits = Limits(),  # noqa: B008
    is_train: bool = True,
    then: Callable[[RayExecutor], None] = lambda executor: None,
    **parameters: float,
) -> dict[str, Any]:
    """Run trainers of Ray Train whose workers have three CPUs each, and `then` while they run.

    Waits until their groups are gone.
    """
    crew = TrainerCrew() if is_train else RankCrew(name)
    executor = executor_of(function(objective), name, limits, crew=crew, is_spread=False)
    whole = {"at": folder, "name": name, "workers": 2, **parameters}
    executor.submit([Attempt(i, i, {"x": float(i + 1), **whole}, 0) for i in range(count)])
    then(executor)
    by_trial = outcomes(executor)
    executor.close()
    wait_for(lambda: not groups())
    return {"slots": executor.slots, "outcomes": by_trial}


def trained_until_killed(folder: str) -> dict[str, Any]:
    """The process of one of the trainer's workers is killed."""

    def kill(executor: RayExecutor) -> None:
        os.kill(wait_for_pids(folder, "killed_trainer")[1], signal.SIGKILL)

    return train(folder, "killed_trainer", then=kill, seconds=300.0)


def trained_on_lost_node(folder: str, cluster: Cluster) -> dict[str, Any]:
    """Kill the node of a trainer's worker that does not run the function."""

    def remove(executor: RayExecutor) -> None:
        wait_for_pids(folder, "lost_trainer")
        remove_other_node("lost_trainer", cluster)

    return train(folder, "lost_trainer", then=remove, seconds=300.0)


def remove_other_node(campaign: str, cluster: Cluster) -> None:
    """Kill the node that does not have the worker of the first attempt."""
    first = Ledger(campaign).read(0, 1)
    assert isinstance(first, HeldAttempt)
    others = [node for node in cluster.worker_nodes if node.node_id != first.node]
    cluster.remove_node(others[0], allow_graceful=False)


def lost_node(folder: str, cluster: Cluster) -> dict[str, Any]:
    """The node of rank 1 is killed."""
    executor = begun(folder, "lost", "wait")
    wait_for_pids(folder, "lost")
    remove_other_node("lost", cluster)
    return closed(executor, folder, "lost")


PARTS = (
    *(sums, command, gloo, torchrun, stopped, killed_rank, killed_command),
    *(adopted, orphaned, trained_until_killed),
)
ENDINGS: dict[str, tuple[str, Limits]] = {
    "failure": ("fail_on_second", Limits()),
    "stubborn": ("fail_and_ignore", Limits()),
    "timed_out": ("wait", Limits(timeout_seconds=2.0)),
}
TRAININGS: dict[str, dict[str, Any]] = {
    "trained": {"count": 2},
    "trained_by_torch": {"is_torch": True},
    "trained_on_another_ray": {"objective": "train_on_another_ray"},
    "trained_by_more": {"workers": 3},
    "trained_unasked": {"is_train": False},
    "trained_too_long": {"limits": Limits(timeout_seconds=15.0), "seconds": 300.0},
}
LOSSES = {"lost_node": lost_node, "trained_on_lost_node": trained_on_lost_node}


if __name__ == "__main__":
    main(*sys.argv[1:])
