"""The section `workers` of a campaign file: the executor, and the resources of an evaluation."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bbkb.objectives.conditions import Scalar
from bbkb.objectives.objective import Parameters
from bbkb.objectives.parameters import Constant, Parameter, Range
from bbkb.orchestrator.settings.mistakes import Refusal, failure
from bbkb.orchestrator.settings.objective_sections import ObjectiveSettings
from bbkb.orchestrator.settings.sections import WHOLE, Hours, Seconds, Section
from bbkb.workers.executor import TRAITS, ExecutorName, Traits
from bbkb.workers.messages import Share

MOST_WORKERS = 100_000
WorkerCount = Annotated[int, Field(ge=1, le=MOST_WORKERS), WHOLE]


def _whole_above_one(amount: float) -> float:
    if amount > 1 and not amount.is_integer():
        raise ValueError("must be a whole number above 1: a share of less than one graphics processor, or whole ones")
    return amount


class SimulationSettings(Section):
    """Virtual time, for the simulated executor."""

    seconds: Seconds = 1.0
    """Mean duration of an evaluation in virtual seconds."""
    sigma: float = Field(default=0.0, ge=0, le=10)
    """Standard deviation of the duration's logarithm; 0 is constant."""
    straggler_share: float = Field(default=0.0, ge=0, le=1)
    """Share of attempts that take much longer."""
    straggler_factor: float = Field(default=20.0, ge=1, le=1e6)
    """Factor by which stragglers take longer; `seconds` remains the mean of all durations."""
    failure_rate: float = Field(default=0.0, ge=0, lt=1)
    """Share of attempts that fail."""


class FromParameter(Section):
    """A number determined by one of a trial's parameters."""

    parameter: str
    """Name of the parameter with this number."""


class WorkerSettings(Section):
    """The executor of evaluations and the resources of each of them."""

    executor: ExecutorName = "ray"
    """The executor of evaluations: ray (in parallel), inline (one at a time, in this process) or
    simulated (in virtual time)."""
    kind: Literal["task", "actor", "auto"] = "auto"
    """Under Ray: a task for each evaluation, or worker actors, in which evaluations continue when
    the campaign's process dies; auto takes tasks for 1000 or more evaluations of less than 0.1
    s."""
    keep_hours: Hours = 12.0
    """Hours that worker actors wait for a resume after the campaign's process has died."""
    count: WorkerCount = Field(default_factory=lambda: os.cpu_count() or 1)
    """The number of concurrent evaluations; default: this machine's cores."""
    machines: Annotated[int, Field(ge=1, le=100_000), WHOLE] = 1
    """Machines of one evaluation, each with cpus and gpus: the objective runs on all of them at the
    same time, and the value is that of the first."""
    machines_from: FromParameter | None = None
    """The parameter that gives the number of machines of a trial, instead of machines."""
    spread: Literal["strict", "soft"] = "strict"
    """Whether the machines of an evaluation must be different nodes; soft lets them share nodes
    if there are too few."""
    ray_train: bool = False
    """Whether the function starts a trainer of Ray Train. Its workers, at most `machines`
    with cpus and gpus each, use the resources of the evaluation. The function runs once, and
    `spread` has no effect."""
    cpus: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Processor cores of one evaluation."""
    gpus: Annotated[float, Field(ge=0, le=1e6), AfterValidator(_whole_above_one)] = 0.0
    """Graphics processors of one evaluation: a share of one, or a whole number."""
    cpus_from: FromParameter | None = None
    """The parameter that gives the number of cores of a trial, instead of cpus."""
    gpus_from: FromParameter | None = None
    """The parameter that gives the number of graphics processors of a trial, instead of gpus."""
    memory_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Largest memory of one evaluation, in 10^9 bytes."""
    timeout_seconds: Seconds | None = None
    """Seconds after which an evaluation is killed and counts as failed."""
    timeout_factor: Annotated[float, Field(gt=1)] | None = None
    """Without timeout_seconds: an evaluation that has run this many times as long as the longest
    success so far is ended and counts as failed."""
    retry_memory_factor: Annotated[float, Field(ge=1)] | None = None
    """Factor on workers.memory_gb for a new attempt after an evaluation ran out of memory."""
    retries: Annotated[int, Field(ge=0, le=1_000_000), WHOLE] | None = None
    """Number of further attempts after an exception; null: none, and one after a time-out or
    running out of memory (two with retry_memory_factor). 0: none after these either. Lost workers
    are always replaced."""
    trial_folders: bool = False
    """Give each trial a folder below the run's, the same for all its attempts, for checkpoints and
    artifacts: `folder` of a function, BBKB_FOLDER of a command. Beyond one machine the run's folder
    must be on a shared disk."""
    simulation: SimulationSettings = SimulationSettings()
    """Virtual time, for the simulated executor."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if problems := list(self._problems()):
            raise failure(problems)
        return self

    def _problems(self) -> Iterator[Refusal]:
        """Yield mistakes between the keys of the section."""
        if not self.traits.on_ray:
            if self.machines > 1:
                yield Refusal(("machines",), "must be 1 without workers.executor ray", str(self.machines))
            gangs = {"machines_from": self.machines_from is not None, "ray_train": self.ray_train}
            for key in (key for key, is_given in gangs.items() if is_given):
                yield Refusal((key,), "needs workers.executor ray", self.executor)
        elif self.is_gang and self.kind == "task":
            rule = "must be actor or auto if workers.machines is above 1, and with machines_from or ray_train: "
            yield Refusal(("kind",), f"{rule}a task ends with the campaign's process", "task")
        if self.retry_memory_factor is not None and self.memory_gb is None:
            yield Refusal(("retry_memory_factor",), "needs workers.memory_gb: it multiplies that")

    @property
    def traits(self) -> Traits:
        """The properties of the executor."""
        return TRAITS[self.executor]

    @property
    def sized_by(self) -> dict[str, str]:
        """The parameters that determine a trial's `cpus`, `gpus` or `machines`, by setting."""
        sources = {"cpus": self.cpus_from, "gpus": self.gpus_from, "machines": self.machines_from}
        return {key: source.parameter for key, source in sources.items() if source is not None}

    def share_of(self, parameters: Parameters) -> Share:
        """Return the resources of a trial with these parameters. If a parameter that determines
        `cpus`, `gpus` or `machines` is inactive because of its condition, the setting itself
        applies."""
        fixed = Share(cpus=self.cpus, gpus=self.gpus, machines=self.machines)
        values = {key: parameters.get(name) for key, name in self.sized_by.items()}
        amounts = {key: float(value) for key, value in values.items() if isinstance(value, int | float)}
        machines = int(amounts.pop("machines", self.machines))
        return replace(fixed, **amounts, machines=machines)

    def largest_share(self, space: Mapping[str, Parameter]) -> Share:
        """Return the largest known amount of each resource that a trial takes."""
        return self.share_of({name: _largest(space.get(name)) for name in self.sized_by.values()})

    @property
    def is_gang(self) -> bool:
        """Whether an evaluation may have several processes that Ray places together."""
        return self.machines > 1 or self.machines_from is not None or self.ray_train

    @property
    def is_spread(self) -> bool:
        """Whether the machines of one evaluation must be different nodes."""
        return self.spread == "strict" and not self.ray_train

    @property
    def all_cpus(self) -> float:
        """The cores of one evaluation on all its machines."""
        return self.cpus * self.machines

    @property
    def all_gpus(self) -> float:
        """The graphics processors of one evaluation on all its machines."""
        return self.gpus * self.machines


def trainer_problems(workers: WorkerSettings, objective: ObjectiveSettings) -> Iterator[Refusal]:
    """Yield a mistake if a command should start a trainer of Ray Train."""
    if workers.ray_train and objective.command is not None:
        rule = "needs a function: a command's trainer makes a group of its own"
        yield Refusal(("workers", "ray_train"), rule)


def ends_of(parameter: Parameter | None) -> tuple[Scalar, ...]:
    """Return both ends of a range, or the value of a constant; empty for listed values."""
    if isinstance(parameter, Range):
        return (parameter.low, parameter.high)
    return (parameter.constant,) if isinstance(parameter, Constant) else ()


def _largest(parameter: Parameter | None) -> float | None:
    levels = () if parameter is None else parameter.levels or ends_of(parameter)
    return max((level for level in levels if isinstance(level, int | float)), default=None)
