"""A Slurm batch script for a campaign, the output of `bbkb launch slurm`, with the reasons for its
settings."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.launchers.writing import (
    Setting,
    check_node,
    count_setting,
    least_nodes,
    places_of,
    render,
)
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.wording import duration, plural
from bbkb.workers.packing import RAY_SETTINGS

END_SECONDS = 35  # after the last evaluation, for stopping Ray and requeueing the job
DEFAULT_GRACE_SECONDS = 120  # before the end, if the duration of an evaluation is unlimited
_LEAST_GRACE_SECONDS = 60
_LARGEST_GRACE_SECONDS = 65535  # Slurm's limit
_CORES_WITH_A_SPARE = 4  # from this size on, a core of the first node is the coordinator's
_JOIN_SECONDS = 300  # the longest wait for the nodes that one evaluation needs
_EARLY_SECONDS = 60  # Slurm's signal may be early by this time
_TIME = re.compile(r"((?P<days>\d+)-)?(?P<first>\d+)(:(?P<second>[0-5]\d))?(:(?P<third>[0-5]\d))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResources:
    """The requested resources.

    Raises:
        UserError: if a value is not in Slurm's format.
    """

    nodes: int = 1  # the number of nodes
    cpus: int = 1  # processor cores of a node
    gpus: int = 0  # graphics processors of a node
    time: str = "1:00:00"  # the limit of the job, in Slurm's format
    partition: str | None = None  # the partition; None for Slurm's default
    container: str | None = None  # the Apptainer image in which everything runs, if any
    exclusive: bool = False  # whether the nodes run no other job

    def __post_init__(self) -> None:
        for name, value, least in (("nodes", self.nodes, 1), ("cpus", self.cpus, 1), ("gpus", self.gpus, 0)):
            if value < least:
                raise UserError(f"--{name} must be >= {least}, got {value}")
        if not _TIME.fullmatch(self.time):
            raise UserError(
                f"--time must be minutes (90), hours:minutes:seconds (4:00:00) or days-hours (1-12), got {self.time!r}"
            )
        if self.partition is not None and not re.fullmatch(r"[\w.-]+(,[\w.-]+)*", self.partition):
            raise UserError(f"--partition must be names of partitions, separated by commas, got {self.partition!r}")

    @property
    def seconds(self) -> int:
        """The time limit, interpreted as Slurm does: `4:00` is four minutes, `1-4:00` is one day
        and four hours."""
        match = _TIME.fullmatch(self.time)
        assert match is not None, self.time
        first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
        if match["days"] is not None:
            return int(match["days"]) * 86400 + first * 3600 + second * 60 + third
        return first * 3600 + second * 60 + third if match["third"] is not None else first * 60 + second


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script, and its derived settings."""

    text: str
    settings: tuple[Setting, ...]


def script_for(
    allocation: JobResources, settings: Settings, arguments: Sequence[str], run: str, bin_folder: Path
) -> Script:
    """Return the script that runs the campaign with these settings as `run`.

    `arguments` are those of `bbkb run`, beginning with the campaign file. `bin_folder` has the
    commands `bbkb` and `ray` outside a container.

    Raises UserError if a node cannot hold an evaluation, or the time limit is so short that Slurm's
    notice may come at the start.
    """
    check_node(settings, cpus=allocation.cpus, gpus=allocation.gpus, several="nodes")
    nodes = _nodes(allocation, settings)
    places = places_of(settings, nodes, several="nodes")
    head_cpus = int(nodes[0]["CPU"])
    grace = grace_seconds(settings.workers.timeout_seconds)
    if allocation.seconds <= grace + _EARLY_SECONDS:
        least = duration(grace + _EARLY_SECONDS)
        raise UserError(
            f"--time must be more than {least}: Slurm's notice comes {grace} s before the end ({_notice(settings)}) "
            f"and up to {_EARLY_SECONDS} s early, got {allocation.time} ({duration(allocation.seconds)})"
        )
    text = _render(
        allocation,
        header=f"Campaign {settings.name}, written by `bbkb launch slurm`. To start it: sbatch FILE",
        job_name=run,
        output=f"{run}-%j.out",
        bin_folder="" if allocation.container else shlex.quote(str(bin_folder)),
        runs=shlex.quote(settings.runs),
        run=shlex.quote(run),
        grace=grace,
        arguments=shlex.join([*arguments, "--workers", str(places)]),
        cpus=allocation.cpus,
        head_cpus=head_cpus,
        others=least_nodes(settings, nodes) - 1,
    )
    return Script(text, tuple(_reasons(allocation, settings, places, head_cpus, grace=grace, run=run)))


def grace_seconds(timeout_seconds: float | None) -> int:
    """Return the seconds from Slurm's notice to the end, enough for the longest evaluation."""
    if timeout_seconds is None:
        return DEFAULT_GRACE_SECONDS
    return min(_LARGEST_GRACE_SECONDS, max(_LEAST_GRACE_SECONDS, int(timeout_seconds) + END_SECONDS))


def _nodes(allocation: JobResources, settings: Settings) -> list[dict[str, float]]:
    """Return the resources for evaluations on each node, by Ray's names.

    One core of the first node is for the coordinator, unless an evaluation needs all cores.
    """
    spare = (
        allocation.cpus >= _CORES_WITH_A_SPARE
        and settings.workers.largest_share(settings.space).cpus <= allocation.cpus - 1
    )
    node = {"CPU": float(allocation.cpus), "GPU": float(allocation.gpus)}
    return [{**node, "CPU": node["CPU"] - spare}, *[node] * (allocation.nodes - 1)]


def _reasons(
    allocation: JobResources, settings: Settings, places: int, head_cpus: int, grace: int, run: str
) -> list[Setting]:
    spare = "; one core of the first node is the coordinator's" if head_cpus < allocation.cpus else ""
    largest = settings.workers.largest_share(settings.space)
    each = "at most " if settings.workers.gpus_from else ""
    each += _count_of(largest.cpus, "CPU") + (f" and {_count_of(largest.gpus, 'GPU')}" if largest.gpus else "")
    each += f" on each of {plural(largest.machines, 'machine')}" if largest.machines > 1 else ""
    nodes = plural(allocation.nodes, "node")
    return [
        count_setting(settings, places, f"{nodes}, {each} an evaluation{spare}"),
        Setting("--time", duration(allocation.seconds), f"{allocation.time}, as Slurm reads it"),
        Setting(
            "--signal", f"{grace} s", f"{_notice(settings)}; running evaluations have {grace - END_SECONDS} s to end"
        ),
        Setting("--requeue", "yes", "after a time limit, a preemption or a lost node the job resumes the run"),
        Setting("run", f"{settings.runs}/{run}", "every node must see this folder and the campaign file's"),
        Setting(
            "store",
            "sqlite" if settings.store == "sqlite" else "a database",
            "one node writes to it at a time"
            if settings.store == "sqlite"
            else "every node that may become the first one must reach it",
        ),
    ]


def _notice(settings: Settings) -> str:
    """Return the reason for the timing of Slurm's notice."""
    return "workers.timeout_seconds" if settings.workers.timeout_seconds else "no workers.timeout_seconds: two minutes"


def _count_of(amount: float, noun: str) -> str:
    return f"{amount:g} {noun}{'' if amount == 1 else 's'}"


def _render(allocation: JobResources, **values: object) -> str:
    directives = [
        f"--job-name={values['job_name']}",
        f"--nodes={allocation.nodes} --ntasks-per-node=1 --cpus-per-task={allocation.cpus}",
        *([f"--gpus-per-node={allocation.gpus}"] if allocation.gpus else []),
        *([f"--partition={allocation.partition}"] if allocation.partition else []),
        *(["--exclusive"] if allocation.exclusive else []),
        f"--time={allocation.time}",
        f"--signal=B:TERM@{values['grace']}",
        "--requeue --open-mode=append",
        f"--output={values['output']}",
    ]
    container = "" if allocation.container is None else shlex.quote(allocation.container)
    return render(
        "bbkb.sbatch.j2",
        {
            **values,
            "directives": directives,
            "environment": RAY_SETTINGS,
            "container": container,
            "general": values["bin_folder"] == "" and allocation.container is None,
            "gpus": allocation.gpus,
            "end": END_SECONDS,
            "join": _JOIN_SECONDS,
        },
    )
