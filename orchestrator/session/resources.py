"""What an evaluation may use, and the CPUs and GPUs of each trial when a parameter gives them
(`workers.cpus_from`)."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from objectives.objective import Candidates, Parameters
from objectives.parameters import Constant, Parameter, Range
from objectives.reference import did_you_mean
from orchestrator.errors import UserError
from orchestrator.settings.model import Settings
from orchestrator.settings.sections import WorkerSettings
from workers.messages import Limits, Share


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What trials take, where their parameters say it.

    Attributes:
        cpus: of a trial whose parameters do not give them.
        gpus: of a trial whose parameters do not give them.
        cpus_from: the name of the parameter that gives the CPUs; None without one.
        gpus_from: the name of the parameter that gives the GPUs; None without one.
        largest: the most that a trial takes.
        machines: the number of machines of each trial.
    """

    cpus: float
    gpus: float
    cpus_from: str | None
    gpus_from: str | None
    largest: Share
    machines: int = 1

    def of(self, parameters: Parameters) -> Share:
        """Return what a trial with these parameters takes; a conditional parameter that does not
        exist changes nothing."""
        cpus = self.cpus if self.cpus_from is None else parameters.get(self.cpus_from)
        gpus = self.gpus if self.gpus_from is None else parameters.get(self.gpus_from)
        return Share(
            cpus=self.cpus if cpus is None else float(cpus),
            gpus=self.gpus if gpus is None else float(gpus),
            machines=self.machines,
        )


def limits_of(settings: Settings) -> Limits:
    """Return what one evaluation may use."""
    memory = None if settings.workers.memory_gb is None else int(settings.workers.memory_gb * 1e9)
    return Limits(timeout_seconds=settings.workers.timeout_seconds, memory_bytes=memory)


_UNENFORCED = {  # limits that need a process which evaluates and nothing else
    "inline": ("memory_gb", "timeout_factor"),
    "simulated": ("memory_gb", "timeout_seconds"),
    "ray": (),
}


def check_timeout(settings: Settings) -> None:
    """Raise UserError when evaluations would run in this thread and their time-out could not end
    them here."""
    workers, thread = settings.workers, threading.current_thread()
    if workers.executor != "inline" or workers.timeout_seconds is None or thread is threading.main_thread():
        return
    raise UserError(
        "workers.timeout_seconds with workers.executor inline needs the program's main thread, where an alarm can end "
        f"an evaluation, got {workers.timeout_seconds:g} in the thread {thread.name!r}: run the campaign in the main "
        "thread, leave timeout_seconds out, or set workers.executor to ray"
    )


def unenforced_limits(settings: Settings) -> str:
    """Return a warning that names the limits which these settings give and their executor does not
    enforce, or the number of workers that it does not start; empty without."""
    workers = settings.workers
    limits = [f"workers.{key}" for key in _UNENFORCED[workers.executor] if getattr(workers, key) is not None]
    if limits:
        verb = "is" if len(limits) == 1 else "are"
        return f"{' and '.join(limits)} {verb} not enforced with workers.executor {workers.executor}, but with ray"
    if workers.executor == "inline" and "count" in workers.model_fields_set and workers.count > 1:
        return (
            "with workers.executor inline one evaluation runs at a time, in this process: workers.count has no effect"
        )
    return ""


def resources_of(settings: Settings, candidates: Candidates) -> Resources | None:
    """Return the resources of each trial; None where all take the same.

    Raises UserError when a parameter that is named does not exist, or has a value that is not a
    number of processors.
    """
    workers = settings.workers
    if workers.cpus_from is None and workers.gpus_from is None:
        return None
    most = {
        key: max((value for value in _values(key, name, settings, candidates)), default=getattr(workers, key))
        for key, name in _resource_names(workers).items()
    }
    return Resources(
        cpus=workers.cpus,
        gpus=workers.gpus,
        cpus_from=_resource_names(workers).get("cpus"),
        gpus_from=_resource_names(workers).get("gpus"),
        largest=Share(
            cpus=most.get("cpus", workers.cpus), gpus=most.get("gpus", workers.gpus), machines=workers.machines
        ),
        machines=workers.machines,
    )


def _resource_names(workers: WorkerSettings) -> dict[str, str]:
    """Return the name of the parameter that gives `cpus` and `gpus`, for those that a parameter
    gives."""
    parameters = {"cpus": workers.cpus_from, "gpus": workers.gpus_from}
    return {key: source.parameter for key, source in parameters.items() if source is not None}


def _values(key: str, name: str, settings: Settings, candidates: Candidates) -> list[float]:
    """Return the parameter's values that matter, checked: of the candidates, and the bounds of what
    may be drawn."""
    place = f"workers.{key}_from.parameter"
    if name not in candidates.columns:
        names = list(candidates.columns)
        raise UserError(f"{place} must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}")
    values = [*candidates.columns[name].tolist(), *_bounds(settings.space.get(name))]
    wrong = next((value for value in values if value is not None and not _is_amount(value, key)), None)
    if wrong is not None:
        least = "> 0" if key == "cpus" else ">= 0"
        raise UserError(
            f"{place} must be a parameter whose values are {least}, and whole above 1; {name} has {wrong!r}: give it "
            "choices or integer: true"
        )
    return [float(value) for value in values if value is not None]


def _bounds(parameter: Parameter | None) -> Iterable[object]:
    if isinstance(parameter, Range):
        return (parameter.low, parameter.high)
    return (parameter.constant,) if isinstance(parameter, Constant) else ()


def _is_amount(value: object, key: str) -> bool:
    """Return whether Ray can give a trial this number of processors: any fraction below 1, else
    whole numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (value > 0 or (key == "gpus" and value == 0)) and (value <= 1 or float(value).is_integer())
