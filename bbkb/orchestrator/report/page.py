"""The report: one HTML file that needs no other file and sends no request. Several reports can
share one file of plotly.js.

All texts from outside (messages, parameters, names, settings) are escaped: by Jinja2 in the page's
text, by `figure.label` in figures, and by base64 in scripts (`pack`). The script builds the table
from text nodes. In addition, a content security policy allows only the page's own script and no
requests. Characters without width, and those that change the direction of writing, are shown as
escapes.
"""

import base64
import gzip
import hashlib
import heapq
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from bbkb.orchestrator import files
from bbkb.orchestrator.history.columns import Column, reported
from bbkb.orchestrator.history.export import strict_json
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.report.figure import Spec, resource
from bbkb.orchestrator.report.pictures import figures, internal_figures
from bbkb.orchestrator.report.static import most_useful, svg
from bbkb.orchestrator.report.summary import (
    as_yaml,
    best_origin,
    best_parameters,
    columns,
    model_facts,
    recommended_parameters,
    subtitle,
    summary_cards,
)
from bbkb.orchestrator.report.timeline import CampaignClock
from bbkb.orchestrator.wording import duration, moment, printable

_MOST_LISTED = 10_000  # trials in the table; more would slow down the page
_MOST_STATIC = 100  # trials in the table without scripts


def write_report(history: History, path: Path, title: str, plotly: Path | None = None) -> None:
    """Write the report to `path`, readable only by its owner.

    Args:
        history: the campaign.
        path: the report's file.
        title: its title.
        plotly: a plotly.js file for the report to refer to instead of containing it. It is written
            if it does not exist.

    Raises:
        OSError: if a file cannot be written; an existing report is then unchanged.
    """
    if plotly is not None and not plotly.exists():
        files.write_text(plotly, get_plotlyjs())
    shared = "" if plotly is None else os.path.relpath(plotly.resolve(), path.parent.resolve())
    files.write_text(path, render(history, title, shared))


def render(history: History, title: str, plotly: str = "") -> str:
    """Return the page as HTML. The same history results in the same page.

    `plotly` is the address of plotly.js relative to the page; if it is empty, the page contains
    plotly.js.
    """
    environment = Environment(
        loader=PackageLoader("bbkb.orchestrator.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["packed"] = pack
    drawn = figures(history)
    cards = summary_cards(history)
    table = trial_table(history)
    script = resource("figures.js") + resource("report.js")
    page = environment.get_template("report.html").render(
        title=title,
        subtitle=subtitle(history),
        state=history.state,
        cards=cards,
        card_columns=columns(len(cards)),
        best=best_parameters(history),
        best_origin=best_origin(history),
        recommended=recommended_parameters(history),
        missing=history.campaign.missing_best,
        figures=drawn,
        static={figure.name: svg(figure) for figure in most_useful(drawn)},
        internals=internal_figures(history),
        model=model_facts(history),
        trials=table,
        static_rows=_static_rows(history, table),
        unlisted=len(history.trials) - len(rows_to_list(history)),
        note=history.settings.note,
        sessions=_sessions(history),
        configuration=as_yaml(history.settings.shown),
        style=resource("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        shared_plotly=quote(plotly),
        plotly="" if plotly else _pack_plotly(),
    )
    return printable(page)


def pack(value: object) -> str:
    """Return `value` as gzipped JSON in base64, which is a third of the size and has no special
    characters of HTML.

    Raises ValueError for NaN and infinities, which JSON cannot represent.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


@cache
def _pack_plotly() -> str:
    """Return plotly.js, compressed from 4.8 MB to 2 MB."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=6, mtime=0)).decode()


def _sessions(history: History) -> Spec:
    columns = (
        Column("session", attrgetter("epoch")),
        Column("executor", attrgetter("executor")),
        Column("workers", attrgetter("slots")),
        Column("started", lambda row: moment(row.started)),
        Column("length", lambda row: duration(row.seconds), kind="number"),
        Column("ended", attrgetter("state"), kind="status"),
        Column("why", lambda row: row.reason or "no closing record: killed, or still running"),
    )
    return _table(columns, history.sessions)


def trial_table(history: History) -> Spec:
    """Return the table of trials."""
    rows = rows_to_list(history)
    clock = CampaignClock.of(history)

    def start(row: TrialRow) -> float | None:
        return None if row.started is None else round(float(clock(row.started)), 3)

    return _table(reported(history, rows, Column("started (s)", start, kind="number extra")), rows)


def _table(columns: Sequence[Column], rows: Sequence[object]) -> Spec:
    """Return a table for the page: `columns` (name, kind) and `rows`."""
    cells = [list(map(column.cell, rows)) for column in columns]
    return {
        "columns": [
            {"name": printable(column.heading), "kind": column.kind_of(of_column)}
            for column, of_column in zip(columns, cells, strict=True)
        ],
        "rows": [list(map(_cell, row)) for row in zip(*cells, strict=True)],
    }


def rows_to_list(history: History) -> list[TrialRow]:
    """Return the trials of the table: all of them, or the best and the newest if there are many."""
    if len(history.trials) <= _MOST_LISTED:
        return history.trials
    best = heapq.nlargest(_MOST_LISTED // 2, history.succeeded, key=history.worth)
    newest = history.trials[-_MOST_LISTED // 2 :]
    return sorted({row.trial: row for row in [*best, *newest]}.values(), key=lambda row: row.trial)


def _static_rows(history: History, table: Spec) -> list[list[object]]:
    """Return the rows shown without scripts: all of them, or the best trials if there are many."""
    rows: list[list[object]] = table["rows"]
    if len(rows) <= _MOST_STATIC:
        return rows
    best = heapq.nlargest(_MOST_STATIC, history.succeeded, key=history.worth)
    listed = {row.trial for row in best}
    return [row for row in rows if row[0] in listed]


def _cell(value: object) -> object:
    """Return floats with six significant digits, and lists and mappings as JSON text."""
    if isinstance(value, float):
        return strict_json(float(f"{value:.6g}"))
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(strict_json(value), default=str)
    return printable(value) if isinstance(value, str) else value
