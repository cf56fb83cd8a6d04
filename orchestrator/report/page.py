"""The report page: one HTML file without other files, which sends no request.

Everything that came from outside (messages, parameters, names, settings) is escaped: by Jinja2 in
the page's text, by `figure.label` in pictures, by base64 inside scripts (`pack`), and the table is
built from text nodes. In addition, a content security policy allows only the page's own script and
no requests. Characters that change the direction of writing, or have no width, are shown as
escapes.
"""

import base64
import gzip
import hashlib
import heapq
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from orchestrator import files
from orchestrator.history.export import parameter_names, strict_json
from orchestrator.history.fold import History
from orchestrator.history.remarks import remark
from orchestrator.history.rows import TrialRow
from orchestrator.report.figure import Spec
from orchestrator.report.pictures import figures, internal_figures
from orchestrator.report.summary import (
    as_yaml,
    best_parameters,
    model_facts,
    recommended_parameters,
    subtitle,
    summary_cards,
)
from orchestrator.report.timeline import CampaignClock
from orchestrator.wording import duration, moment, printable

_MOST_LISTED = 10_000  # trials in the table: more make the file and the page slow


def write_report(history: History, path: Path, title: str) -> None:
    """Write the report to `path`, readable by its owner only.

    Raises OSError when it cannot be written; a report that was there stays as it was.
    """
    files.write_text(path, render(history, title))


def render(history: History, title: str) -> str:
    """Return the whole page as HTML. The same history gives the same page."""
    environment = Environment(
        loader=PackageLoader("orchestrator.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["packed"] = pack
    script = resource("figures.js") + resource("report.js")
    page = environment.get_template("report.html").render(
        title=title,
        subtitle=subtitle(history),
        state=history.state,
        cards=summary_cards(history),
        best=best_parameters(history),
        recommended=recommended_parameters(history),
        has_results=bool(history.succeeded),
        missing=history.campaign.missing_best,
        figures=figures(history),
        internals=internal_figures(history),
        model=model_facts(history),
        table=trial_table(history),
        unlisted=len(history.trials) - len(rows_to_list(history)),
        notes=_note_rows(history),
        sessions=_session_rows(history),
        configuration=as_yaml(history.settings.shown),
        style=resource("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        plotly=_pack_plotly(),
    )
    return printable(page)


def resource(name: str) -> str:
    """Return a text file of the report's folder."""
    return resources.files("orchestrator.report").joinpath(name).read_text(encoding="utf-8")


def pack(value: object) -> str:
    """Return `value` as strict JSON, gzipped, in base64: a third of the size, and without
    characters that have a meaning in HTML.

    Raises ValueError on NaN and infinities, which JSON does not have.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


@cache
def _pack_plotly() -> str:
    """Return plotly.js for the page: 2 MB instead of 4.8."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=6, mtime=0)).decode()


def _session_rows(history: History) -> list[dict[str, str]]:
    return [
        {
            "epoch": str(session.epoch),
            "executor": session.executor,
            "slots": str(session.slots),
            "started": moment(session.started),
            "length": duration(session.seconds),
            "ended": session.state,
            "reason": session.reason or "no closing record: killed, or still running",
        }
        for session in history.sessions
    ]


def _note_rows(history: History) -> list[dict[str, str]]:
    """Return the notes: the file's note first, then the others in the order written."""
    first = [{"time": "", "about": "campaign", "tags": "", "text": history.settings.note}] * bool(history.settings.note)
    return first + [
        {
            "time": moment(note.time),
            "about": "campaign" if note.trial is None else f"trial {note.trial}",
            "tags": " ".join(note.tags),
            "text": note.text,
        }
        for note in history.notes
    ]


def trial_table(history: History) -> Spec:
    """Return the table of trials for the page's script: `columns` (name, kind) and `rows`."""
    clock = CampaignClock.of(history)
    rows = rows_to_list(history)
    names, metrics = parameter_names(rows), history.goals.further_metrics
    before = [("trial", "number"), ("status", "status"), ("value", "number"), *((name, "number") for name in metrics)]
    remarks = [remark(history, row) for row in rows]
    workers = history.settings.workers
    shares = [workers.share_of(row.parameters) for row in rows]
    least = {"machines": 1, "GPUs": 0}
    amounts_of: dict[str, list[float]] = {
        "machines": [share.machines for share in shares],
        "GPUs": [share.machines * share.gpus for share in shares],
    }
    amounts = {name: numbers for name, numbers in amounts_of.items() if any(number > least[name] for number in numbers)}
    after = [*amounts, "batch", "attempts", "started (s)", "seconds"]
    columns = [
        *({"name": printable(name), "kind": kind} for name, kind in before),
        *({"name": printable(name), "kind": "number" if _is_numeric(rows, name) else "text"} for name in names),
        *({"name": name, "kind": "number"} for name in after),
        {"name": "worker", "kind": "text"},
        *([{"name": "remark", "kind": "text"}] if any(remarks) else []),
        {"name": "error", "kind": "message"},
    ]
    times = clock([math.nan if row.started is None else row.started for row in rows]).round(3).tolist()
    return {
        "columns": columns,
        "rows": [
            _table_row(
                row,
                names,
                metrics,
                amounts=[numbers[place] for numbers in amounts.values()],
                started=time,
                remarks=[text] if any(remarks) else [],
            )
            for place, (row, time, text) in enumerate(zip(rows, times, remarks, strict=True))
        ],
    }


def rows_to_list(history: History) -> list[TrialRow]:
    """Return the trials of the table: all if they are few, else the best and the newest."""
    if len(history.trials) <= _MOST_LISTED:
        return history.trials
    best = heapq.nlargest(_MOST_LISTED // 2, history.succeeded, key=history.worth)
    newest = history.trials[-_MOST_LISTED // 2 :]
    return sorted({row.trial: row for row in [*best, *newest]}.values(), key=lambda row: row.trial)


def _is_numeric(rows: list[TrialRow], name: str) -> bool:
    values = (row.parameters.get(name) for row in rows)
    return all(value is None or isinstance(value, int | float) for value in values)


def _table_row(
    row: TrialRow,
    names: list[str],
    metrics: Sequence[str],
    amounts: Sequence[float],
    started: float,
    remarks: list[str],
) -> list[object]:
    """Return a trial's cells. `amounts`: what it takes; `started`: seconds in session, or NaN;
    `remarks`: its remark, none where the table has no such column."""
    parameters = [row.parameters.get(name) for name in names]
    values = [row.metrics.get(name) for name in metrics]
    after = [row.batch, row.attempts, started, row.seconds]
    cells = [row.trial, row.status, row.value, *values, *parameters, *amounts, *after]
    return [_cell(value) for value in [*cells, row.worker, *remarks, row.error]]


def _cell(value: object) -> object:
    """Return numbers to six significant digits, lists and mappings as JSON text."""
    if isinstance(value, float):
        return strict_json(float(f"{value:.6g}"))
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(strict_json(value), default=str)
    return printable(value) if isinstance(value, str) else value
