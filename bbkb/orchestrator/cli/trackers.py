"""Exports finished trials to an experiment tracker: TensorBoard (tensorboardX) or MLflow. A repeated export adds
only new trials."""

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bbkb.orchestrator import credentials
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import ENDED, History, TrialRow

_TRIAL_TAG = "bbkb.trial"
_RUN_TAG = "bbkb.run"
_MISSING = "the export needs {}, which is not installed: pip install {}"
# Settings of the first request: an unreachable server fails within seconds, not MLflow's minutes
_FIRST_CALL = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "6", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
_LONGEST_TEXT = 500  # characters of a parameter or a message
_BATCH = 1000  # metrics in a request to MLflow, its largest number


def to_tensorboard(history: History, run: str, folder: Path) -> int:
    """Write the campaign and each new trial into folders below `folder / run`; return the number of
    new trials.

    The campaign's scalars `value` and `best` are indexed by the number of results, and a trial's
    reports by their step. Raises UserError if tensorboardX is not installed, or `folder` cannot be
    written.
    """
    try:
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams
    except ImportError:
        raise UserError(_MISSING.format("tensorboardX", '"tensorboardX>=2.6,<3"')) from None
    below = folder / run
    places = {row.trial: below / f"trial-{row.trial:06d}" for row in history.trials if row.status in ENDED}
    new = [history.trials[trial] for trial, place in places.items() if not place.exists()]
    unfinished = below / "unfinished"
    try:
        shutil.rmtree(below / "campaign", ignore_errors=True)  # written anew
        with SummaryWriter(str(below / "campaign")) as writer:
            for count, row in enumerate(history.succeeded, start=1):
                writer.add_scalar("value", row.value, count, walltime=row.finished)
            for point in history.trace.improvements:
                writer.add_scalar("best", point.item.value, point.place, walltime=point.item.finished)
        for row in new:
            shutil.rmtree(unfinished, ignore_errors=True)  # of an interrupted export
            numbers = _numbers(row)
            with SummaryWriter(str(unfinished)) as writer:
                for summary in hparams(_parameters(row), numbers):
                    writer.file_writer.add_summary(summary)
                for name, number in numbers.items():
                    writer.add_scalar(name, number, 0, walltime=row.finished)
                for name, number, step in _reports(row):
                    writer.add_scalar(name, number, step)
            unfinished.rename(places[row.trial])
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    return len(new)


def to_mlflow(history: History, run: str, uri: str) -> int:
    """Log the new trials of the campaign `run` to the MLflow server or database at `uri`, and
    return their number.

    The experiment is named after the campaign, and its parent run after the run. Raises UserError
    if MLflow is not installed or the tracker cannot be used.
    """
    try:
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise UserError(_MISSING.format("MLflow", '"mlflow-skinny>=3,<4" "alembic>=1.13,<2"')) from None
    name = history.settings.name
    quoted = run.replace("'", "")
    try:
        client = MlflowClient(tracking_uri=uri)
        added = {key: value for key, value in _FIRST_CALL.items() if key not in os.environ}
        os.environ.update(added)
        try:
            existing = client.get_experiment_by_name(name)
        finally:
            for key in added:
                del os.environ[key]
        experiment = client.create_experiment(name) if existing is None else existing.experiment_id
        parents = client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{quoted}'")
        began, ended = _milliseconds(history.created.time), _milliseconds(history.campaign.clock.last_time)
        made = parents[0] if parents else client.create_run(experiment, began, {_RUN_TAG: quoted}, run_name=run)
        parent = str(made.info.run_id)
        client.set_terminated(parent, end_time=ended)
        logged: set[int] = set()
        token: str | None = None
        while True:
            page = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent}'", page_token=token)
            for child in page:
                if _TRIAL_TAG in child.data.tags:
                    logged.add(int(child.data.tags[_TRIAL_TAG]))
                else:  # of an interrupted export
                    client.delete_run(child.info.run_id)
            token = page.token
            if not token:
                break
        new = [row for row in history.trials if row.status in ENDED and row.trial not in logged]
        for row in new:
            began = _milliseconds(row.started or 0.0)
            ended = began if row.finished is None else _milliseconds(row.finished)
            tags = {"mlflow.parentRunId": parent, "bbkb.status": row.status, "bbkb.error": row.error[:_LONGEST_TEXT]}
            run_id = client.create_run(experiment, began, tags, run_name=f"trial {row.trial}").info.run_id
            listed = [*((name, number, 0) for name, number in _numbers(row).items()), *_reports(row)]
            metrics = [Metric(name, number, ended, step) for name, number, step in listed]
            parameters = [Param(name, str(value)) for name, value in _parameters(row).items()]
            client.set_terminated(run_id, "FAILED" if row.status == "failed" else "FINISHED", ended)
            for first in range(_BATCH, len(metrics), _BATCH):
                client.log_batch(run_id, metrics=metrics[first : first + _BATCH])
            # MLflow writes tags after metrics and parameters, so this tag marks a complete child run
            is_complete = RunTag(_TRIAL_TAG, str(row.trial))
            client.log_batch(run_id, metrics=metrics[:_BATCH], params=parameters[:100], tags=[is_complete])
        if history.best is not None:
            client.set_tag(parent, "bbkb.best_trial", str(history.best.trial))
            client.set_tag(parent, "bbkb.best_value", repr(history.best.value))
    except MlflowException as error:
        reason = credentials.without_secrets(str(error), uri)
        raise UserError(
            f"MLflow at {credentials.redact(uri)} cannot be used: {reason}; start the server, or give another address "
            "by --output"
        ) from None  # the cause may contain a password
    return len(new)


def _numbers(row: TrialRow) -> dict[str, float]:
    named = row.metrics if row.value is None else {**row.metrics, "value": row.value}
    return {name: float(number) for name, number in named.items() if math.isfinite(number)}


def _reports(row: TrialRow) -> Iterator[tuple[str, float, int]]:
    for step, value in sorted(row.training.reports.items()):
        yield "reported", value, step
    for step, metrics in sorted(row.training.metrics.items()):
        yield from ((f"reported.{name}", number, step) for name, number in metrics.items())


def _parameters(row: TrialRow) -> dict[str, str | float]:
    return {
        name: value if isinstance(value, bool | int | float) else str(value)[:_LONGEST_TEXT]
        for name, value in row.parameters.items()
    }


def _milliseconds(at: float) -> int:
    return max(0, round(1000 * at))
