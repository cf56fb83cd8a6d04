"""The limits of an evaluation. Also the CPUs, GPUs and machines of each trial if a parameter
determines them (`workers.cpus_from`)."""

import threading
from dataclasses import dataclass

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.keywords import did_you_mean
from bbkb.objectives.objective import Candidates
from bbkb.orchestrator.campaign.settings import Settings, Workers, ends_of
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.settings.options import objective_of
from bbkb.workers.messages import Limits, Share


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of trials whose parameters determine them."""

    workers: Workers  # computes the share of a trial from its parameters
    largest: Share  # the largest amount of each resource that a trial takes


def limits_of(settings: Settings) -> Limits:
    """Return the limits of one evaluation."""
    memory = None if settings.workers.memory_gb is None else int(settings.workers.memory_gb * 1e9)
    return Limits(timeout_seconds=settings.workers.timeout_seconds, memory_bytes=memory)


_PROGRAMS = ("python", "python3", "bash", "sh", "make", "java", "julia", "Rscript", "torchrun", "mpirun")


def missing_program(settings: Settings) -> str:
    """Return a sentence if this machine lacks the program of the command, else an empty text."""
    command = objective_of(settings.objective)
    program = command.missing_program() if isinstance(command, ShellCommand) else ""
    if not program:
        return ""
    hint = did_you_mean(program, _PROGRAMS)
    return f"objective.command: this machine has no program {program!r}{hint}"


def check_program(settings: Settings) -> None:
    """Raise UserError if evaluations run on this machine and it lacks the command's program."""
    if not settings.workers.traits.on_ray and (missing := missing_program(settings)):
        raise UserError(f"{missing} (install it, or correct the command)")


def check_timeout(settings: Settings) -> None:
    """Raise UserError if evaluations run in this thread and a time-out could not end them."""
    workers = settings.workers
    timeout = workers.timeout_seconds
    thread = threading.current_thread()
    if not workers.traits.one_at_a_time or timeout is None or thread is threading.main_thread():
        return
    raise UserError(
        f"workers.timeout_seconds with workers.executor {workers.executor} needs the program's "
        f"main thread, where an alarm can end an evaluation, got {timeout:g} in the thread "
        f"{thread.name!r}: run the campaign in the main thread, leave timeout_seconds out, or set "
        "workers.executor to ray"
    )


def resources_of(settings: Settings, candidates: Candidates) -> Resources | None:
    """Return the resources of each trial; None if all trials take the same amount.

    Raises UserError if the named parameter does not exist or has a value that is not a valid number
    of processors.
    """
    workers = settings.workers
    if not workers.sized_by:
        return None
    most = {name: max(_values(key, name, settings, candidates), default=None) for key, name in workers.sized_by.items()}
    return Resources(workers=workers, largest=workers.share_of(most))


def _values(key: str, name: str, settings: Settings, candidates: Candidates) -> list[float]:
    """Return the parameter's values: those of the candidates, and the bounds for new ones.

    Raises UserError in the same cases as `resources_of`.
    """
    place = f"workers.{key}_from.parameter"
    if name not in candidates.columns:
        names = list(candidates.columns)
        raise UserError(f"{place} must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}")
    values = [*candidates.columns[name].tolist(), *ends_of(settings.space.get(name))]
    wrong = next((value for value in values if value is not None and not _is_amount(value, key)), None)
    if wrong is not None:
        amounts = {"cpus": "> 0, and whole above 1", "gpus": ">= 0, and whole above 1", "machines": "whole and >= 1"}
        raise UserError(
            f"{place} must be a parameter whose values are {amounts[key]}; {name} has {wrong!r}: give it "
            "choices or integer: true"
        )
    return [float(value) for value in values if value is not None]


def _is_amount(value: object, key: str) -> bool:
    """Return whether Ray can assign this amount: a whole number of machines, or a whole number of
    processors or a fraction of one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if key == "machines":
        return value >= 1 and float(value).is_integer()
    return (value > 0 or (key == "gpus" and value == 0)) and (value <= 1 or float(value).is_integer())
