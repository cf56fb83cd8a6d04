"""Real experiment trackers: they contain every finished trial once, however often it is
exported."""

import os
import socket
import struct
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.cli import trackers
from bbkb.orchestrator.cli.trackers import to_mlflow, to_tensorboard
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import History, fold
from tests.orchestrator.synthetic_log import SyntheticLog

EVENTS = SyntheticLog(trials=8, failure_share=0.3, sessions=1).events()


def first_half_and_whole() -> tuple[History, History]:
    return fold(EVENTS[: len(EVENTS) // 2]), fold(EVENTS)


def finished_trials(history: History) -> int:
    return history.status().trials.done


def scalars(folder: Path) -> Iterator[tuple[str, int, float]]:
    """(tag, step, value) of all event files below a folder, in TensorFlow's record format."""
    from tensorboardX.proto.event_pb2 import Event

    for file in sorted(folder.rglob("events.*")):
        content, place = file.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            yield from (
                (value.tag, event.step, value.simple_value)
                for value in event.summary.value
                if value.HasField("simple_value")
            )


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.thorough
def test_tensorboard_has_every_result_once_after_a_second_export(tmp_path: Path) -> None:
    half, whole = first_half_and_whole()
    assert to_tensorboard(half, "run", tmp_path) == finished_trials(half)
    assert to_tensorboard(whole, "run", tmp_path) == finished_trials(whole) - finished_trials(half)
    assert to_tensorboard(whole, "run", tmp_path) == 0
    parent = list(scalars(tmp_path / "run" / "campaign"))
    values = {step: value for tag, step, value in parent if tag == "value"}
    assert len([1 for tag, _, _ in parent if tag == "value"]) == len(whole.succeeded)
    expected = dict(enumerate((row.value for row in whole.succeeded), start=1))
    assert values == pytest.approx(expected, rel=1e-6)
    assert whole.best is not None
    assert max(value for tag, _, value in parent if tag == "best") == pytest.approx(whole.best.value, rel=1e-6)
    assert {folder.name for folder in (tmp_path / "run").glob("trial-*")} == {
        f"trial-{row.trial:06d}" for row in whole.trials if row.status in ("succeeded", "failed")
    }
    assert to_tensorboard(half, "another", tmp_path) == finished_trials(half)  # beside the first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_mlflow_export_to_an_unreachable_server_fails_soon_and_hides_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(trackers._FIRST_CALL, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    environment = dict(os.environ)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, never responds
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            UserError, match=rf"^MLflow at http://ann:\*\*\*@{where} cannot be used: .*--output"
        ) as error:
            to_mlflow(fold(EVENTS), "run", f"http://ann:hunter2@{where}")
    assert "hunter2" not in str(error.value)
    assert dict(os.environ) == environment  # further exports wait as long as MLflow does by default


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
def test_mlflow_has_a_parent_run_and_one_child_per_trial(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient

        uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
        half, whole = first_half_and_whole()
        assert to_mlflow(half, "run", uri) == finished_trials(half)
        assert to_mlflow(whole, "run", uri) == finished_trials(whole) - finished_trials(half)
        assert to_mlflow(whole, "run", uri) == 0
        client = MlflowClient(tracking_uri=uri)
        experiment: Any = client.get_experiment_by_name("synthetic")
        runs = client.search_runs([experiment.experiment_id])
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert whole.best is not None
    assert parent.data.tags["bbkb.best_trial"] == str(whole.best.trial)
    count = Counter(int(child.data.tags["bbkb.trial"]) for child in children)
    assert count == Counter(row.trial for row in whole.trials if row.status in ("succeeded", "failed"))
    for child in children:
        row = whole.trials[int(child.data.tags["bbkb.trial"])]
        assert child.data.params["learning_rate"] == str(row.parameters["learning_rate"])
        assert child.data.metrics.get("value") == row.value
        assert child.info.status == ("FAILED" if row.status == "failed" else "FINISHED")
