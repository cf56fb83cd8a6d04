"""Starting a campaign, and Ray for it."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bbkb.orchestrator.campaign.events import Event, TrialsContinued, TrialStopped
from bbkb.orchestrator.campaign.results import TrialResult
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.running.launch import Delivery
from bbkb.orchestrator.store.runs import Run
from tests.orchestrator.events import batch, dispatch, opening, session, success
from tests.reported import reported

OPENED = session(slots=1)
WITH_TRAININGS = opening(
    {**plain(OPENED.settings), "early_stopping": {"rule": "model", "after": 1, "continues": "anew"}},
    slots=1,
)
STOPPED = TrialStopped(
    time=1.0, trial=0, attempt=1, value=0.5, step=3, reports=(reported(3, 0.5),), started=0.0, finished=1.0, worker="w"
)


def delivered(
    folder: Path, earlier: Sequence[Event], events: Sequence[Event], in_thread: bool = False
) -> list[tuple[int | None, str]]:
    run, results = Run(folder, f"sqlite:///{folder / 'c.sqlite'}", "c"), list[TrialResult]()
    with run.store() as store:
        store.create("c", earlier)
        writer = store.claim("c", "test")
        delivery = Delivery(run, results.append)
        if in_thread:
            delivery.start()
        writer.append(events)
        delivery.finish()
    return [(result.trial, result.status) for result in results]


def test_trial_stopped_and_continued_is_delivered_at_both_ends(tmp_path: Path) -> None:
    events = (
        STOPPED,
        TrialsContinued(time=2.0, trials=(0,), reason="finish"),
        dispatch((0, 2), time=2.0),
        success(0, attempt=2, time=3.0),
    )
    assert delivered(tmp_path, (WITH_TRAININGS, batch(0, [5]), dispatch((0, 1))), events) == [
        (0, "stopped"),
        (0, "succeeded"),
    ]


def test_results_of_earlier_sessions_are_not_delivered(tmp_path: Path) -> None:
    earlier = (OPENED, batch(0, [5, 6]), dispatch((0, 1)), success(0))
    events = (dispatch((1, 1)), success(1))
    (tmp_path / "other").mkdir()
    assert delivered(tmp_path, earlier, events) == [(1, "succeeded")]
    assert delivered(tmp_path / "other", earlier, events, in_thread=True) == [(1, "succeeded")]


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
