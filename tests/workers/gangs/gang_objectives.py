"""Objectives that run on several machines, for test_gangs.py: each rank writes its process id into
the folder `at`."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy

from bbkb import Machine
from bbkb.objectives.objective import EvaluationStopped, Report

LONG_SECONDS = 300.0


def _note_process(at: str, name: str, rank: int) -> None:
    draft = Path(at, f".{name}-{rank}")
    draft.write_text(str(os.getpid()))
    draft.rename(Path(at, f"{name}-{rank}.pid"))


def add_up(x: float, rank: int, count: int, address: str, port: int) -> float:
    """Add up `x` × (rank + 1) over all ranks, with the all-reduce of XGBoost."""
    from xgboost import collective
    from xgboost.tracker import RabitTracker

    tracker = None
    if rank == 0:
        tracker = RabitTracker(n_workers=count, host_ip=address, port=port, sortby="task")
        tracker.start()
    with collective.CommunicatorContext(
        dmlc_communicator="rabit",
        dmlc_tracker_uri=address,
        dmlc_tracker_port=port,
        dmlc_task_id=str(rank),
        dmlc_retry=9,
    ):
        total = float(collective.allreduce(numpy.array([x * (rank + 1)]), collective.Op.SUM)[0])
    if tracker is not None:
        tracker.wait_for()  # the others must have left before it goes
    return total


def total(x: float, machine: Machine) -> dict[str, float] | None:
    """Add up over all machines."""
    value = add_up(x, machine.rank, machine.count, machine.addresses[0], machine.port)
    return {"value": value, "pid": os.getpid()} if machine.rank == 0 else None


def total_by_gloo(x: float, machine: Machine) -> float | None:
    """Add up `x` × (rank + 1) over all ranks, with PyTorch's gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=machine.url, rank=machine.rank, world_size=machine.count)
    try:
        tensor = torch.tensor([x * (machine.rank + 1)])
        dist.all_reduce(tensor)
    finally:
        dist.destroy_process_group()
    return tensor.item() if machine.rank == 0 else None


def fail_on_second(at: str, name: str, machine: Machine) -> float:
    """Raise on machine 1; sleep on machine 0, which notes that it was asked to end."""
    _note_process(at, name, machine.rank)
    if machine.rank == 1:
        raise RuntimeError("the second machine failed")
    try:
        time.sleep(LONG_SECONDS)
    except BaseException:
        Path(at, f"{name}.asked").touch()
        raise
    return 0.0


def fail_and_ignore(at: str, name: str, machine: Machine) -> float:
    """Raise on machine 1; on machine 0 ignore SIGTERM."""
    _note_process(at, name, machine.rank)
    if machine.rank == 1:
        raise RuntimeError("the second machine failed")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(LONG_SECONDS)
    return 0.0


def wait(at: str, name: str, machine: Machine) -> float:
    """Wait until the folder has a file `NAME.go`; return the number of machines."""
    _note_process(at, name, machine.rank)
    while not Path(at, f"{name}.go").exists():
        time.sleep(0.05)
    return float(machine.count)


def report_on(at: str, name: str, machine: Machine, report: Report) -> float:
    """Report without end on machine 0, and end slowly after the stop; on machine 1, fail as soon as
    machine 0 is stopped, as a lost connection does."""
    _note_process(at, name, machine.rank)
    is_stopped = Path(at, f"{name}.stopped")
    try:
        while machine.rank == 0 or not is_stopped.exists():
            if machine.rank == 0:
                report(1.0)
            time.sleep(0.05)
    except EvaluationStopped:
        is_stopped.touch()
        time.sleep(2.0)  # SIGTERM, because machine 1 has failed
        raise
    raise ConnectionError("machine 0 has ended")


def _add_up(config: dict[Any, Any]) -> None:
    """Add up `x` × (rank + 1) over the workers of a trainer, into the file `total`; wait first, for
    `seconds`."""
    from ray.train import get_context

    rank = get_context().get_world_rank()
    _note_process(config["at"], config["name"], rank)
    time.sleep(config["seconds"])
    part = config["x"] * (rank + 1)
    if config["is_torch"]:
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([part])
        dist.all_reduce(tensor)
        total = tensor.item()
    else:
        from xgboost import collective

        total = float(collective.allreduce(numpy.array([part]), collective.Op.SUM)[0])
    if rank == 0:
        Path(config["total"]).write_text(repr(total))


def train_on_ray(x: float, workers: int, at: str, name: str, seconds: float = 0.0, is_torch: bool = False) -> float:
    """Let a trainer of Ray Train add up, on workers with three CPUs each."""
    from ray.train import RunConfig, ScalingConfig

    trainer_class: Any
    if is_torch:
        from ray.train.torch import TorchTrainer

        trainer_class = TorchTrainer
    else:
        from ray.train.xgboost import XGBoostTrainer

        trainer_class = XGBoostTrainer
    total = Path(at, f"{name}-{x}.total")
    trainer = trainer_class(
        _add_up,
        train_loop_config={
            "x": x,
            "at": at,
            "name": name,
            "seconds": seconds,
            "is_torch": is_torch,
            "total": str(total),
        },
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 3}),
        run_config=RunConfig(storage_path=at),
    )
    trainer.fit()
    return float(total.read_text())


def train_on_another_ray(x: float, workers: int, at: str, name: str) -> float:
    """Like `train_on_ray`, with a Ray Train that lacks an internal part."""
    from ray.train.v2._internal.execution.worker_group import WorkerGroup

    del WorkerGroup._create_placement_group
    return train_on_ray(x, workers, at, name)


if __name__ == "__main__":  # as a command, which finds the other machines by its environment
    found = os.environ
    sum_of_all = add_up(
        float(sys.argv[1]),
        int(found["RANK"]),
        int(found["WORLD_SIZE"]),
        found["MASTER_ADDR"],
        int(found["MASTER_PORT"]),
    )
    print(sum_of_all)
