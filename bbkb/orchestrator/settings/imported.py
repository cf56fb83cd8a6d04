"""Reads the results of other tuners: an Optuna study, or a folder of Ray Tune."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bbkb.objectives.parameters import Scalar
from bbkb.orchestrator.campaign.settings import GivenResults, KnownResult, leaves
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.wording import plural
from bbkb.orchestrator.yaml_file import Tree


def open_storage(url: str, folder: Path, must_exist: bool) -> Any:
    """Return the Optuna storage at a database URL or in a journal file; relative paths are relative
    to `folder`.

    Raises UserError if Optuna is not installed, or the storage cannot be opened, or does not exist
    although it must.
    """
    try:
        import sqlalchemy as sa
        from optuna.storages import JournalStorage, RDBStorage
        from optuna.storages.journal import JournalFileBackend
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise UserError('Optuna is not installed: pip install "optuna>=4,<6"') from None
    is_sqlite = url.startswith("sqlite:///")
    is_url = "://" in url
    path = folder / Path(url.removeprefix("sqlite:///")).expanduser()
    if must_exist and (is_sqlite or not is_url) and not path.is_file():
        raise UserError(f"{path} must be the file of an Optuna storage: file not found")
    try:
        if not is_url and path.is_file():
            with path.open("rb") as file:
                is_sqlite = file.read(13) == b"SQLite format"
        if not is_url and not is_sqlite:
            return JournalStorage(JournalFileBackend(str(path)))
        # a path may contain any characters
        return RDBStorage(sa.URL.create("sqlite", database=str(path)).render_as_string() if is_sqlite else url)
    except (SQLAlchemyError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"the Optuna storage {redact(url)} cannot be opened: {type(error).__name__}") from error


def read_study(url: str, name: str | None, folder: Path, direction: str) -> GivenResults:
    """Return the completed trials of an Optuna study; `name` may be None if there is only one.

    Raises UserError if the study does not exist, has several objectives or a different direction,
    or has no completed trial.
    """
    storage = open_storage(url, folder, must_exist=True)
    import optuna

    names = sorted(optuna.get_all_study_names(storage))
    study_name = names[0] if name is None and len(names) == 1 else name
    if study_name not in names:
        available = ", ".join(names) or "none"
        raise UserError(f"study must name one of the studies in {redact(url)} ({available}), got {name!r}")
    study = optuna.load_study(study_name=study_name, storage=storage)
    if len(study.directions) != 1:
        raise UserError(f"study {study_name!r} must have one objective, got {len(study.directions)}")
    if study.direction.name.lower() != direction:
        raise UserError(
            f"study {study_name!r} has direction {study.direction.name.lower()} and this campaign {direction}: their "
            "values cannot be compared"
        )
    trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    results = _finite((trial.params, trial.value) for trial in trials)
    if not results:
        raise UserError(f"study {study_name!r} must have a trial that is complete, got none")
    omitted = len(study.get_trials(deepcopy=False)) - len(results)
    without = f" ({plural(omitted, 'incomplete trial')} omitted)" if omitted else ""
    return GivenResults(source=f"Optuna study {study_name!r} in {redact(url)}{without}", results=results)


def read_tune(folder: Path, metric: str | None) -> GivenResults:
    """Return the last report of each trial below the folder of a Ray Tune experiment."""
    if metric is None:
        raise UserError("metric must be a metric that Ray Tune's trials reported, such as accuracy")
    files = sorted(folder.glob("*/result.json"))
    if not files:
        raise UserError(f"{folder} must be the folder of a Ray Tune experiment, with TRIAL/result.json in it")
    last = [last_report for file in files if (last_report := _last_report(file)) is not None]
    reported = sorted({key for report in last for key in report})
    if metric not in reported:
        raise UserError(
            f"metric must be one that the trials in {folder} reported, got {metric!r}; they have {reported}"
        )
    flat = [leaves(report.get("config", {})) for report in last]
    configs = [{key: value for key, value in pairs if value != {}} for pairs in flat]
    results = _finite(zip(configs, (report.get(metric) for report in last), strict=True))
    if not results:
        raise UserError(f"{folder} must have a trial with a finite {metric}, got none")
    return GivenResults(source=f"Ray Tune experiment {folder}", results=results)


def _last_report(file: Path) -> Tree | None:
    for line in reversed(file.read_text(encoding="utf-8").splitlines()):
        try:
            report = json.loads(line)
        except ValueError:  # the process died while it wrote the line
            continue
        if isinstance(report, dict):
            return report
    return None


def _finite(pairs: Iterable[tuple[Tree, Any]]) -> tuple[KnownResult, ...]:
    """Return the results with a finite value whose parameters are plain values."""
    return tuple(
        KnownResult(parameters=dict(parameters), value=float(value))
        for parameters, value in pairs
        if isinstance(value, int | float)
        and math.isfinite(value)
        and all(isinstance(value, Scalar | list | tuple | dict) for value in parameters.values())
    )
