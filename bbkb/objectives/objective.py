"""The protocol of every objective, what it is given (parameters, the function `report`, the machines of an
evaluation that takes several), and what it returns.

An objective converts parameters to an `Evaluation`. `Candidates` is the finite set of arms that it
can evaluate. Nothing here depends on workers, Ray or the bandit: features are plain arrays, and
parameters are plain mappings.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.errors import ObjectiveError as ObjectiveError
from bbkb.objectives.parameters import Parameters as Parameters

MOST_METRICS = 100  # the limit for a result or a report
NAME_CHARACTERS = 100  # the longest name of a metric
# variables with the rank of a process in a training: torchrun, Open MPI, MPICH
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
END_SECONDS = 10.0  # between SIGTERM and SIGKILL, if another machine ends the evaluation


class InvalidValueError(ValueError):
    """An objective returned something that is not a number, so the evaluation failed."""


class EvaluationStopped(BaseException):
    """Raised by `report` when the campaign stops a trial early.

    An objective may catch it to clean up; its result is then ignored. Not an `Exception`, so that
    `except Exception` around a training loop does not catch it.
    """


class Report(Protocol):
    """The function with which an objective reports an intermediate value."""

    def __call__(
        self, /, value: float | Mapping[str, float], step: int | None = None, **metrics: float
    ) -> None:  # fmt: skip
        """Record an intermediate value.

        Args:
            value: on the scale of the objective; NaN and infinite values are also recorded. Or a
                mapping of metrics, as the function returns it, with the first objective's metric.
            step: its index, such as the epoch; None: the next one, counted from 0.
            metrics: other numbers of this step by name. The search learns from those that are
                objectives or constraints; the others are for display.

        Raises:
            EvaluationStopped: if the campaign stops this trial early.
            ValueError: if a value or a metric is not a number, or there are too many metrics.
        """


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
    machine = getattr(report, "machine", None)
    return machine if isinstance(machine, Machine) else None


def gives_value(report: object) -> bool:
    """Return whether the value of the evaluation comes from the process with this `report`."""
    machine = machine_of(report)
    return machine is None or machine.rank == 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of one evaluation.

    Args:
        value: the result on the user's scale; the campaign's `direction` says whether high is good.
        metrics: other numbers by name. Two names have a meaning: `noise_free` is the value without
            noise, for the figures of regret, and `seconds` is the recorded duration of the
            evaluation in a table, for simulated time.
        left_out: metrics that are not numbers, with the reason.
    """

    value: float
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    left_out: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Candidates:
    """The finite candidate set 𝒜.

    Args:
        features: (A, d) float64, stored read-only; each row is the feature vector of an arm.
        columns: an array (A,) of values by name of each parameter, so that a million candidates
            need no Python objects. A value is None if a parameter of `conditional` does not exist.
        parameter_of: (d,) the index of each feature's parameter, from 0; the one-hot columns of a
            choice share an index. By default, every feature is a separate parameter.
        repeats: whether a second evaluation of an arm can be useful. In a continuous space, a
            neighbor gives the same information.
        conditional: the names of the parameters that do not exist for every arm.
        is_sequence: whether the first arms cover the space like a low-discrepancy sequence.
        remark: a note about the candidates, for display; may be empty.
        log_prior: (A,) the logarithm of the expected quality relative to the best arm, ≤ 0; None if
            no parameter has a prior.

    Raises:
        ObjectiveError: if a shape is wrong, or a feature is not finite.
    """

    features: NDArray[np.float64]
    columns: Mapping[str, NDArray[np.generic]]
    parameter_of: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    repeats: bool = True
    conditional: frozenset[str] = frozenset()
    is_sequence: bool = False
    remark: str = ""
    log_prior: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        features = np.ascontiguousarray(self.features, dtype=np.float64)
        if features.ndim != 2 or features.shape[0] == 0 or features.shape[1] == 0:
            raise ObjectiveError(f"candidates.features must be (A, d) with A, d > 0, got shape {features.shape}")
        if not np.isfinite(features).all():
            row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
            raise ObjectiveError(f"candidates.features must be finite, row {row} is {features[row].tolist()}")
        for name, column in self.columns.items():
            if len(column) != len(features):
                raise ObjectiveError(f"candidates.columns[{name!r}] has {len(column)} values for {len(features)} arms")
        numbers = np.array(self.parameter_of if len(self.parameter_of) else np.arange(features.shape[1]), dtype=np.intp)
        if numbers.shape != features.shape[1:]:
            raise ObjectiveError(f"candidates.parameter_of must be ({features.shape[1]},), got shape {numbers.shape}")
        features.flags.writeable = numbers.flags.writeable = False
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "parameter_of", numbers)
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))

    def __reduce__(self) -> tuple[type["Candidates"], tuple[object, ...]]:
        """Pickle the arguments: a read-only mapping itself cannot be pickled."""
        values = [getattr(self, field.name) for field in fields(self)]
        return Candidates, tuple(dict(value) if isinstance(value, MappingProxyType) else value for value in values)

    def __len__(self) -> int:
        return len(self.features)

    def parameters(self, arm: int) -> dict[str, Any]:
        """Return the parameters that exist for an arm as plain Python values (numpy scalars are
        converted), ready for JSON.

        Args:
            arm: its index, >= 0 and < A.
        """
        named = {name: _plain(column[arm]) for name, column in self.columns.items()}
        return {name: value for name, value in named.items() if value is not None or name not in self.conditional}


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


@runtime_checkable
class Objective(Protocol):
    """The objective of a campaign.

    It is pickled once per campaign and sent to the workers, so it holds its data as arrays.
    `evaluate` may raise any exception, which becomes a failure. It must not modify the objective.
    """

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Evaluate a configuration. Equal parameters and seeds should give equal evaluations.

        Args:
            parameters: the configuration, by name.
            seed: the seed of random numbers, shared by all attempts of a trial.
            report: call `report(value, step)` to report an intermediate value.
        """


@runtime_checkable
class HasPreparation(Protocol):
    """An objective that must be prepared once in each process, for example by an import."""

    def prepare(self) -> None:
        """Prepare this process. May raise anything: the evaluation then retries and raises it."""


@runtime_checkable
class HasCandidates(Protocol):
    """An objective that has its own candidates (a table); the file then needs no space."""

    def candidates(self) -> Candidates:
        """Return the candidates, in the table's order."""


@runtime_checkable
class HasDescription(Protocol):
    """An objective that describes itself and its data; a resume is rejected if the description
    changes."""

    @property
    def description(self) -> str:
        """One line of text, the same whenever the objective and its data are the same."""


@runtime_checkable
class TrainsInSteps(Protocol):
    """An objective that trains in steps: it reports after each step, and continues from a
    checkpoint in the trial's folder if there is one."""

    @property
    def last_step(self) -> int:
        """The step at which a training ends, >= 1."""

    @property
    def remark_on_reports(self) -> str:
        """The difference between the reported value of the last step and the returned value, with
        the remedy, for a search that learns from both. Empty if they are the same."""


@runtime_checkable
class HasOptimum(Protocol):
    """An objective with a known best noise-free value, so that regret can be drawn."""

    def optimum(self, maximize: bool) -> float:
        """Return the best noise-free value over all possible configurations.

        Args:
            maximize: whether the best value is the largest one; otherwise it is the smallest.
        """
