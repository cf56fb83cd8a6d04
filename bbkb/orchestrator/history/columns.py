"""The columns of trials in exports, the report and the live page. Every screen shows `RESULT`."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from bbkb.objectives.parameters import conditions
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.remarks import remark
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.wording import duration, iso

METRIC_PREFIX = "metric."


class Column(NamedTuple):
    """A column of a table.

    name: the name in exports and JSON. It begins with `trial.` if the column is optional, so that
        parameters keep their names.
    cell: returns the cell of a row; None if it is unknown.
    type: in Parquet: int64, float64, string, bool or timestamp; empty if the values determine it.
    kind: in a page: number, text, status or message, with "extra" if narrow screens hide it; empty
        if the values determine it.
    label: the heading in a page, if it is not the name.
    text: returns the text of a known cell for the live page and `bbkb status --trial`.
    is_optional: whether a table without any value in this column omits it.
    """

    name: str
    cell: Callable[[Any], Any]
    type: str = ""
    kind: str = ""
    label: str = ""
    text: Callable[[Any], object] | None = None
    is_optional: bool = False

    @property
    def key(self) -> str:
        """The name in the JSON of one trial, and the attribute of a number of a result."""
        return self.name.removeprefix("trial.")

    @property
    def heading(self) -> str:
        """The heading in a page."""
        return self.label or self.key

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


def _last_step(row: TrialRow) -> int | None:
    """Return the last reported step, to which the value of an early-stopped trial belongs."""
    return max(row.training.reports, default=row.training.stopped_at)


TRIAL = _attribute("trial", "int64")
VALUE = _attribute("value", "float64")
_ARM = _attribute("arm", "int64")
_STATUS = _attribute("status", "string", "status")
_ATTEMPTS = _attribute("attempts", "int64", "number extra")
_BATCH = _attribute("batch", "int64", "number extra")
_SECONDS = _attribute("seconds", "float64")._replace(text=lambda cell: duration(max(0.0, cell)))
_WORKER = _attribute("worker", "string", "text extra")
_ERROR = _attribute("error", "string", "message")
_STEP = Column("trial.step", _last_step, "int64", is_optional=True)
_FEASIBLE = Column("trial.feasible", attrgetter("is_feasible"), "bool", is_optional=True)

# The numbers of a trial's result, in the order of all screens. Those after the value are optional.
RESULT = (VALUE,)
# The columns of every export, before and after the parameters
FIRST = (TRIAL, _ARM, _STATUS, _ATTEMPTS, VALUE)
LAST = (_BATCH, _time("started"), _time("finished"), _SECONDS, _WORKER, _ERROR)
# The types of all columns of an export but parameters and metrics, which have other names
TYPES = {
    **{column.name: column.type for column in (*FIRST, *LAST, _STEP, _FEASIBLE, *RESULT)},
    **dict.fromkeys(("trial.remark",), "string"),
}


def exported(history: History) -> list[Column]:
    """Return the columns of an export, also those of conditional parameters that no trial has."""
    rows = history.trials
    names = parameter_names(rows)
    space = history.settings.space
    conditional = (name for name in space if names and conditions(space[name]))
    return [
        *FIRST,
        *_parameters(first_seen([names, conditional])),
        *LAST,
        *_metrics(first_seen(row.metrics for row in rows)),
        *present((_STEP, _remarks(history), _FEASIBLE, *RESULT[1:]), rows),
    ]


def reported(history: History, rows: Sequence[TrialRow], start: Column) -> list[Column]:
    """Return the columns of these rows in the report. `start` contains their starts."""
    metrics = _metrics(history.goals.further_metrics)
    parameters = _parameters(parameter_names(rows, history.settings.space))
    first = (TRIAL, _STATUS, *RESULT, *metrics, *parameters, *_amounts(history, rows))
    last = (_BATCH, _ATTEMPTS, start, _SECONDS, _WORKER, _remarks(history), _ERROR)
    return present((*first, *last), rows)


def present(columns: Iterable[Column], rows: Sequence[TrialRow]) -> list[Column]:
    """Return the columns without optional ones for which no row has a value."""
    return [c for c in columns if not c.is_optional or any(c.cell(row) is not None for row in rows)]


def _parameters(names: Sequence[str]) -> list[Column]:
    """Return a column for each parameter. A prefix makes its name differ from all other columns."""
    columns = []
    for name in names:
        own = name
        while own in TYPES or own.startswith(METRIC_PREFIX) or (own != name and own in names):
            own = f"parameter.{own}"
        columns.append(_entry(own, "parameters", name))
    return columns


def _metrics(names: Iterable[str]) -> list[Column]:
    return [_entry(METRIC_PREFIX + name, "metrics", name, "number") for name in names]


def _remarks(history: History) -> Column:
    texts = partial(remark, history)
    return Column("trial.remark", lambda row: texts(row) or None, kind="text long", is_optional=True)


def _amounts(history: History, rows: Sequence[TrialRow]) -> list[Column]:
    """Return the machines and GPUs of each trial, if any trial takes more than one machine or a
    GPU."""
    share = history.settings.workers.share_of
    machines = Column("machines", lambda row: share(row.parameters).machines)
    gpus = Column("GPUs", lambda row: share(row.parameters).machines * share(row.parameters).gpus)
    usual = ((machines, 1), (gpus, 0))
    return [column for column, amount in usual if any(column.cell(row) > amount for row in rows)]


def parameter_names(rows: Iterable[TrialRow], space: Iterable[str] = ()) -> list[str]:
    """Return the parameters of these trials: those of `space` in its order, then the others in the
    order of their first appearance."""
    known = dict.fromkeys(name for row in rows for name in row.parameters)
    return [name for name in first_seen([space, known]) if name in known]


def first_seen(collections: Iterable[Iterable[str]]) -> list[str]:
    """Return all names without duplicates, in the order of their first appearance."""
    return list(dict.fromkeys(name for names in collections for name in names))
