"""Reads the sources of `known_results` when a campaign is created: their values become an event.

A result is matched to a candidate by the index in the column `arm`, or by its parameters, which
must all be equal (numbers to 12 digits, so that printed numbers match too). If several candidates
have equal parameters, the first one is used. The parameter `row` (a table's row index) may be
missing. In a space, all results become candidates first. The model learns a result outside the space
(beyond the bounds of a range, or forbidden) too, if it can append arms; it is never chosen. Any other
result that matches no candidate is left out, with its reason.
"""

import contextlib
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import Range, Scalar, as_given, as_levels
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.objectives.tabular import ROW, Column, as_typed, as_typed_with_gaps, read_cells
from bbkb.orchestrator.bandit.strategy import Grows
from bbkb.orchestrator.campaign.events import ExistingTaken
from bbkb.orchestrator.campaign.settings import (
    GivenResults,
    Known,
    KnownResult,
    KnownRun,
    ResultTable,
    Settings,
    Source,
    origin_of,
)
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.matching import array_of, match_rows, text_of
from bbkb.orchestrator.engine.pool import plain_columns
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.history.fold import TrialRow, fold
from bbkb.orchestrator.store.runs import Run, open_run

ARM = "arm"
TABLES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class _Results:
    """`values` (n,) on the user's scale, and the columns (n,) that identify their candidates: `arm`
    or parameters. `labels` (n,) name the results in messages."""

    source: str
    columns: Mapping[str, NDArray[np.generic]]
    values: NDArray[np.float64]
    labels: Sequence[str]
    refused: Mapping[int, str] = field(default_factory=dict)  # row → why it cannot be learned

    def wording(self, index: int, reason: str) -> str:
        """Return the row `index` as one line of text, for a message, with the reason for which it is not learned."""
        text = ", ".join(f"{name}={column[index]}" for name, column in self.columns.items())
        return f"{self.labels[index]}: {text if len(text) <= 100 else text[:99] + '…'}{reason and f' ({reason})'}"


def existing(settings: Settings, problem: Problem) -> ExistingTaken | None:
    """Return the known results of a new campaign, matched to the candidates; None if there are none.
    A resume reads them from its log.

    Raises UserError if a source cannot be read, a column is missing or wrong, or no result of a
    source can be learned.
    """
    candidates, space = problem.candidates, problem.pool.space
    objective = settings.goals.objectives[0]
    learns_outside = isinstance(problem.strategy, Grows) and problem.strategy.grows
    names: list[str] = []
    left_out: list[str] = []
    outside: list[dict[str, tuple[Scalar, ...]]] = []
    learned: list[tuple[int, float]] = []  # arm and value
    for number, source in enumerate(settings.known_results):
        if not isinstance(source, ResultTable | KnownRun | GivenResults):
            continue
        with _naming(f"known_results.{number}"):
            match source:
                case ResultTable():
                    results = _read_table(source, candidates)
                case KnownRun():
                    name, rows = _rows_of_run(source, objective.direction)
                    given_keys = [*dict.fromkeys(key for _, parameters in rows for key in parameters)]
                    keys = _parameters(name, candidates, given_keys)
                    columns = {key: array_of([parameters.get(key) for _, parameters in rows]) for key in keys}
                    values = np.array([row.value for row, _ in rows], np.float64)
                    results = _Results(name, columns, values, [f"trial {row.trial}" for row, _ in rows])
                case GivenResults():
                    results = _given(source, candidates)
            arms, refused = _arms(results, candidates), dict(results.refused)
            arms[list(refused)] = -1
            if isinstance(source, GivenResults) and space is not None:
                given = _without_fixed(source, space.parameters)
                for index in np.flatnonzero(arms < 0).tolist():
                    try:
                        if not learns_outside:
                            space.code_of(given[index])
                        else:  # the model can learn it, although it is outside the space
                            outside.append(plain_columns(space.beyond(given[index])))
                            arms[index] = len(candidates) + len(outside) - 1
                    except ObjectiveError as error:
                        refused[index] = str(error)
            if not (arms >= 0).any():
                by_place = f"{ARM} must be from 0 to {len(candidates) - 1}, or the parameters must equal a candidate's"
                raise UserError(
                    f"none of the {len(arms)} results of {results.source} belongs to a candidate (the first: "
                    f"{results.wording(0, refused.get(0, ''))}){'' if refused else f': {by_place}'}"
                )
        names.append(results.source)
        left_out += [
            results.wording(index, refused.get(index, "no candidate is equal"))
            for index in np.flatnonzero(arms < 0).tolist()
        ]
        pairs = zip(arms.tolist(), results.values.tolist(), strict=True)
        learned += [(arm, value) for arm, value in pairs if arm >= 0]
    if not names:
        return None
    learned.sort(key=lambda pair: pair[0] >= len(candidates))  # those of candidates, then those outside
    event = ExistingTaken(
        time=time.time(),
        source=" and ".join(names),
        arms=tuple(arm for arm, _ in learned),
        values=tuple(value for _, value in learned),
        left_out=tuple(left_out),
        outside={name: tuple(each[name][0] for each in outside) for name in outside[0]} if outside else {},
    )
    if not event.inside_values:
        return event
    best = (np.argmax if objective.is_maximized else np.argmin)(event.inside_values)
    return replace(event, best_parameters=candidates.parameters(event.arms[int(best)]))


def read_sources(settings: Settings) -> Settings:
    """Return the settings of a new campaign in a space with the results of tables and runs as given
    ones, which become candidates. Tables that name candidates by their index are read later.

    Raises UserError and RunError if a source cannot be read.
    """
    if not settings.space or settings.candidates.table is not None:
        return settings
    space = SearchSpace(settings.space, settings.forbid)
    known: list[Source] = []
    for number, source in enumerate(settings.known_results):
        pairs: list[tuple[Mapping[str, Any], float | None]] = []
        with _naming(f"known_results.{number}"):
            match source:
                case KnownRun():
                    name, rows = _rows_of_run(source, settings.goals.objectives[0].direction)
                    pairs = [(parameters, row.value) for row, parameters in rows]
                case ResultTable():
                    read = _read_table(source, make_candidates(space, 1, "random"))
                    if ARM not in read.columns or ARM in space.parameters:
                        name, columns = read.source, [column.tolist() for column in read.columns.values()]
                        cells = (dict(zip(read.columns, row, strict=True)) for row in zip(*columns, strict=True))
                        pairs = list(zip(cells, read.values.tolist(), strict=True))
        if pairs:
            results = tuple(
                KnownResult(parameters=_levels(space, parameters), value=value)
                for parameters, value in pairs
                if value is not None
            )
            source = GivenResults(results=results, source=name, origin=origin_of(source))
        elif isinstance(source, GivenResults):
            given = [(as_levels(space.parameters, each.parameters), each.value) for each in source.results]
            # the log gets the text of a nested value that no candidate has
            plain = [({name: _text(value) for name, value in row.items()}, value) for row, value in given]
            source = replace(source, results=tuple(KnownResult(parameters=row, value=value) for row, value in plain))
        known.append(source)
    return replace(settings, known_results=tuple(known))


def _text(value: Any) -> Scalar:
    return value if isinstance(value, Scalar) else str(value)


def _levels(space: SearchSpace, row: Mapping[str, Any]) -> Mapping[str, Scalar]:
    """Return the levels of a row; a table may write a choice in another notation, such as 1.0 for
    "1". Parameters without a value are omitted."""
    values: dict[str, Scalar] = {}
    for name, value in as_levels(space.parameters, row).items():
        parameter = space.parameters.get(name)
        levels = () if isinstance(parameter, Range | None) else parameter.levels
        same = (level for level in levels if text_of(level) == text_of(value))
        if value is not None:
            values[name] = value if value in levels else next(same, _text(value))
    return values


@contextlib.contextmanager
def _naming(key: str) -> Iterator[None]:
    """Prefix an error with the key of its source, which leads to the line in the campaign file."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{key}: {error}") from error


def _given(data: GivenResults, candidates: Candidates) -> _Results:
    configurations = _without_fixed(data, candidates.columns)
    names = dict.fromkeys(name for configuration in configurations for name in configuration)
    unknown = [name for name in names if name not in candidates.columns]
    parameters = [name for name in candidates.columns if name in names]
    if unknown or not parameters:
        raise UserError(
            f"{data.source} has the parameter {(unknown or ['none'])[0]}, and candidates have "
            f"{', '.join(candidates.columns)}: rename the parameters of the space as they are there"
        )
    rows = [{**dict.fromkeys(candidates.columns), **configuration} for configuration in configurations]
    columns = {name: array_of([row[name] for row in rows]) for name in parameters}
    values = np.array([result.value for result in data.results], np.float64)
    varying = [name for name, column in candidates.columns.items() if (column != column[0]).any()]
    needed = [name for name in varying if name not in candidates.conditional and name != ROW]
    missing = [next((name for name in needed if name not in given), None) for given in configurations]
    refused = {row: f"{name} is missing" for row, name in enumerate(missing) if name is not None}
    fixed = dict.fromkeys(name for result in data.results for name in result.parameters if name not in parameters)
    source = f"{data.source} without the parameter {', '.join(fixed)}" if fixed else data.source
    return _Results(source, columns, values, [f"result {number}" for number in range(len(values))], refused)


def configurations(known: Known, space: SearchSpace) -> list[Mapping[str, object]]:
    """Return the distinct configurations of these results that belong to the space, as candidates."""
    distinct: dict[bytes, Mapping[str, object]] = {}
    for data in known:
        for configuration in _without_fixed(data, space.parameters) if isinstance(data, GivenResults) else ():
            with contextlib.suppress(ObjectiveError):  # `existing` gives the reasons
                distinct.setdefault(space.code_of(configuration).tobytes(), configuration)
    return list(distinct.values())


def _without_fixed(data: GivenResults, parameters: Container[str]) -> list[Mapping[str, object]]:
    """Return configurations without constant parameters that no candidate has."""
    values: dict[str, set[Scalar]] = {}
    for result in data.results:
        for name, value in result.parameters.items():
            values.setdefault(name, set()).add(value if isinstance(value, Scalar) else text_of(value))
    fixed = {name for name, different in values.items() if len(different) == 1 and name not in parameters}
    return [{name: value for name, value in result.parameters.items() if name not in fixed} for result in data.results]


def _rows_of_run(source: KnownRun, direction: str) -> tuple[str, list[tuple[TrialRow, dict[str, Any]]]]:
    """Return the name of the other run and its successful evaluations with their parameters, without its own
    known results."""
    run = open_run(Path(source.run)) if source.store is None else Run(Path(source.run), source.store)
    history = fold(run.events())
    name = f"run {run.name}"
    theirs = "maximize" if history.is_maximized else "minimize"
    if theirs != direction:
        raise RunError(f"{name} has direction {theirs} and this campaign {direction}: their values cannot be compared")
    if not history.succeeded:
        raise RunError(f"{name} has no evaluation that succeeded: start without it, or name another run")
    rows = sorted(history.succeeded, key=lambda row: row.trial)
    return name, [(row, as_given(history.settings.space, row.parameters)) for row in rows]


def _read_table(source: ResultTable, candidates: Candidates) -> _Results:
    path = Path(source.table)
    reward = source.reward
    if not path.name.endswith(TABLES):
        raise UserError(
            f"table must end in {', '.join(TABLES)}, got {source.table!r}; the folder of a run is {{run: FOLDER}}"
        )
    header = f"{path}:1" if path.suffix != ".parquet" else str(path)

    def needed(names: Sequence[str]) -> list[str]:
        if reward not in names:
            raise UserError(
                f"{header}: known results need a column {reward!r} with their values, got the "
                f"columns {', '.join(names)}; name it in `reward`{did_you_mean(reward, names)}"
            )
        is_numbered = ARM in names and ARM not in candidates.columns
        return [reward, *([ARM] if is_numbered else _parameters(header, candidates, names))]

    try:
        cells = read_cells(path, needed)
        columns: dict[str, Column] = {}
        for name, column in cells.items():
            if name not in candidates.conditional:
                columns[name] = as_typed(path, name, column)
                continue
            values = as_typed_with_gaps(path, name, column).tolist()  # an empty cell: the parameter does not exist
            columns[name] = array_of([None if value != value else value for value in values])
    except ObjectiveError as error:
        raise UserError(f"{error}: fix this table of known results, or name another one") from error
    rewards = columns.pop(reward)
    if rewards.dtype.kind not in "if":
        raise UserError(f"{path}: column {reward!r} must be numbers, got {str(rewards[0])!r}: fix the table")
    labels = [f"row {number} of the table" for number in range(1, len(rewards) + 1)]
    return _Results(str(path), columns, rewards.astype(np.float64), labels)


def _parameters(place: str, candidates: Candidates, columns: Sequence[str]) -> list[str]:
    """Return the parameters by which results are matched. Raises UserError if a required parameter
    is missing."""
    names = list(candidates.columns)
    optional = candidates.conditional if len(names) == 1 else {*candidates.conditional, ROW}
    missing = [name for name in names if name not in columns and name not in optional]
    if missing:
        raise UserError(
            f"{place}: known results must identify their candidates by {ARM} or by every parameter; "
            f"the columns {', '.join(columns)} lack {', '.join(missing)}"
        )
    return [name for name in names if name in columns]


def _arms(results: _Results, candidates: Candidates) -> NDArray[np.intp]:
    """Return the candidate of each result (n,), −1 if there is none. Raises UserError for an
    invalid arm."""
    if list(results.columns) != [ARM] or ARM in candidates.columns:
        absent = dict.fromkeys(candidates.conditional, array_of([None] * len(results.values)))
        return match_rows(candidates.columns, {**absent, **results.columns})
    arms = results.columns[ARM]
    wrong = np.flatnonzero(arms != np.rint(arms)) if arms.dtype.kind in "if" else np.array([0])
    if len(wrong):
        place = results.labels[int(wrong[0])]
        raise UserError(
            f"{results.source}: column {ARM!r} must hold whole numbers, got {str(arms[wrong[0]])!r} in {place}"
        )
    numbers = arms.astype(np.float64)
    return np.where((numbers >= 0) & (numbers < len(candidates)), numbers, -1).astype(np.intp)
