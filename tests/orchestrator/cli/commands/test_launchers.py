"""`bbkb launch …` as a person types it: its files, its messages, and the location of the token."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.errors import UserError

CAMPAIGN = """
name: sine
objective: {name: sine}
budget: {evaluations: 5}
workers: {timeout_seconds: 60}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    return tmp_path


def bbkb(*arguments: str) -> str:
    """Return the command's output, without wrapped lines. Raises the command's errors."""
    done = CliRunner().invoke(app, ["launch", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_launch_slurm_writes_a_script_and_explains_its_settings(folder: Path) -> None:
    text = bbkb("slurm", "campaign.yaml", "--nodes", "3", "--cpus", "2", "--run", "first", "--set", "seed=4")
    script = folder / "first.sbatch"
    assert f"to start it: sbatch {script}" in text
    assert "workers.count 6 3 nodes, 1 CPU an evaluation" in text
    assert f"bbkb run {folder / 'campaign.yaml'} --set seed=4 --workers 6 " in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_launch_slurm_without_slurm_is_a_mistake_of_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(UserError, match="--submit needs the command sbatch"):
        bbkb("slurm", "campaign.yaml", "--submit")


def test_launch_shows_the_error_of_the_clusters_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sbatch").write_text("#!/bin/sh\necho 'invalid partition' >&2; exit 1\n")
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    with pytest.raises(UserError, match="sbatch rejected the job: invalid partition"):
        bbkb("slurm", "campaign.yaml", "--submit")


def test_job_is_submitted_again_while_rays_agent_is_starting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = "echo 'RuntimeError: No available agent to submit job, please try again later.' >&2; exit 1"
    (folder / "ray").write_text(
        f"#!/bin/sh\n[ -e tried ] && printf '\\033[1maccepted\\033[22m' && exit 0\ntouch tried; {refuse}\n"
    )
    (folder / "ray").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    command = ["ray-job", "campaign.yaml", "--runs", "/elsewhere", "--submit"]
    assert bbkb(*command).endswith("accepted")
    (folder / "ray").write_text(f"#!/bin/sh\necho try >>tries; {refuse}\n")
    with pytest.raises(UserError, match="No available agent"):
        bbkb(*command)
    assert (folder / "tries").read_text().count("try") == 6


def test_launch_shows_the_last_line_of_a_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traceback = r"Traceback (most recent call last):\n  File x\n\033[31mConnectionError: no cluster there\033[39m\n"
    (folder / "ray").write_text(f"#!/bin/sh\nprintf '{traceback}' >&2; exit 1\n")
    (folder / "ray").chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))  # its folder is not in PATH
    with pytest.raises(UserError, match=r"ray rejected the job: ConnectionError: no cluster there$"):
        bbkb("ray-job", "campaign.yaml", "--runs", "/shared/runs", "--submit")


def test_image_is_named_so_that_nodes_find_it(folder: Path) -> None:
    with pytest.raises(UserError, match=f"--container must be an image that every node sees.* got {folder}/bbkb.sif"):
        bbkb("slurm", "campaign.yaml", "--container", "bbkb.sif")
    (folder / "bbkb.sif").touch()
    for image, written in (("bbkb.sif", f"{folder}/bbkb.sif"), ("docker://example/bbkb:1", "docker://example/bbkb:1")):
        bbkb("slurm", "campaign.yaml", "--container", image)
        assert f'--bind "$tmp" {written})' in (folder / "sine.sbatch").read_text()


def test_path_with_a_space_is_one_word_of_the_command_that_is_shown(folder: Path) -> None:
    (folder / "my folder").mkdir()
    text = bbkb("slurm", "campaign.yaml", "--output", "my folder/a.sbatch")
    assert f"to start it: sbatch '{folder}/my folder/a.sbatch'" in text


def test_ray_job_is_printed_with_a_prompt_for_the_token(folder: Path) -> None:
    text = bbkb("ray-job", "campaign.yaml", "--runs", "/shared/runs")
    assert "RAY_AUTH_MODE=token ray job submit --address http://127.0.0.1:8265" in text
    assert "--set runs=/shared/runs --run sine --or-resume" in text


def test_manifests_hold_a_token_that_only_the_user_can_read_and_that_is_not_printed(folder: Path) -> None:
    text = bbkb("kuberay", "campaign.yaml", "--image", "registry.example/bbkb:1", "--run", "first")
    file = folder / "first.kuberay.yaml"
    assert file.stat().st_mode & 0o777 == 0o600
    secret = next(document for document in yaml.safe_load_all(file.read_text()) if document["kind"] == "Secret")
    assert len(secret["stringData"]["auth_token"]) == 64
    assert secret["stringData"]["auth_token"] not in text


def test_invalid_name_is_rejected(folder: Path) -> None:
    with pytest.raises(UserError, match="run"):
        bbkb("slurm", "campaign.yaml", "--run", "../elsewhere")
