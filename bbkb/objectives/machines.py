"""The machines of an evaluation that takes several: the data with which an objective connects the
processes on them."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from bbkb.objectives.objective import Report

# variables with the rank of a process in a training: torchrun, Open MPI, MPICH
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
END_SECONDS = 10.0  # between SIGTERM and SIGKILL, if another machine ends the evaluation


@dataclass(frozen=True, slots=True)
class Machine:
    """One of the machines of an evaluation.

    Args:
        rank: the index of this machine, from 0. The value of the evaluation is the result of rank
            0.
        count: the number of machines.
        addresses: the address of each machine, in the order of ranks.
        port: a TCP port that was free on the machine of rank 0 when the evaluation began.
    """

    rank: int
    count: int
    addresses: tuple[str, ...]
    port: int

    @property
    def url(self) -> str:
        """Return `tcp://address:port` of rank 0, the rendezvous for `torch.distributed`."""
        address = self.addresses[0]
        return f"tcp://[{address}]:{self.port}" if ":" in address else f"tcp://{address}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables for processes on these machines to find each other."""
        return {
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(self.port),
            "NODE_RANK": str(self.rank),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.count),
        }

    def placeholders(self) -> dict[str, object]:
        """Return the values of the placeholders of a command."""
        return {
            "machine": self.rank,
            "machines": self.count,
            "address": self.addresses[0],
            "port": self.port,
        }

    def write_hostfile(self, folder: Path) -> Path:
        """Write the addresses into a file, one on each line, and return its path.

        Args:
            folder: the folder of the file.
        """
        path = folder / "hostfile"
        path.write_text("".join(f"{address}\n" for address in self.addresses), encoding="ascii")
        return path


# of a command, unless parameters have these names
PLACEHOLDERS = ("machine", "machines", "address", "port")


def single_machine() -> Machine:
    """Return this machine as the only one of an evaluation."""
    return Machine(0, 1, ("127.0.0.1",), free_port())


def free_port() -> int:
    """Return the number of a TCP port that is currently free on this machine."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        number: int = listener.getsockname()[1]
    return number


@runtime_checkable
class AttemptReport(Report, Protocol):
    """The `Report` of a campaign's attempt."""

    value_name: str  # the metric that is the value; `value` unless the first objective names one
    # the trial's folder for checkpoints and artifacts, shared by all its attempts; None unless the
    # campaign file has `workers.trial_folders: true`
    folder: Path | None
    machine: Machine | None  # of this process; None if the evaluation takes one machine
    # appends bytes to the attempt's output, from any thread; None if no output is saved
    write_output: Callable[[bytes], None] | None


def folder_of(report: object) -> Path | None:
    """Return the trial's folder; None if there is none. A user's own report may have one, too."""
    return getattr(report, "folder", None)


def machine_of(report: object) -> Machine | None:
    """Return the machine of the evaluation with this `report`; None if it takes one machine."""
    return report.machine if isinstance(report, AttemptReport) else None


def gives_value(report: object) -> bool:
    """Return whether the value of the evaluation comes from the process with this `report`."""
    machine = machine_of(report)
    return machine is None or machine.rank == 0
