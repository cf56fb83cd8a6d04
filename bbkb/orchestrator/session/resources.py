"""The limits of an evaluation, and the GPUs of each trial if a parameter determines them
(`workers.gpus_from`)."""

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

    Raises UserError if the parameter that gives the GPUs does not exist or has a value that Ray
    cannot assign: neither a fraction of one nor a whole number.
    """
    workers = settings.workers
    name = workers.gpus_from
    if name is None:
        return None
    if name not in candidates.columns:
        names = list(candidates.columns)
        rule = f"must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}"
        raise UserError(f"workers.gpus_from {rule}")
    values = [*candidates.columns[name].tolist(), *ends_of(settings.space.get(name))]
    amounts = [value for value in values if value is not None]
    for value in amounts:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (0 <= value <= 1 or (float(value).is_integer() and value > 1)):
            raise UserError(
                "workers.gpus_from must be a parameter whose values are >= 0, and whole above 1; "
                f"{name} has {value!r}: give it choices or integer: true"
            )
    return Resources(workers=workers, largest=workers.share_of({name: max(map(float, amounts), default=None)}))
