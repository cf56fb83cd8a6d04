"""Results of another tuner, read into the settings once: a study of Optuna, or a folder of Ray
Tune.

    existing_data: {optuna: "sqlite:///study.db", study: mnist}
    existing_data: {ray_tune: ~/ray_results/mnist, metric: accuracy}
    existing_data: {results: [{parameters: {lr: 0.1}, value: 0.93}]}

The first two are read together with the file, and the resolved file contains them in the third
form, so a resume does not need the source.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.conditions import Scalar
from orchestrator.credentials import redact
from orchestrator.errors import UserError
from orchestrator.settings.file import Plain, Tree
from orchestrator.settings.mistakes import Refusal, excerpt, failure

_FORMS = "{optuna: URL, study: NAME}, {ray_tune: FOLDER, metric: NAME} or {results: [{parameters: …, value: …}]}"
_KEYS = {"optuna": ("optuna", "study"), "ray_tune": ("ray_tune", "metric"), "results": ("results", "source")}


@dataclass(frozen=True, slots=True)
class ExistingResult:
    """A configuration that was evaluated elsewhere, and its value on the objective's scale."""

    parameters: Mapping[str, Scalar]
    value: float


@dataclass(frozen=True, slots=True)
class ExistingData:
    """Results of another tuner, in their original order. `source` is for display."""

    source: str
    results: tuple[ExistingResult, ...]


def build_existing(tree: Any, folder: Path, direction: str) -> ExistingData | None:
    """Return the results that the section `existing_data` gives or names, relative to `folder`.

    Raises ValidationError if the section is wrong, or its source cannot be read or has another
    direction.
    """
    if tree is None or isinstance(tree, ExistingData):
        return tree
    kind = next((key for key in _KEYS if isinstance(tree, Mapping) and key in tree), None)
    if kind is None:
        raise failure([Refusal((), f"must be {_FORMS}", excerpt(tree))])
    unknown = [str(key) for key in tree if key not in _KEYS[kind]]
    if unknown:
        raise failure([Refusal((unknown[0],), f"is not a key here; with {kind} there are {', '.join(_KEYS[kind])}")])
    if kind == "results":
        return ExistingData(str(tree.get("source", "the campaign file")), _list_results(tree["results"]))
    for key, value in tree.items():
        if not isinstance(value, str):
            raise failure([Refusal((key,), "must be text", excerpt(value))])
    try:
        if kind == "optuna":
            return read_study(tree["optuna"], tree.get("study"), folder, direction)
        return _read_tune(folder / Path(tree["ray_tune"]).expanduser(), tree.get("metric"))
    except UserError as error:
        raise failure([Refusal((kind,), f": {error}")]) from error


def dump_existing(data: ExistingData | None) -> Plain | None:
    """Return the section that `build_existing` turns into `data`."""
    if data is None:
        return None
    results = [{"parameters": dict(result.parameters), "value": result.value} for result in data.results]
    return {"source": data.source, "results": results}


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier runs of the same space."""

    runs: tuple[str, ...]  # the runs' folders
    # the runs' configurations that are evaluated first; None if the runs are not read yet
    first: tuple[Mapping[str, Scalar], ...] | None = None


def build_earlier(tree: Any, folder: Path) -> Earlier | None:
    """Return the earlier runs that the section lists, relative to `folder`, with the configurations
    that were read from them before, if any. Raises ValidationError."""
    if tree is None or isinstance(tree, Earlier):
        return tree
    if isinstance(tree, Mapping) and tree.keys() == {"runs", "first"}:
        return Earlier(_places(tree["runs"], folder), _configurations(tree["first"]))
    return Earlier(_places(tree, folder))


def _places(runs: object, folder: Path) -> tuple[str, ...]:
    """Return the absolute folders of runs. Raises ValidationError."""
    if not isinstance(runs, list | tuple) or not runs or not all(isinstance(run, str) and run for run in runs):
        rule = "must be a list of folders of runs, such as [runs/mnist-1]"
        raise failure([Refusal((), rule, excerpt(runs))])
    return tuple(str((folder / Path(run).expanduser()).resolve()) for run in runs)


def _configurations(first: object) -> tuple[Mapping[str, Scalar], ...] | None:
    """Return the recorded configurations; None if there are none. Raises ValidationError."""
    if first is None:
        return None
    if not isinstance(first, list | tuple) or not all(isinstance(entry, Mapping) for entry in first):
        raise failure([Refusal(("first",), "must be a list of configurations", excerpt(first))])
    return tuple(dict(configuration) for configuration in first)


def dump_earlier(earlier: Earlier | None) -> Plain | list[str] | None:
    """Return the section that `build_earlier` turns into `earlier`."""
    if earlier is None or earlier.first is None:
        return None if earlier is None else list(earlier.runs)
    return {"runs": list(earlier.runs), "first": [dict(configuration) for configuration in earlier.first]}


def earlier_problems(earlier: Earlier | None, space: Mapping[str, object]) -> Iterator[Refusal]:
    """Yield a mistake if earlier runs are given without a space."""
    if earlier is not None and not space:
        rule = "needs a space: the configurations of other runs are no rows of a table"
        yield Refusal(("earlier",), rule)


def open_storage(url: str, folder: Path, must_exist: bool) -> Any:
    """Return the Optuna storage at a database URL, or in a journal file; relative paths count from
    `folder`.

    Raises UserError if Optuna is not installed, or the storage cannot be opened or does not exist
    although it must.
    """
    try:
        from optuna.storages import JournalStorage, RDBStorage
        from optuna.storages.journal import JournalFileBackend
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        raise UserError('Optuna is not installed: pip install "optuna>=4,<6"') from None
    is_sqlite = url.startswith("sqlite:///")
    is_url = "://" in url
    path = folder / Path(url.removeprefix("sqlite:///")).expanduser()
    if must_exist and (is_sqlite or not is_url) and not path.is_file():
        raise UserError(f"{path} must be the file of an Optuna storage, and is not there")
    try:
        if not is_url:
            return JournalStorage(JournalFileBackend(str(path)))
        return RDBStorage(f"sqlite:///{path}" if is_sqlite else url)
    except (SQLAlchemyError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"the Optuna storage {redact(url)} cannot be opened: {type(error).__name__}") from error


def read_study(url: str, name: str | None, folder: Path, direction: str) -> ExistingData:
    """Return the completed trials of an Optuna study; `name` may be None if there is only one.

    Raises UserError if the study does not exist, has several objectives or another direction, or
    has no completed trial.
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
            f"study {study_name!r} has direction {study.direction.name.lower()} and this campaign {direction}: its "
            "values mean something else"
        )
    trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    results = _finite((trial.params, trial.value) for trial in trials)
    if not results:
        raise UserError(f"study {study_name!r} must have a trial that is complete, got none")
    return ExistingData(f"Optuna study {study_name!r} in {redact(url)}", results)


def _read_tune(folder: Path, metric: str | None) -> ExistingData:
    """Return the last report of each trial below an experiment's folder of Ray Tune."""
    if metric is None:
        raise UserError("metric must name what Ray Tune's trials reported, such as accuracy")
    files = sorted(folder.glob("*/result.json"))
    if not files:
        raise UserError(f"{folder} must be the folder of a Ray Tune experiment, with TRIAL/result.json in it")
    last = [last_report for file in files if (last_report := _last_report(file)) is not None]
    reported = sorted({key for report in last for key in report})
    if metric not in reported:
        raise UserError(
            f"metric must be one that the trials in {folder} reported, got {metric!r}; they have {reported}"
        )
    results = _finite((dict(_flat(report.get("config", {}))), report.get(metric)) for report in last)
    if not results:
        raise UserError(f"{folder} must have a trial with a finite {metric}, got none")
    return ExistingData(f"Ray Tune experiment {folder}", results)


def _last_report(file: Path) -> Tree | None:
    """Return the last complete line of JSON; None if the trial reported nothing."""
    for line in reversed(file.read_text(encoding="utf-8").splitlines()):
        try:
            report = json.loads(line)
        except ValueError:  # the process died while it wrote the line
            continue
        if isinstance(report, dict):
            return report
    return None


def _flat(config: Tree, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested keys joined by a dot."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _finite(pairs: Iterator[tuple[Tree, Any]]) -> tuple[ExistingResult, ...]:
    """Return the results with a finite value whose parameters are plain values."""
    return tuple(
        ExistingResult(dict(parameters), float(value))
        for parameters, value in pairs
        if isinstance(value, int | float)
        and math.isfinite(value)
        and all(isinstance(value, Scalar) for value in parameters.values())
    )


def _list_results(results: Any) -> tuple[ExistingResult, ...]:
    rule = "must be {parameters: {…}, value: …} with plain values and a finite value"
    if not isinstance(results, Sequence) or isinstance(results, str) or not results:
        raise failure([Refusal(("results",), f"must be a list of which each {rule}", excerpt(results))])
    existing: list[ExistingResult] = []
    for number, entry in enumerate(results):
        is_whole = isinstance(entry, Mapping) and set(entry) == {"parameters", "value"}
        parameters = entry["parameters"] if is_whole else None
        valid = _finite(iter([(parameters, entry["value"])])) if isinstance(parameters, Mapping) and parameters else ()
        if not valid or isinstance(entry["value"], bool):
            raise failure([Refusal(("results", number), rule, excerpt(entry))])
        existing += valid
    return tuple(existing)
