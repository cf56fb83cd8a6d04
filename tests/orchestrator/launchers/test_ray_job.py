"""The command that submits a campaign as a Ray job."""

import json
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.launchers.ray_job import command_for, reasons
from bbkb.orchestrator.settings.loading import from_mapping


def settings_of(runs: str) -> Settings:
    campaign = {
        "name": "sine",
        "objective": {"name": "sine"},
        "budget": {"evaluations": 5},
        "workers": {"timeout_seconds": 600.0},
        "runs": runs,
    }
    return from_mapping(campaign)


def test_command_uploads_the_campaigns_folder_and_is_safe_to_repeat(tmp_path: Path) -> None:
    settings = settings_of("/shared/runs")
    command = command_for(settings, tmp_path / "c.yaml", ["seed=3"], "first", None, "http://head:8265")
    options, _, entrypoint = " ".join(command).partition(" -- ")
    assert f"--working-dir {tmp_path}" in options
    assert entrypoint == "bbkb run c.yaml --set seed=3 --set runs=/shared/runs --run first --or-resume"
    assert json.loads(command[command.index("--metadata-json") + 1]) == {"job_name": "first"}
    environment = json.loads(command[command.index("--runtime-env-json") + 1])
    assert environment == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "635"}}
    assert {setting.name for setting in reasons(settings, "first")} >= {"job_name", "RAY_JOB_STOP_WAIT_TIME_S"}


@pytest.mark.parametrize("runs", ["relative/runs", "{folder}/runs"])
def test_results_folder_inside_the_uploaded_folder_is_rejected(tmp_path: Path, runs: str) -> None:
    results = Path(runs.format(folder=tmp_path))
    with pytest.raises(UserError, match="--runs must be an absolute path on the cluster and outside"):
        command_for(settings_of("/shared/runs"), tmp_path / "c.yaml", [], "first", results, "http://head:8265")
