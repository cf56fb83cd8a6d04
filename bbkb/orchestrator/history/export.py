"""Exports trials or reported steps as CSV, JSON or Parquet, with one row each.

`columns.exported` lists the columns of trials. `started` and `finished` are ISO 8601 texts in UTC
(`2026-03-01T14:05:09.250000Z`), and timestamps in Parquet; the virtual seconds of the simulated
executor are counted from 1970-01-01T00:00:00Z. An unknown value (no result yet, an inactive
conditional parameter) is an empty field in CSV and null in the other formats. `error` is the last
failure of a trial that has not succeeded. It may consist of several lines.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, Literal

from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.columns import METRIC_PREFIX, TYPES, Column, exported, first_seen
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow

Columns = dict[str, list[Any]]  # by name, one cell for each row

Format = Literal["csv", "json", "parquet"]
Table = Literal["trials", "reports", "existing"]

_PLAIN: frozenset[type] = frozenset((float, int, type(None)))  # types written to CSV unchanged
_EXACT: frozenset[type] = frozenset((str, int, bool, type(None)))  # types written to JSON unchanged
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
_PART = 10_000  # rows in one part of a file
_TYPES = {**TYPES, "step": "int64", "reward": "float64"}


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
        UserError: pyarrow is not installed for Parquet.
    """
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


def trial_columns(history: History) -> Columns:
    """Return the table as columns of equal length. A missing value is None."""
    return _cells(exported(history), history.trials)


def _trial_parts(history: History) -> Iterator[Columns]:
    """Yield the table in parts of at most `_PART` rows, at least one part."""
    columns = exported(history)
    for first in range(0, max(1, len(history.trials)), _PART):
        yield _cells(columns, history.trials[first : first + _PART])


def _cells(columns: Iterable[Column], rows: Sequence[TrialRow]) -> Columns:
    return {column.name: list(map(column.cell, rows)) for column in columns}


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
    names = first_seen(metrics)
    return columns | {METRIC_PREFIX + name: [at.get(name) for at in metrics] for name in names}


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
    type = _TYPES.get(name, "float64" if name.startswith(METRIC_PREFIX) else "")
    if type == "timestamp":
        moments = [None if value is None else datetime.fromisoformat(value) for value in values]
        return pa.array(moments, type=pa.timestamp("us", tz="UTC"))
    if type:
        return pa.array(values, type=type)
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # a parameter with mixed types becomes text
        return pa.array([None if value is None else str(_cell(value)) for value in values], type="string")
