"""`bbkb launch …`: scripts and manifests that start a campaign on a cluster, which the command
writes and, if requested, submits; and the command that submits it as a Ray job."""

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bbkb.orchestrator import files
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.arguments import CampaignFile, Overrides, RunName, overrides
from bbkb.orchestrator.cli.launchers import kubernetes
from bbkb.orchestrator.cli.launchers.slurm import JobResources, grace_seconds, script_for
from bbkb.orchestrator.cli.launchers.writing import Setting, set_path
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.report.terminal import SafeConsole, say, write_file
from bbkb.orchestrator.settings.loading import load


def command_for(
    settings: Settings, campaign: Path, overrides: Sequence[str], run: str, runs: Path | None, address: str
) -> list[str]:
    """Return `ray job submit …`, which uploads the campaign file's folder and starts or resumes
    `run` on the cluster.

    `runs` is the folder for results on the cluster's nodes; None for the folder in the settings.
    Raises UserError if it is inside the uploaded folder, whose copy is deleted together with the
    job.
    """
    folder = campaign.resolve().parent
    results = Path(settings.runs) if runs is None else runs
    if not results.is_absolute() or results.is_relative_to(folder):
        raise UserError(
            f"--runs must be an absolute path on the cluster and outside {folder}, which is uploaded and removed with "
            f"the job, got {results}: add --runs /a/folder/that/every/node/sees"
        )
    environment = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(grace_seconds(settings.workers.timeout_seconds))}}
    arguments = [
        campaign.name,
        *(part for pair in overrides for part in ("--set", pair)),
        "--set",
        set_path("runs", results),
    ]
    return [
        *("ray", "job", "submit", "--address", address, "--no-wait"),
        *("--metadata-json", json.dumps({"job_name": run})),
        *("--runtime-env-json", json.dumps(environment)),
        *("--working-dir", str(folder), "--"),
        *("bbkb", "run", *arguments, "--run", run, "--or-resume"),
    ]


def reasons(settings: Settings, run: str) -> tuple[Setting, ...]:
    """Return the settings in that command with their reasons."""
    grace = grace_seconds(settings.workers.timeout_seconds)
    reason = "workers.timeout_seconds" if settings.workers.timeout_seconds else "no workers.timeout_seconds"
    return (
        Setting("job_name", run, "the name of the run, on the Ray dashboard"),
        Setting("RAY_JOB_STOP_WAIT_TIME_S", str(grace), f"{reason}: `ray job stop` lets running evaluations end"),
        Setting("--or-resume", "yes", "the same command continues the run after a stop"),
    )


_NO_AGENT = "No available agent"  # in Ray's output, after ten seconds
_SUBMISSIONS = 6
_COLORS = re.compile(r"\x1b\[[0-9;]*m")  # Ray colors its output even if it is captured

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Write the script or manifest that starts a campaign on a cluster, and submit it.",
)

Output = Annotated[
    Path | None, typer.Option("--output", help="File to write; default: the run's name, in this folder.")
]


@app.callback()
def launch() -> None:
    """Write the script or manifest that starts a campaign on a cluster, and submit it."""


@app.command()
def slurm(
    file: CampaignFile,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of the job.")] = 1,
    cpus: Annotated[int, typer.Option("--cpus", help="CPUs of each node.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of each node.")] = 0,
    time: Annotated[str, typer.Option("--time", help="Time limit: minutes, h:mm:ss or days-hours.")] = "1:00:00",
    partition: Annotated[str | None, typer.Option("--partition", help="Partition; default: the cluster's.")] = None,
    container: Annotated[
        str | None, typer.Option("--container", help="Apptainer image with bbkb in it: a file or a URI.")
    ] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Do not share the nodes with other jobs.")] = False,
    name: RunName = None,
    set_: Overrides = None,
    output: Output = None,
    submit: Annotated[bool, typer.Option("--submit", help="Submit the script with sbatch.")] = False,
) -> None:
    """Write a Slurm script that runs a campaign on several nodes, through time limits and
    preemptions."""
    console = SafeConsole()
    settings = load(file, overrides(set_, run=name))
    run = settings.run or settings.name
    if container and "://" not in container:
        image = Path(container).resolve()
        if not image.exists():
            raise UserError(
                f"--container must be an image that every node sees, or a URI such as docker://…, got {image}"
            )
        container = str(image)
    allocation = JobResources(
        nodes=nodes,
        cpus=cpus,
        gpus=gpus,
        time=time,
        partition=partition,
        container=container,
        exclusive=exclusive,
    )
    arguments = [str(file.resolve()), *(part for pair in overrides(set_) for part in ("--set", pair))]
    script = script_for(allocation, settings, arguments, run, Path(sys.executable).parent)
    path = (output or Path(f"{run}.sbatch")).resolve()
    write_file(path, lambda target: target.write_text(script.text, encoding="utf-8"))
    _explain(console, script.settings)
    say(console, f"script {path}")
    if not submit:
        say(console, f"to start it: {shlex.join(['sbatch', str(path)])}")
        return
    say(console, _command("sbatch", "--chdir", str(Path.cwd()), str(path)))
    watch = shlex.join(["bbkb", "attach", str(Path(settings.runs, run))])
    say(console, f"to watch it: {watch}, or in a browser: {shlex.join(['bbkb', 'serve', settings.runs])}")


@app.command("ray-job")
def ray_job(
    file: CampaignFile,
    address: Annotated[
        str, typer.Option("--address", help="The address of Ray's dashboard.")
    ] = "http://127.0.0.1:8265",
    runs: Annotated[Path | None, typer.Option("--runs", help="Folder for results on the cluster.")] = None,
    name: RunName = None,
    set_: Overrides = None,
    submit: Annotated[bool, typer.Option("--submit", help="Run the command.")] = False,
) -> None:
    """Print the command that runs a campaign as a Ray job, or run it."""
    console = SafeConsole()
    settings = load(file, overrides(set_, run=name))
    run = settings.run or settings.name
    command = command_for(settings, file, overrides(set_), run, runs=runs, address=address)
    _explain(console, reasons(settings, run))
    if not submit:
        say(console, f"RAY_AUTH_MODE=token {shlex.join(command)}")
        return
    for submission in range(1, _SUBMISSIONS + 1):
        try:
            say(console, _command(*command))
            return
        except UserError as error:  # Ray's agent on the head may still be starting
            if submission == _SUBMISSIONS or _NO_AGENT not in str(error):
                raise


@app.command()
def kuberay(
    file: CampaignFile,
    image: Annotated[str, typer.Option("--image", help="Image with bbkb and the objective's code in it.")],
    pods: Annotated[int, typer.Option("--pods", help="Worker pods.")] = 1,
    cpus: Annotated[int, typer.Option("--cpus", help="CPUs of each worker pod.")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of each worker pod.")] = 0,
    memory: Annotated[str, typer.Option("--memory", help="Memory of each worker pod.")] = "4Gi",
    storage: Annotated[str, typer.Option("--storage", help="Storage for results.")] = "5Gi",
    name: RunName = None,
    set_: Overrides = None,
    output: Output = None,
) -> None:
    """Write the manifests that run a campaign on Kubernetes with the KubeRay operator."""
    console = SafeConsole()
    settings = load(file, overrides(set_, run=name))
    run = settings.run or settings.name
    requested = kubernetes.Pods(image=image, pods=pods, cpus=cpus, gpus=gpus, memory=memory, storage=storage)
    text = file.read_text(encoding="utf-8")
    manifests = kubernetes.manifests_for(requested, settings, text, run, token=secrets.token_hex(32))
    path = (output or Path(f"{run}.kuberay.yaml")).resolve()
    write_file(path, lambda target: files.write_text(target, kubernetes.as_yaml(manifests)))
    _explain(console, kubernetes.reasons(requested, settings, run))
    say(console, f"manifests {path}, which hold the cluster's token: mode 0600")
    say(console, f"to start it: {shlex.join(['kubectl', 'apply', '-f', str(path)])}")


def _explain(console: Console, settings: Iterable[Setting]) -> None:
    table = Table.grid(padding=(0, 2))
    for setting in settings:
        table.add_row(Text(setting.name, "dim"), Text(setting.value), Text(setting.reason, "dim"))
    console.print(table)


def _command(*command: str) -> str:
    """Return the output of a cluster's own command. Raises UserError with its message."""
    # `ray` is in the environment of `bbkb`, which need not be activated
    beside = os.path.dirname(sys.executable)
    program = shutil.which(command[0]) or shutil.which(command[0], path=beside)
    if program is None:
        raise UserError(f"--submit needs the command {command[0]}, which this machine lacks: use a machine that has it")
    environment = {"RAY_AUTH_MODE": "token", **os.environ}
    words = [program, *command[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    output = _COLORS.sub("", done.stdout.strip())
    if done.returncode:
        complaint = _COLORS.sub("", done.stderr.strip()) or output
        if "Traceback (most recent call last)" in complaint:
            complaint = complaint.splitlines()[-1]
        raise UserError(f"{command[0]} rejected the job: {complaint}")
    return output
