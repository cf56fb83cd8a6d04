"""A Slurm batch script for a campaign: what `bbkb launch slurm` writes, and what follows from what."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.launchers.writing import Setting, render
from orchestrator.session.environment import RAY_SETTINGS
from orchestrator.settings.model import Settings

END_SECONDS = 35  # after the last evaluation: to stop Ray and queue the job again
DEFAULT_GRACE_SECONDS = 120  # before the end, where nothing says how long an evaluation may take
_LEAST_GRACE_SECONDS, _LARGEST_GRACE_SECONDS = 60, 65535  # the second is Slurm's
_CORES_WITH_A_SPARE = 4  # from so many cores a node on, the first node keeps one for the coordinator
_TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
_GENERAL_CPUS = '"${SLURM_CPUS_PER_TASK:-1}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What is asked of Slurm. `cpus` and `gpus` are a node's; `time` is written as Slurm writes it.

    Raises UserError when a value is none that Slurm knows.
    """

    nodes: int = 1
    cpus: int = 1
    gpus: int = 0
    time: str = "1:00:00"
    partition: str | None = None
    container: Path | None = None
    exclusive: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (("nodes", self.nodes, 1), ("cpus", self.cpus, 1), ("gpus", self.gpus, 0)):
            if value < least:
                raise UserError(f"--{name} must be >= {least}, got {value}")
        if not _TIME.fullmatch(self.time):
            raise UserError(f"--time must be minutes, hours:minutes:seconds or days-hours, got {self.time!r}")
        if self.partition is not None and not re.fullmatch(r"[\w.-]+(,[\w.-]+)*", self.partition):
            raise UserError(f"--partition must be names of partitions, separated by commas, got {self.partition!r}")

    @property
    def head_cpus(self) -> int:
        """Cores of the first node that evaluations may take."""
        return self.cpus - 1 if self.cpus >= _CORES_WITH_A_SPARE else self.cpus


@dataclass(frozen=True, slots=True)
class Script:
    """A batch script, and those of its settings that follow from others."""

    text: str
    settings: tuple[Setting, ...]


def script_for(
    allocation: Allocation, settings: Settings, arguments: Sequence[str], run: str, bin_folder: Path
) -> Script:
    """The script that runs the campaign with these settings as `run`.

    `arguments` are those of `bbkb run`, the campaign file first; `bin_folder` holds the `bbkb` and the `ray` that nodes
    use outside a container. Raises UserError when a node cannot hold one evaluation.
    """
    places = _places(allocation, settings)
    grace = grace_seconds(settings.workers.timeout_seconds)
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
        head_cpus=allocation.head_cpus,
    )
    return Script(text, tuple(_reasons(allocation, settings, places, grace, run)))


def general_script() -> str:
    """The script for any campaign, which is deploy/slurm/bbkb.sbatch."""
    return _render(
        Allocation(nodes=3, cpus=2),
        header="Any campaign: sbatch [its options, which win over those below] bbkb.sbatch campaign.yaml [options of\n"
        "# `bbkb run`]. BBKB_RUNS names the folder of results, BBKB_RUN the run.",
        job_name="bbkb",
        output="bbkb-%j.out",
        bin_folder="",
        runs='"${BBKB_RUNS:-$PWD/runs}"',
        run='"${BBKB_RUN:-slurm-$SLURM_JOB_ID}"',
        grace=DEFAULT_GRACE_SECONDS,
        arguments='--workers $((SLURM_JOB_NUM_NODES * ${SLURM_CPUS_PER_TASK:-1})) "$@"',
        cpus=_GENERAL_CPUS,
        head_cpus=_GENERAL_CPUS,
    )


def grace_seconds(timeout_seconds: float | None) -> int:
    """Seconds before the end at which Slurm says so: enough for the longest evaluation, where that is known."""
    if timeout_seconds is None:
        return DEFAULT_GRACE_SECONDS
    return min(_LARGEST_GRACE_SECONDS, max(_LEAST_GRACE_SECONDS, int(timeout_seconds) + END_SECONDS))


def _places(allocation: Allocation, settings: Settings) -> int:
    """Evaluations that run at the same time. Raises UserError when one node cannot hold one."""
    workers = settings.workers
    if workers.executor != "ray":
        raise UserError(f"workers.executor must be ray to run on several nodes, got {workers.executor}")
    for name, has, wants in (("cpus", allocation.cpus, workers.cpus), ("gpus", allocation.gpus, workers.gpus)):
        if wants > has:
            raise UserError(f"--{name} must be >= workers.{name} = {wants:g}, what one evaluation takes, got {has}")
    by_gpus = int(allocation.gpus / workers.gpus) if workers.gpus else allocation.cpus * 1_000_000
    head = min(int(allocation.head_cpus / workers.cpus), by_gpus)
    other = min(int(allocation.cpus / workers.cpus), by_gpus)
    return max(1, head + (allocation.nodes - 1) * other)


def _reasons(allocation: Allocation, settings: Settings, places: int, grace: int, run: str) -> list[Setting]:
    workers = settings.workers
    spare = "; one core of the first node is the coordinator's" if allocation.head_cpus < allocation.cpus else ""
    each = f"{workers.cpus:g} CPUs" + (f" and {workers.gpus:g} GPUs" if workers.gpus else "")
    known = "workers.timeout_seconds" if workers.timeout_seconds else "no workers.timeout_seconds: two minutes"
    return [
        Setting("workers.count", str(places), f"{allocation.nodes} nodes, {each} an evaluation{spare}"),
        Setting("--signal", f"{grace} s", f"{known}; running evaluations have {grace - END_SECONDS} s to end"),
        Setting("--requeue", "yes", "after a time limit, a preemption or a lost node the job goes on where it was"),
        Setting("run", f"{settings.runs}/{run}", "every node must see this folder and the campaign file's"),
        Setting(
            "store",
            "sqlite" if settings.store == "sqlite" else "a database",
            "one node writes to it at a time"
            if settings.store == "sqlite"
            else "every node that may become the first one must reach it",
        ),
    ]


def _render(allocation: Allocation, **values: object) -> str:
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
    container = "" if allocation.container is None else shlex.quote(str(allocation.container))
    return render(
        "bbkb.sbatch.j2",
        {
            **values,
            "directives": directives,
            "environment": RAY_SETTINGS,
            "container": container,
            "gpus": allocation.gpus,
            "end": END_SECONDS,
        },
    )
