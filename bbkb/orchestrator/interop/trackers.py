"""Exports finished trials to an experiment tracker: TensorBoard (tensorboardX) or MLflow.

The campaign is a parent run, and each trial that has ended is a child run. A repeated export adds
only new trials.
"""

import json
import math
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bbkb.orchestrator import credentials
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_STATE_FILE = "bbkb-exported.json"  # in TensorBoard's folder: the campaign and the exported trials
_TRIAL_TAG = "bbkb.trial"
_RUN_TAG = "bbkb.run"
# Settings of the first request: a time-out of 6 seconds and one retry
_FIRST_CALL = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "6", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
_LONGEST_TEXT = 500  # characters of a parameter or a message


def to_tensorboard(history: History, run: str, folder: Path) -> int:
    """Write each new trial of the campaign `run` into a folder below `folder`; return their number.

    The campaign's scalars `value` and `best` are indexed by the number of results, and a trial's
    reports by their step.

    Raises:
        UserError: if tensorboardX is not installed, or `folder` contains another campaign or cannot
            be written.
    """
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        raise _missing("tensorboardX", '"tensorboardX>=2.6,<3"') from None
    exported = _read_exported(folder, run)
    ended = list(_ended_trials(history))
    new = [row for row in ended if row.trial not in exported]
    if not new:
        return 0
    state = {"run": run, "trials": sorted(row.trial for row in ended)}
    try:
        _write_campaign_scalars(history, folder, exported)
        for row in new:
            _write_trial_folder(row, folder / f"trial-{row.trial:06d}")
        (folder / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    return len(new)


def _write_campaign_scalars(history: History, folder: Path, exported: Collection[int]) -> None:
    """Write the value of each new result, and the best value so far."""
    from tensorboardX import SummaryWriter

    best: float | None = None
    # the suffix distinguishes two exports in the same second
    suffix = f".after-{len(exported)}"
    with SummaryWriter(str(folder / "campaign"), filename_suffix=suffix) as writer:
        for count, row in enumerate(history.succeeded, start=1):
            if row.is_feasible is not False:
                best = _better(history, best, row.value)
            if row.trial in exported:
                continue
            writer.add_scalar("value", row.value, count, walltime=row.finished)
            if best is not None:
                writer.add_scalar("best", best, count, walltime=row.finished)


def _write_trial_folder(row: TrialRow, folder: Path) -> None:
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    shutil.rmtree(folder, ignore_errors=True)  # it may exist after an interrupted export
    numbers = _numbers(row)
    with SummaryWriter(str(folder)) as writer:
        for summary in hparams(dict(_parameters(row)), numbers):
            writer.file_writer.add_summary(summary)
        for name, number in numbers.items():
            writer.add_scalar(name, number, 0, walltime=row.finished)
        for name, number, step in _report_rows(row):
            writer.add_scalar(name, number, step)


def to_mlflow(history: History, run: str, uri: str) -> int:
    """Log the new trials of the campaign `run` to the MLflow server or database at `uri`, and
    return their number.

    The experiment is named after the campaign, and its parent run after the run. A child run
    contains a trial's parameters, metrics and reports. Raises UserError if MLflow is not installed
    or the tracker cannot be used.
    """
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise _missing("MLflow", '"mlflow-skinny>=3,<4" "alembic>=1.13,<2"') from None
    try:
        client = MlflowClient(tracking_uri=uri)
        with _first_call():
            client.get_experiment_by_name(history.created.name)
        return _log_children(client, history, run)
    except MlflowException as error:
        reason = credentials.without_secrets(str(error), uri)
        raise UserError(
            f"MLflow at {credentials.redact(uri)} cannot be used: {reason}; start the server, or give another address "
            "by --output"
        ) from None  # the cause may contain a password


@contextmanager
def _first_call() -> Iterator[None]:
    """Make the first request to an unreachable server fail within seconds.

    Later requests use MLflow's default, which retries for minutes. Variables set by the user are
    not changed.
    """
    added = {key: value for key, value in _FIRST_CALL.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]


def _log_children(client: "MlflowClient", history: History, run: str) -> int:
    existing = client.get_experiment_by_name(history.created.name)
    experiment = client.create_experiment(history.created.name) if existing is None else existing.experiment_id
    parent = _parent(client, experiment, history, run)
    logged = _read_logged_trials(client, experiment, parent)
    new = [row for row in _ended_trials(history) if row.trial not in logged]
    for row in new:
        _log_trial(client, experiment, parent, row)
    best = history.best
    if best is not None and best.value is not None:
        client.set_tag(parent, "bbkb.best_trial", str(best.trial))
        client.set_tag(parent, "bbkb.best_value", repr(best.value))
    return len(new)


def _parent(client: "MlflowClient", experiment: str, history: History, run: str) -> str:
    quoted = run.replace("'", "")
    runs = client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{quoted}'")
    if runs:
        return str(runs[0].info.run_id)
    created = client.create_run(
        experiment, start_time=_milliseconds(history.created.time), tags={_RUN_TAG: quoted}, run_name=run
    )
    client.set_terminated(created.info.run_id, end_time=_milliseconds(history.campaign.clock.last_time))
    return str(created.info.run_id)


def _read_logged_trials(client: "MlflowClient", experiment: str, parent: str) -> set[int]:
    """Return the trials that are already logged. Those of an interrupted export are deleted."""
    logged: set[int] = set()
    token = None
    while True:
        page = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'", page_token=token)
        for child in page:
            if _TRIAL_TAG in child.data.tags:
                logged.add(int(child.data.tags[_TRIAL_TAG]))
            else:
                client.delete_run(child.info.run_id)
        token = page.token
        if not token:
            return logged


def _log_trial(client: "MlflowClient", experiment: str, parent: str, row: TrialRow) -> None:
    from mlflow.entities import Metric, Param, RunTag

    began = row.started if row.started is not None else 0.0
    ended = row.finished if row.finished is not None else began
    tags = {"mlflow.parentRunId": parent, "bbkb.status": row.status}
    if row.error:
        tags["bbkb.error"] = row.error[:_LONGEST_TEXT]
    child = client.create_run(experiment, _milliseconds(began), tags, run_name=f"trial {row.trial}").info.run_id
    metrics = [Metric(name, number, _milliseconds(ended), 0) for name, number in _numbers(row).items()]
    metrics += [Metric(name, number, _milliseconds(ended), step) for name, number, step in _report_rows(row)]
    parameters = [Param(name, str(value)) for name, value in _parameters(row)]
    client.set_terminated(child, "FAILED" if row.status == "failed" else "FINISHED", _milliseconds(ended))
    for first in range(1000, len(metrics), 1000):  # MLflow's largest batch
        client.log_batch(child, metrics=metrics[first : first + 1000])
    # MLflow writes tags after metrics and parameters, so this tag marks a complete child run
    is_complete = RunTag(_TRIAL_TAG, str(row.trial))
    client.log_batch(child, metrics=metrics[:1000], params=parameters[:100], tags=[is_complete])


def _read_exported(folder: Path, run: str) -> set[int]:
    file = folder / _STATE_FILE
    if not file.exists():
        return set()
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        exported_run = str(state["run"])
        trials = {int(trial) for trial in state["trials"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is damaged: remove {folder}, and export again") from error
    if exported_run != run:
        raise UserError(f"--output must be a different folder for each campaign, and {folder} contains {exported_run}")
    return trials


def _ended_trials(history: History) -> Iterator[TrialRow]:
    return (row for row in history.trials if row.status in ("succeeded", "failed", "stopped"))


def _better(history: History, best: float | None, value: float | None) -> float | None:
    if best is None or value is None:
        return value
    return max(best, value) if history.is_maximized else min(best, value)


def _numbers(row: TrialRow) -> dict[str, float]:
    """Return the value and those metrics that are finite numbers."""
    numbers = {name: float(number) for name, number in row.metrics.items() if math.isfinite(number)}
    if row.value is not None:
        numbers["value"] = row.value
    return numbers


def _report_rows(row: TrialRow) -> Iterator[tuple[str, float, int]]:
    """Yield the name, value and step of all reported values and metrics."""
    for step, value in sorted(row.training.reports.items()):
        yield "reported", value, step
    for step, metrics in sorted(row.training.metrics.items()):
        yield from ((f"reported.{name}", number, step) for name, number in metrics.items())


def _parameters(row: TrialRow) -> Iterator[tuple[str, str | float | int | bool]]:
    for name, value in row.parameters.items():
        yield name, value if isinstance(value, bool | int | float) else str(value)[:_LONGEST_TEXT]


def _milliseconds(at: float) -> int:
    return max(0, round(1000 * at))


def _missing(library: str, install: str) -> UserError:
    return UserError(f"the export needs {library}, which is not installed: pip install {install}")
