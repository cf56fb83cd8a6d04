"""A campaign as a Ray job, the command of `bbkb launch ray-job`."""

import json
from collections.abc import Sequence
from pathlib import Path

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.cli.launchers.slurm import grace_seconds
from bbkb.orchestrator.cli.launchers.writing import Setting, set_path
from bbkb.orchestrator.errors import UserError


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
