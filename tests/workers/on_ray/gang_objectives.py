"""Objectives that run on several machines, for test_gangs.py: each rank writes its process id into
the folder `at`."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from bbkb import Machine
from objectives.objective import Report

LONG_SECONDS = 300.0


def _begin(at: str, name: str, machine: Machine) -> None:
    draft = Path(at, f".{name}-{machine.rank}")
    draft.write_text(str(os.getpid()))
    draft.rename(Path(at, f"{name}-{machine.rank}.pid"))


def total(x: float, machine: Machine) -> dict[str, float] | None:
    """Add up `x` × (rank + 1) over all ranks, with gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=machine.url, rank=machine.rank, world_size=machine.count)
    try:
        tensor = torch.tensor([x * (machine.rank + 1)])
        dist.all_reduce(tensor)
    finally:
        dist.destroy_process_group()
    return {"value": tensor.item(), "pid": os.getpid()} if machine.rank == 0 else None


def fail_on_second(at: str, name: str, machine: Machine) -> float:
    """Raise on machine 1; sleep on machine 0, which notes that it was asked to end."""
    _begin(at, name, machine)
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
    _begin(at, name, machine)
    if machine.rank == 1:
        raise RuntimeError("the second machine failed")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(LONG_SECONDS)
    return 0.0


def wait(at: str, name: str, machine: Machine) -> float:
    """Wait until the folder has a file `NAME.go`; return the number of machines."""
    _begin(at, name, machine)
    while not Path(at, f"{name}.go").exists():
        time.sleep(0.05)
    return float(machine.count)


def report_on(at: str, name: str, machine: Machine, report: Report) -> float:
    """Report without end on machine 0; sleep on machine 1."""
    _begin(at, name, machine)
    while True:
        if machine.rank == 0:
            report(1.0)
        time.sleep(0.05)


def _add_up(config: dict[Any, Any]) -> None:
    """Add up `x` × (rank + 1) over the workers of a trainer, into the file `total`; wait first, for
    `seconds`."""
    import torch
    import torch.distributed as dist

    time.sleep(config["seconds"])
    tensor = torch.tensor([config["x"] * (dist.get_rank() + 1)])
    dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        Path(config["total"]).write_text(repr(tensor.item()))


def train_on_ray(x: float, workers: int, at: str, seconds: float = 0.0) -> float:
    """Let a trainer of Ray Train add up, on workers with three CPUs each."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    total = Path(at, f"total-{x}-{seconds}")
    trainer = TorchTrainer(
        _add_up,
        train_loop_config={"x": x, "seconds": seconds, "total": str(total)},
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 3}),
        run_config=RunConfig(storage_path=at),
    )
    trainer.fit()
    return float(total.read_text())
