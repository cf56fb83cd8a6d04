"""The trials as a table, for exports, the report and the live page: its columns, its remarks, and its
files in CSV, JSON and Parquet.

`started` and `finished` are ISO 8601 texts in UTC (`2026-03-01T14:05:09.250000Z`), and timestamps in
Parquet; the virtual seconds of the simulated executor are counted from 1970-01-01T00:00:00Z. An
unknown value (no result yet, an inactive conditional parameter) is an empty field in CSV and null in
the other formats. `error` is the last failure of a trial that has not succeeded. It may consist of
several lines.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from bbkb.objectives.parameters import conditions
from bbkb.orchestrator.campaign.events import stop_words
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import History, TrialRow
from bbkb.orchestrator.wording import iso, plural

METRIC_PREFIX = "metric."
Columns = dict[str, list[Any]]  # by name, one cell for each row
Format = Literal["csv", "json", "parquet"]
Table = Literal["trials", "reports", "existing"]

_PLAIN: frozenset[type] = frozenset((float, int, type(None)))  # types written to CSV unchanged
_EXACT: frozenset[type] = frozenset((str, int, bool, type(None)))  # types written to JSON unchanged
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
_PART = 10_000  # rows in one part of a file


class Column(NamedTuple):
    """A column of a table.

    name: the name in exports. It begins with `trial.` if the column is optional, so that parameters
        keep their names.
    cell: returns the cell of a row; None if it is unknown.
    type: in Parquet: int64, float64, string, bool or timestamp; empty if the values determine it.
    kind: in a page: number, text, status or message, with "extra" if narrow screens hide it; empty
        if the values determine it.
    label: the heading in a page, if it is not the name.
    is_optional: whether a table without any value in this column omits it.
    """

    name: str
    cell: Callable[[Any], Any]
    type: str = ""
    kind: str = ""
    label: str = ""
    is_optional: bool = False

    @property
    def heading(self) -> str:
        """The heading in a page."""
        return self.label or self.name.removeprefix("trial.")

    def kind_of(self, cells: Iterable[object]) -> str:
        """Return the kind, which `cells` determine if it is empty."""
        is_number = all(cell is None or isinstance(cell, int | float) for cell in cells)
        return self.kind or ("number" if is_number else "text")


def _attribute(name: str, type: str, kind: str = "number") -> Column:
    return Column(name, attrgetter(name), type, kind)


def _entry(name: str, attribute: str, key: str, kind: str = "") -> Column:
    """Return the column of one parameter or metric, named `key`."""
    return Column(name, lambda row: getattr(row, attribute).get(key), kind=kind, label=key)


def _time(name: str) -> Column:
    time = attrgetter(name)
    return Column(name, lambda row: None if time(row) is None else iso(time(row)), "timestamp")


_TRIAL = _attribute("trial", "int64")
_VALUE = _attribute("value", "float64")
_STATUS = _attribute("status", "string", "status")
_ATTEMPTS = _attribute("attempts", "int64", "number extra")
_BATCH = _attribute("batch", "int64", "number extra")
_SECONDS = _attribute("seconds", "float64")
_WORKER = _attribute("worker", "string", "text extra")
_ERROR = _attribute("error", "string", "message")
# the last reported step, to which the value of an early-stopped trial belongs
_STEP = Column(
    "trial.step", lambda row: max(row.training.reports, default=row.training.stopped_at), "int64", is_optional=True
)
_FEASIBLE = Column("trial.feasible", attrgetter("is_feasible"), "bool", is_optional=True)

# The columns of every export, before and after the parameters
FIRST = (_TRIAL, _attribute("arm", "int64"), _STATUS, _ATTEMPTS, _VALUE)
LAST = (_BATCH, _time("started"), _time("finished"), _SECONDS, _WORKER, _ERROR)
# The types of all columns of an export but parameters and metrics, which have other names
_TYPES = {
    **{column.name: column.type for column in (*FIRST, *LAST, _STEP, _FEASIBLE)},
    "trial.remark": "string",
    "step": "int64",
    "reward": "float64",
}


def exported(history: History) -> list[Column]:
    """Return the columns of an export, also those of conditional parameters that no trial has."""
    rows = history.listed
    names = parameter_names(rows)
    space = history.settings.space
    conditional = (name for name in space if names and conditions(space[name]))
    return [
        *FIRST,
        *_parameters(_first_seen([names, conditional])),
        *LAST,
        *_metrics(_first_seen(row.metrics for row in rows)),
        *_present((_STEP, _remarks(history), _FEASIBLE), rows),
    ]


def reported(history: History, rows: Sequence[TrialRow], start: Column) -> list[Column]:
    """Return the columns of these rows in the report. `start` contains their starts."""
    share = history.settings.workers.share_of
    machines = Column("machines", lambda row: share(row.parameters).machines)
    gpus = Column("GPUs", lambda row: share(row.parameters).machines * share(row.parameters).gpus)
    amounts = [column for column, usual in ((machines, 1), (gpus, 0)) if any(column.cell(row) > usual for row in rows)]
    metrics = _metrics(history.goals.further_metrics)
    parameters = _parameters(parameter_names(rows, history.settings.space))
    last = (_BATCH, _ATTEMPTS, start, _SECONDS, _WORKER, _remarks(history), _ERROR)
    return _present((_TRIAL, _STATUS, _VALUE, *metrics, *parameters, *amounts, *last), rows)


def _present(columns: Iterable[Column], rows: Sequence[TrialRow]) -> list[Column]:
    return [c for c in columns if not c.is_optional or any(c.cell(row) is not None for row in rows)]


def _parameters(names: Sequence[str]) -> list[Column]:
    """Return a column for each parameter. A prefix makes its name differ from all other columns."""
    columns = []
    for name in names:
        own = name
        while own in _TYPES or own.startswith(METRIC_PREFIX) or (own != name and own in names):
            own = f"parameter.{own}"
        columns.append(_entry(own, "parameters", name))
    return columns


def _metrics(names: Iterable[str]) -> list[Column]:
    return [_entry(METRIC_PREFIX + name, "metrics", name, "number") for name in names]


def _remarks(history: History) -> Column:
    return Column("trial.remark", lambda row: remark(history, row) or None, kind="text long", is_optional=True)


def parameter_names(rows: Iterable[TrialRow], space: Iterable[str] = ()) -> list[str]:
    """Return the parameters of these trials: those of `space` in its order, then the others in the
    order of their first appearance."""
    known = dict.fromkeys(name for row in rows for name in row.parameters)
    return [name for name in _first_seen([space, known]) if name in known]


def _first_seen(collections: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in collections for name in names))


def remark(history: History, row: TrialRow) -> str:
    """Return the violated constraints and the course of the training; may be empty."""
    return "; ".join(filter(None, (broken_constraints(history, row), training_remark(history, row))))


def broken_constraints(history: History, row: TrialRow) -> str:
    """Return the constraints that the result violates, with its metrics; may be empty."""
    if row.is_feasible is not False or row.value is None:
        return ""
    margins = history.goals.margins(row.value, row.metrics)
    broken = [
        f"{constraint.metric} is {row.metrics.get(constraint.metric, row.value):.6g} and must be {constraint.bounds}"
        for constraint, margin in zip(history.goals.constraints, margins, strict=True)
        if not margin >= 0.0
    ]
    return f"infeasible: {', '.join(broken)}"


def training_remark(history: History, row: TrialRow) -> str:
    """Return whether and why the trial was stopped, continued or exempted; may be empty."""
    training, settings = row.training, history.settings
    remarks = []
    if row.pick.starts_from is not None:
        origin, step = row.pick.starts_from
        remarks.append(f"starts from trial {origin} at step {step}")
    if count := training.continuations:
        remarks.append("continued once" if count == 1 else f"continued {plural(count, 'time')}")
    if training.has_restarted and settings.has_checkpoints:
        remarks.append("it restarted at the first step when it was continued")
    if row.status == "stopped":
        word, cause = stop_words(training.stop_cause)
        remarks.append(f"{'then ' if count else ''}{word} at step {training.stopped_at}{cause}")
    if training.has_no_checkpoint:
        remarks.append("its checkpoint was removed")
    is_witness = settings.training is not None and settings.training.is_witness(row.trial)
    if training.reports and row.status != "stopped" and is_witness:
        remarks.append("a witness: no comparison and no forecast stops it")
    return "; ".join(remarks)


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
    parts: Iterable[Columns]
    if table == "trials":
        columns, rows = exported(history), history.listed
        size = max(1, len(rows)) if format == "parquet" else _PART
        parts = (_cells(columns, rows[first : first + size]) for first in range(0, max(1, len(rows)), size))
    elif table == "reports":
        parts = [report_columns(history)]
    else:  # the format of a warm start; values on the user's scale
        existing = history.existing
        arms, values = ((), ()) if existing is None else (existing.arms, existing.values)
        parts = [{"arm": list(arms), "reward": list(values)}]
    match format:
        case "csv":
            return _to_csv(parts, is_safe)
        case "json":
            return _to_json(parts)
        case "parquet":
            return map(_to_parquet, parts)


def trial_columns(history: History) -> Columns:
    """Return the table as columns of equal length. A missing value is None."""
    return _cells(exported(history), history.listed)


def _cells(columns: Iterable[Column], rows: Sequence[TrialRow]) -> Columns:
    return {column.name: list(map(column.cell, rows)) for column in columns}


def report_columns(history: History) -> Columns:
    """Return one row for each trial and step, with the value reported by the newest attempt and
    further metrics as `metric.<name>`."""
    reported = [
        (row, step, row.training.reports[step]) for row in history.listed for step in sorted(row.training.reports)
    ]
    columns: Columns = {
        "trial": [row.trial for row, _, _ in reported],
        "step": [step for _, step, _ in reported],
        "value": [value for _, _, value in reported],
    }
    metrics = [row.training.metrics.get(step, {}) for row, step, _ in reported]
    names = _first_seen(metrics)
    return columns | {METRIC_PREFIX + name: [at.get(name) for at in metrics] for name in names}


def _to_csv(parts: Iterable[Columns], is_safe: bool) -> Iterator[bytes]:
    """Yield RFC 4180. Lines end with CRLF, so a lone CR or LF in a field is also quoted."""

    def shown(value: object) -> object:
        cell = value if type(value) is str else _cell(value)
        is_formula = is_safe and isinstance(cell, str) and cell.startswith(_FORMULA_SIGNS)
        return f"'{cell}" if is_formula else cell  # text with an apostrophe, which no spreadsheet executes

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
    arrays: dict[str, object] = {}
    for name, values in columns.items():  # fixed columns and metrics have the same type in every campaign
        type = _TYPES.get(name, "float64" if name.startswith(METRIC_PREFIX) else "")
        if type == "timestamp":
            moments = [None if value is None else datetime.fromisoformat(value) for value in values]
            arrays[name] = pa.array(moments, type=pa.timestamp("us", tz="UTC"))
            continue
        try:
            arrays[name] = pa.array(values, type=type or None)
        except (pa.ArrowException, OverflowError):  # a parameter with mixed types becomes text
            if type:
                raise
            texts = [None if value is None else str(_cell(value)) for value in values]
            arrays[name] = pa.array(texts, type="string")
    table = pa.table(arrays)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
