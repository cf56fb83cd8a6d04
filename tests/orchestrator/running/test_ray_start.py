"""Tests of orchestrator/running/ray_start.py: requests that fit on no node are rejected before a
campaign starts."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.errors import UserError


def refusal(tmp_path: Path, *command: str, **workers: object) -> str:
    """The error of this command for a campaign with these workers; empty if there is none."""
    file = tmp_path / "c.yaml"
    tree = {
        "name": "fitting",
        "objective": {"name": "branin"},
        "budget": {"evaluations": 4},
        "workers": {"count": 2, **workers},
        "runs": str(tmp_path / "runs"),
    }
    file.write_text(yaml.safe_dump(tree))
    try:
        CliRunner().invoke(app, [command[0], str(file), *command[1:]], catch_exceptions=False)
    except UserError as error:
        assert not (tmp_path / "runs").exists()
        return str(error)
    return ""


@pytest.mark.parametrize("command", [("validate",), ("run", "--dry-run")])
def test_evaluation_too_large_for_every_node_of_the_named_cluster_is_rejected(
    tmp_path: Path, ray_cluster: str, command: tuple[str, ...]
) -> None:
    command = (*command, "--address", ray_cluster)
    refused = refusal(tmp_path, *command, gpus=3)
    assert "must fit on one node, got CPU 1, GPU 3" in refused
    assert re.search(r"the nodes have [\d.]+: CPU 4, GPU 2: lower", refused)
    assert refusal(tmp_path, *command, gpus=2) == ""


def test_dry_run_rejects_more_graphics_processors_than_this_machine_has(tmp_path: Path) -> None:
    assert "the nodes have this machine: CPU" in refusal(tmp_path, "run", "--dry-run", gpus=1000)
    assert refusal(tmp_path, "run", "--dry-run", cpus=1000) == ""  # logical CPUs are shared


def test_validate_without_a_cluster_checks_no_nodes(tmp_path: Path) -> None:
    assert refusal(tmp_path, "validate", gpus=1000) == ""


def test_fraction_of_several_graphics_processors_is_rejected(tmp_path: Path) -> None:
    assert "must be a whole number above 1" in refusal(tmp_path, "validate", gpus=1.5)


def test_ray_train_without_the_replaced_parts_is_rejected_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(tmp_path, "validate", ray_train=True) == ""
    monkeypatch.delitem(sys.modules, "bbkb.workers.on_ray.trainer_check")
    monkeypatch.setitem(sys.modules, "ray.train.v2._internal.execution.worker_group", None)
    assert "workers.ray_train needs the Ray Train of Ray 2.60, got" in refusal(tmp_path, "validate", ray_train=True)
