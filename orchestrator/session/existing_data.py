"""Reads results that are known before a campaign and matches them to its candidates, for the warm
start `data`.

The results are in a table (CSV or Parquet), or are the successful evaluations of another run. A
result is matched to a candidate by the index in the column `arm`, or by its parameters, which must
all be equal (numbers to 12 digits, so that printed numbers match too). If several candidates have
equal parameters, the first one is used. The parameter `row`, the index of a table's row, may be
missing. Results that match no candidate are dropped and counted.
"""

import contextlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from objectives.objective import Candidates, ObjectiveError
from objectives.reference import did_you_mean
from objectives.space import SearchSpace
from objectives.table_file import read_columns
from objectives.tabular import ROW
from orchestrator.bandit.start.warm_start import DataStart
from orchestrator.campaign.events import ExistingTaken
from orchestrator.candidates.matching import array_of, match_rows
from orchestrator.errors import RunError, UserError
from orchestrator.history.fold import fold
from orchestrator.settings.imported import ExistingData
from orchestrator.store.runs import Run, open_run

ARM = "arm"
_TABLES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class _Results:
    """`values` (n,) on the user's scale, and the columns (n,) that identify their candidates: `arm`
    or parameters. `labels` (n,) name the results in messages."""

    source: str
    columns: Mapping[str, NDArray[np.generic]]
    values: NDArray[np.float64]
    labels: Sequence[str]

    def wording(self, index: int) -> str:
        """Return the row `index` as one line of text, for a message."""
        text = ", ".join(f"{name}={column[index]}" for name, column in self.columns.items())
        return f"{self.labels[index]}: {text if len(text) <= 100 else text[:99] + '…'}"


def read(start: DataStart, candidates: Candidates, direction: str, time: float) -> ExistingTaken:
    """Return the results that `start` names, matched to `candidates`. `direction` is the campaign's
    direction (maximize or minimize), and `time` the time of the event.

    Raises UserError if the results cannot be read, a column is missing or wrong, or no result
    matches a candidate.
    """
    results = _read_run(start, candidates, direction) if _names_run(start) else _read_table(start, candidates)
    return _take(results, candidates, direction, time)


def match(data: ExistingData, candidates: Candidates, direction: str, time: float) -> ExistingTaken:
    """Return the results of the section `existing_data`, matched to `candidates`.

    Raises UserError if no result matches a candidate.
    """
    configurations = _without_fixed(data, candidates.columns)
    parameters = _known_parameters(data.source, configurations, candidates)
    rows = [{**dict.fromkeys(candidates.columns), **configuration} for configuration in configurations]
    columns = {name: array_of([row[name] for row in rows]) for name in parameters}
    values = np.array([result.value for result in data.results], np.float64)
    labels = [f"result {number}" for number in range(len(values))]
    return _take(_Results(data.source, columns, values, labels), candidates, direction, time)


def _known_parameters(
    source: str,
    configurations: Sequence[Mapping[str, object]],
    candidates: Candidates,
) -> list[str]:
    """Return the parameters of the candidates that existing data have. Raises UserError if the data
    have others, or none."""
    names = dict.fromkeys(name for configuration in configurations for name in configuration)
    unknown = [name for name in names if name not in candidates.columns]
    parameters = [name for name in candidates.columns if name in names]
    if unknown or not parameters:
        raise UserError(
            f"existing_data: {source} has the parameter {(unknown or ['none'])[0]}, and candidates have "
            f"{', '.join(candidates.columns)}: rename the parameters of the space as they are there"
        )
    return parameters


def configurations(data: ExistingData | None, space: SearchSpace) -> list[Mapping[str, object]]:
    """Return the distinct configurations of the existing data that belong to the space, as
    candidates."""
    distinct: dict[bytes, Mapping[str, object]] = {}
    for configuration in () if data is None else _without_fixed(data, space.parameters):
        # counted later, among the results that match no candidate
        with contextlib.suppress(ObjectiveError):
            distinct.setdefault(space.code_of(configuration).tobytes(), configuration)
    return list(distinct.values())


def _without_fixed(data: ExistingData, parameters: Container[str]) -> list[Mapping[str, object]]:
    """Return configurations without parameters that no candidate has and that never differ."""
    values: dict[str, set[object]] = {}
    for result in data.results:
        for name, value in result.parameters.items():
            values.setdefault(name, set()).add(value)
    fixed = {name for name, different in values.items() if len(different) == 1 and name not in parameters}
    return [{name: value for name, value in result.parameters.items() if name not in fixed} for result in data.results]


def _take(results: _Results, candidates: Candidates, direction: str, time: float) -> ExistingTaken:
    """Return the results that match candidates. Raises UserError if no result does."""
    arms = _arms(results, candidates)
    left_out = np.flatnonzero(arms < 0)
    if len(left_out) == len(arms):
        raise UserError(
            f"none of the {len(arms)} results of {results.source} belongs to a candidate (the first: "
            f"{results.wording(0)}): {ARM} must be from 0 to {len(candidates) - 1}, parameters must equal a candidate's"
        )
    is_candidate = arms >= 0
    event = ExistingTaken(
        time=time,
        source=results.source,
        arms=tuple(arms[is_candidate].tolist()),
        values=tuple(results.values[is_candidate].tolist()),
        unmatched=len(left_out),
        first_unmatched=results.wording(int(left_out[0])) if len(left_out) else "",
    )
    best = event.arms[event.best(1.0 if direction == "maximize" else -1.0)]
    return replace(event, best_parameters=candidates.parameters(best))


def _names_run(start: DataStart) -> bool:
    return start.campaign is not None or Path(start.path).is_dir()


def _read_run(start: DataStart, candidates: Candidates, direction: str) -> _Results:
    """Return the other run's successful evaluations, without its existing data."""
    run = open_run(Path(start.path)) if start.campaign is None else Run(Path(start.campaign), start.path)
    history = fold(run.events())
    source = f"run {run.name}"
    theirs = "maximize" if history.is_maximized else "minimize"
    if theirs != direction:
        raise RunError(
            f"{source} has direction {theirs} and this campaign {direction}: their values cannot be compared"
        )
    if not history.succeeded:
        raise RunError(f"{source} has no evaluation that succeeded: start without it, or name another run")
    rows = sorted(history.succeeded, key=lambda row: row.trial)
    names = _parameters(source, candidates, rows[0].parameters)
    columns = {name: array_of([row.parameters.get(name) for row in rows]) for name in names}
    values = np.array([row.value for row in rows], np.float64)
    return _Results(source, columns, values, [f"trial {row.trial}" for row in rows])


def _read_table(start: DataStart, candidates: Candidates) -> _Results:
    path = Path(start.path)
    if not path.name.endswith(_TABLES):
        raise UserError(
            f"strategy.warm_start.path must be a table ({', '.join(_TABLES)}), the folder of a run or a database URL, "
            f"got {start.path!r}"
        )
    header = f"{path}:1" if path.suffix != ".parquet" else str(path)

    def needed(names: Sequence[str]) -> list[str]:
        if start.reward not in names:
            raise UserError(
                f"{header}: existing data need a column {start.reward!r} with their results, there are "
                f"{', '.join(names)}; name it in strategy.warm_start.reward{did_you_mean(start.reward, names)}"
            )
        is_numbered = ARM in names and ARM not in candidates.columns
        return [start.reward, *([ARM] if is_numbered else _parameters(header, candidates, names))]

    try:
        columns = read_columns(path, needed)
    except ObjectiveError as error:
        raise UserError(f"{error}: fix this table of existing data, or change strategy.warm_start.path") from error
    values = columns.pop(start.reward)
    if values.dtype.kind not in "if":
        raise UserError(f"{path}: column {start.reward!r} must be numbers, got {str(values[0])!r}: fix the table")
    labels = [f"row {number} of the table" for number in range(1, len(values) + 1)]
    return _Results(str(path), columns, values.astype(np.float64), labels)


def _parameters(place: str, candidates: Candidates, columns: Sequence[str] | Mapping[str, object]) -> list[str]:
    """Return the parameters by which results are matched. Raises UserError if a required parameter
    is missing."""
    names = list(candidates.columns)
    missing = [name for name in names if name not in columns and (name != ROW or len(names) == 1)]
    if missing:
        raise UserError(
            f"{place}: existing data must identify their candidates by {ARM} or by every parameter; "
            f"{', '.join(missing)} not given, there are {', '.join(columns)}"
        )
    return [name for name in names if name in columns]


def _arms(results: _Results, candidates: Candidates) -> NDArray[np.intp]:
    """Return the candidate of each result (n,), −1 if there is none. Raises UserError for an
    invalid arm."""
    if list(results.columns) != [ARM] or ARM in candidates.columns:
        return match_rows(candidates.columns, results.columns)
    arms = results.columns[ARM]
    wrong = np.flatnonzero(arms != np.rint(arms)) if arms.dtype.kind in "if" else np.array([0])
    if len(wrong):
        place = results.labels[int(wrong[0])]
        raise UserError(
            f"{results.source}: column {ARM!r} must hold whole numbers, got {str(arms[wrong[0]])!r} in {place}"
        )
    numbers = arms.astype(np.float64)
    return np.where((numbers >= 0) & (numbers < len(candidates)), numbers, -1).astype(np.intp)
