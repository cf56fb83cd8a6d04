"""Exports trials or reported steps as CSV, JSON or Parquet, with one row each.

The columns of trials, in this order: `FIRST_COLUMNS`, one column for each parameter under its own
name, `LAST_COLUMNS`, one column `metric.<name>` for each metric, and the following ones if any
trial has a value for them:

* `trial.step`: the last reported step, to which the value of an early-stopped trial belongs
* `trial.remark`: why the trial was stopped, and the constraints that it violates
* `trial.feasible`: whether the result satisfies all constraints
* `trial.tags` and `trial.note`

A parameter gets the prefix `parameter.` if it has the name of a fixed column or begins with
`metric.`.

`started` and `finished` are ISO 8601 texts in UTC (`2026-03-01T14:05:09.250000Z`), and timestamps
in Parquet; the virtual seconds of the simulated executor are counted from 1970-01-01T00:00:00Z. An
unknown value (no result yet, an inactive conditional parameter) is an empty field in CSV and null
in the other formats. `error` is the last failure of a trial that has not succeeded. It may consist
of several lines.
"""

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

from objectives.parameters import conditions
from orchestrator.errors import UserError
from orchestrator.history.fold import History
from orchestrator.history.remarks import remark
from orchestrator.history.rows import TrialRow
from orchestrator.store.notes import Note
from orchestrator.wording import iso

Columns = dict[str, list[Any]]  # by name, one cell for each row

Format = Literal["csv", "json", "parquet"]
Table = Literal["trials", "reports", "existing"]

FIRST_COLUMNS = ("trial", "arm", "status", "attempts", "value")
LAST_COLUMNS = ("batch", "started", "finished", "seconds", "worker", "error")
TIME_COLUMNS = ("started", "finished")
METRIC_PREFIX = "metric."
# These columns exist only if any trial has a value for them
TAGS_COLUMN = "trial.tags"
NOTE_COLUMN = "trial.note"
STEP_COLUMN = "trial.step"
REMARK_COLUMN = "trial.remark"
FEASIBLE_COLUMN = "trial.feasible"
_PLAIN: frozenset[type] = frozenset((float, int, type(None)))  # types written to CSV unchanged
_EXACT: frozenset[type] = frozenset((str, int, bool, type(None)))  # types written to JSON unchanged
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
PARAMETER_PREFIX = "parameter."
_PART = 10_000  # rows in one part of a file
_ARROW_TYPES = {
    **dict.fromkeys(("trial", "arm", "attempts", "batch", "step", STEP_COLUMN), "int64"),
    **dict.fromkeys(("value", "reward", "seconds"), "float64"),
    **dict.fromkeys(("status", "worker", "error", TAGS_COLUMN, NOTE_COLUMN, REMARK_COLUMN), "string"),
    FEASIBLE_COLUMN: "bool",
}


def export(history: History, format: Format, table: Table = "trials", is_safe: bool = True) -> Iterator[bytes]:
    """Yield the parts of a file in UTF-8.

    The complete file of a long campaign would take half as much memory as its history, so CSV and
    JSON are written in parts.

    Args:
        history: the campaign.
        format: the format of the file.
        table: the trials in the order of choice, their reports, or the existing data.
        is_safe: whether to put an apostrophe before texts in CSV that a spreadsheet would execute
            as formulas.

    Raises:
        UserError: the format is unknown, or pyarrow is not installed for Parquet.
    """
    if format not in get_args(Format):
        raise UserError(f"the export's format must be one of {', '.join(get_args(Format))}, got {format!r}")
    if table == "trials":
        parts = iter([trial_columns(history)]) if format == "parquet" else _trial_parts(history)
    else:
        parts = iter([(report_columns if table == "reports" else existing_columns)(history)])
    match format:
        case "csv":
            return _to_csv(parts, is_safe)
        case "json":
            return _to_json(parts)
        case "parquet":
            return map(_to_parquet, parts)


class _Layout(NamedTuple):
    """The columns of the table of trials that differ between campaigns."""

    parameters: Mapping[str, str]  # parameter → column
    metrics: Sequence[str]
    optional: Sequence[str]
    notes: Mapping[int, Sequence[Note]]  # trial → notes

    @classmethod
    def of(cls, history: History) -> "_Layout":
        """Return the layout of the whole campaign."""
        rows = history.trials
        names = parameter_names(rows)
        conditional = (name for name, parameter in history.settings.space.items() if names and conditions(parameter))
        notes: dict[int, list[Note]] = defaultdict(list)
        for note in history.notes:
            if note.trial is not None:
                notes[note.trial].append(note)
        return cls(
            parameters=_parameter_columns(_first_seen([names, conditional])),  # also those that no trial has
            metrics=_first_seen(row.metrics for row in rows),
            optional=[
                name
                for name, cell in _OPTIONAL_CELLS.items()
                if not all(cell(history, row) is None for row in history.trials)
            ],
            notes=notes,
        )


def trial_columns(history: History) -> Columns:
    """Return the table as columns of equal length. A missing value is None."""
    return _columns_of(history, history.trials, _Layout.of(history))


def _trial_parts(history: History) -> Iterator[Columns]:
    """Yield the table in parts of at most `_PART` rows, at least one part."""
    layout = _Layout.of(history)
    for first in range(0, max(1, len(history.trials)), _PART):
        yield _columns_of(history, history.trials[first : first + _PART], layout)


def _columns_of(history: History, rows: Sequence[TrialRow], layout: _Layout) -> Columns:
    cells: dict[str, Callable[[TrialRow], object]] = {
        **{name: attrgetter(name) for name in FIRST_COLUMNS},
        **{column: partial(_parameter, name) for name, column in layout.parameters.items()},
        **{name: attrgetter(name) for name in LAST_COLUMNS},
        **{name: partial(_time, name) for name in TIME_COLUMNS},
        **{METRIC_PREFIX + name: partial(_metric, name) for name in layout.metrics},
        **{name: partial(_OPTIONAL_CELLS[name], history) for name in layout.optional},
    }
    columns: Columns = {name: list(map(cell, rows)) for name, cell in cells.items()}
    return columns | _note_columns(rows, layout.notes)


def _parameter(name: str, row: TrialRow) -> object:
    return row.parameters.get(name)


def _metric(name: str, row: TrialRow) -> object:
    return row.metrics.get(name)


def _time(name: str, row: TrialRow) -> str | None:
    time: float | None = getattr(row, name)
    return None if time is None else iso(time)


_OPTIONAL_CELLS: Mapping[str, Callable[[History, TrialRow], object]] = {
    STEP_COLUMN: lambda _history, row: max(row.training.reports, default=row.training.stopped_at),
    REMARK_COLUMN: lambda history, row: remark(history, row) or None,
    FEASIBLE_COLUMN: lambda _history, row: row.is_feasible,
}


def _note_columns(trials: Sequence[TrialRow], of_trials: Mapping[int, Sequence[Note]]) -> Columns:
    """Return `trial.tags` and `trial.note`, or no column if no trial of the campaign has a note."""
    if not of_trials:
        return {}
    rows = [of_trials.get(row.trial, []) for row in trials]
    return {
        TAGS_COLUMN: [" ".join(dict.fromkeys(tag for note in notes for tag in note.tags)) or None for notes in rows],
        NOTE_COLUMN: ["\n".join(note.text for note in notes if note.text) or None for notes in rows],
    }


def existing_columns(history: History) -> Columns:
    """Return the existing data as `arm` and `reward` (user's scale), the format of a warm start."""
    existing = history.existing
    arms, values = ((), ()) if existing is None else (existing.arms, existing.values)
    return {"arm": list(arms), "reward": list(values)}


def report_columns(history: History) -> Columns:
    """Return one row for each trial and step, with the value reported by the newest attempt and
    further metrics as `metric.<name>`."""
    reported = [
        (row, step, row.training.reports[step]) for row in history.trials for step in sorted(row.training.reports)
    ]
    columns: Columns = {
        "trial": [row.trial for row, _, _ in reported],
        "step": [step for _, step, _ in reported],
        "value": [value for _, _, value in reported],
    }
    metrics = [row.training.metrics.get(step, {}) for row, step, _ in reported]
    names = _first_seen(metrics)
    return columns | {METRIC_PREFIX + name: [at.get(name) for at in metrics] for name in names}


def parameter_names(rows: Iterable[TrialRow]) -> list[str]:
    """Return the parameters of all trials, in the order of their first appearance."""
    return _first_seen(row.parameters for row in rows)


def _first_seen(collections: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in collections for name in names))


def _parameter_columns(names: Sequence[str]) -> dict[str, str]:
    """Return a unique column for each parameter, different from fixed and metric columns."""
    fixed = {*FIRST_COLUMNS, *LAST_COLUMNS, TAGS_COLUMN, NOTE_COLUMN, *_OPTIONAL_CELLS}
    columns = {}
    for name in names:
        column = name
        while column in fixed or column.startswith(METRIC_PREFIX) or (column != name and column in names):
            column = PARAMETER_PREFIX + column
        columns[name] = column
    return columns


def _to_csv(parts: Iterable[Columns], is_safe: bool) -> Iterator[bytes]:
    """Yield RFC 4180. Lines end with CRLF, so a lone CR or LF in a field is also quoted."""
    shown = _without_formula if is_safe else _cell
    for index, columns in enumerate(parts):
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        if not index:
            writer.writerow(shown(name) for name in columns)
        cells = (_convert_cells(column, shown, _PLAIN) for column in columns.values())
        writer.writerows(zip(*cells, strict=True))
        yield text.getvalue().encode()


def _convert_cells(column: list[Any], change: Callable[[object], object], unchanged: frozenset[type]) -> list[Any]:
    """Apply `change` to every cell. A column whose types are all `unchanged` is returned as it
    is."""
    return column if unchanged.issuperset(map(type, column)) else [change(value) for value in column]


def _without_formula(value: object) -> object:
    """Return a cell that no spreadsheet executes.

    A text that begins like a formula is prefixed with an apostrophe; numbers are unchanged.
    """
    cell = value if type(value) is str else _cell(value)
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_SIGNS) else cell


def _cell(value: object) -> object:
    """Return text and numbers unchanged (floats round-trip), and other values as JSON."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return json.dumps(strict_json(value), ensure_ascii=False, default=str)


def _to_json(parts: Iterable[Columns]) -> Iterator[bytes]:
    """Yield an array with one object on each line.

    The lines are joined here, because `json` takes five times as long with indentation.
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
    before = "["
    for columns in parts:
        cells = (_convert_cells(column, strict_json, _EXACT) for column in columns.values())
        lines = [f"\n {encode(dict(zip(columns, row, strict=True)))}" for row in zip(*cells, strict=True)]
        if lines:
            yield f"{before}{','.join(lines)}".encode()
            before = ","
    yield b"[\n]\n" if before == "[" else b"\n]\n"


def strict_json(value: object) -> object:
    """Return `value` as lists and dictionaries, with None in place of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return value


def _to_parquet(columns: Columns) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(
            'export to parquet needs pyarrow, which is not installed: pip install "pyarrow>=17", or choose csv or json'
        ) from None
    table = pa.table({name: _arrow_array(pa, name, values) for name, values in columns.items()})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _arrow_array(pa: ModuleType, name: str, values: list[Any]) -> object:
    """Return an array. Fixed columns and metrics have the same type in every campaign."""
    if name in TIME_COLUMNS:
        moments = [None if value is None else datetime.fromisoformat(value) for value in values]
        return pa.array(moments, type=pa.timestamp("us", tz="UTC"))
    if name in _ARROW_TYPES or name.startswith(METRIC_PREFIX):
        return pa.array(values, type=_ARROW_TYPES.get(name, "float64"))
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # a parameter with mixed types becomes text
        return pa.array([None if value is None else str(_cell(value)) for value in values], type="string")
