"""The page of a campaign: one HTML file for the report, which contains its snapshot, and for the
live page, which polls it. The snapshot, one JSON value, is everything that the page shows.

All texts from outside (messages, parameters, names, settings) are data: gzipped JSON in base64,
which has no special characters of HTML. The script builds the page from text nodes, and `figure.label`
escapes the texts of figures. A content security policy allows only the page's own script, and a
report no request at all. Characters without width, and those that change the direction of writing,
are shown as escapes.
"""

import base64
import gzip
import hashlib
import heapq
import html
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import yaml
from plotly.offline import get_plotlyjs

from bbkb.objectives.parameters import Parameter, as_given
from bbkb.orchestrator import files
from bbkb.orchestrator.annotations import default_of, key_of
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.campaign.settings import Settings, shown
from bbkb.orchestrator.campaign.status import without_process
from bbkb.orchestrator.history.facts import advice, as_arguments, facts
from bbkb.orchestrator.history.fold import History, TrialRow
from bbkb.orchestrator.history.tables import Column, parameter_names, reported, strict_json
from bbkb.orchestrator.report.figure import Figure, resource, short
from bbkb.orchestrator.report.landscape import fit_surrogate, landscape, parallel_coordinates
from bbkb.orchestrator.report.one_trial import Plain
from bbkb.orchestrator.report.progress import best_so_far, fronts, learning_curves
from bbkb.orchestrator.report.timeline import CampaignClock, batch_table, model_facts, sizes, timeline
from bbkb.orchestrator.wording import duration, joined, moment, one_line, plural, printable, rounded

_MOST_LISTED = 10_000  # trials in the table; more would slow down the page
_MOST_RUNNING = 50
_MOST_FRONT = 20
_TAGS = ("name", "rule")  # keys that select the kind of a section
# of the facts, those that the page shows elsewhere
_ELSEWHERE = ("best value", "parameters", "recommended", "its parameters", "failures", "warning")


def snapshot(
    history: History,
    folder: str,
    now: float | None = None,
    figures: Sequence[Plain] | None = None,
    *,
    has_ended: bool = False,
) -> Plain:
    """Return the state of a campaign for the page. The same history results in the same value.

    Args:
        history: the campaign.
        folder: the run's folder, for commands.
        now: the time on the executor's clock if a process runs it.
        figures: the figures of an earlier position if drawing them again is not due; None: draw.
        has_ended: whether the process of an open session has ended.
    """
    status = history.status(now)
    if has_ended and status.phase in ("running", "stopping"):
        status = without_process(status, "its process has ended")
    listed = facts(status)
    count, whole, unit = status.spent
    running = [] if now is None else _running(history, now)
    left = status.budget.left_seconds
    settings = history.settings
    sessions = (
        Column("session", attrgetter("epoch")),
        Column("executor", attrgetter("executor")),
        Column("workers", attrgetter("slots")),
        Column("started", lambda row: moment(row.started)),
        Column("length", lambda row: duration(row.seconds), kind="number"),
        Column("ended", lambda row: str(row.state), kind="status"),
        Column("why", lambda row: row.reason or "no closing record: killed, or still running"),
    )
    return {
        "state": str(history.state),
        "phase": str(status.phase),
        "position": history.position,
        "subtitle": joined(
            " · ",
            one_line(settings.objective_name, 80),
            str(settings.strategy.get("name", "")),
            f"{history.created.arms + history.appended:,} candidates",
            f"seed {history.settings.seed}",
            " ".join(settings.tags),
        ),
        "note": settings.note,
        "answer": _answer(history),
        "next": advice(status, folder),
        "progress": {
            "done": count,
            "total": whole,
            "unit": unit,
            "left": f"about {duration(left)} left" if now is not None and left is not None else "",
        },
        "running": running,
        "facts": [
            list(fact)
            for fact in listed
            if fact.label not in _ELSEWHERE and fact.kind != "detail" and (fact.label != "state" or now is None)
        ],
        "failures": [
            {
                "kind": cause.kind,
                "attempts": plural(cause.attempts, "attempt"),
                "trial": cause.trial,
                "summary": one_line(cause.summary, 300),
                "message": cause.message,
            }
            for cause in sorted(status.trials.failures, key=lambda cause: -cause.attempts)
        ],
        "warnings": list(status.remarks),
        "figures": draw(history) if figures is None else list(figures),
        "trials": trial_table(history),
        "details": [
            *(list(fact[:3]) for fact in listed if fact.kind == "detail"),
            *map(list, model_facts(history)),
        ],
        "batches": batch_table(history),
        "sessions": _table(sessions, history.sessions),
        "settings": {"set": _as_yaml(settings_set(settings)), "all": _as_yaml(shown(settings))},
    }


def figures_of(history: History) -> list[Figure]:
    """Return the figures for which this campaign has data, in the page's order."""
    surrogate = fit_surrogate(history)
    made = [
        best_so_far(history),
        *fronts(history),
        learning_curves(history),
        *landscape(surrogate, history.is_maximized),
        parallel_coordinates(history),
        timeline(history),
        sizes(history),
    ]
    return [figure for figure in made if figure is not None]


def draw(history: History) -> list[Plain]:
    """Return the figures as JSON values."""
    return list(map(plain_figure, figures_of(history)))


def plain_figure(figure: Figure) -> Plain:
    """Return a figure as a JSON value, for the page."""
    return {
        "name": figure.name,
        "title": printable(figure.title),
        "caption": printable(figure.caption),
        "explanation": figure.explanation,
        "wide": figure.is_wide,
        "width": figure.min_width,
        "spec": figure.spec,
    }


def _answer(history: History) -> Plain:
    """Return the recommended configuration, in forms to copy, and how good and certain it is."""
    best = history.best_known
    objective = history.goals.objectives[0]
    label = f"{objective.metric}, {objective.direction}d"
    if best is None:
        return {"label": label, "missing": history.campaign.missing_best}
    recommended = history.campaign.refresh.recommended
    value, deviation = f"{best.value:.6g}", ""
    remarks = [best.origin, *(f"{name} {number:.6g}" for name, number in best.metrics.items())]
    if recommended is not None:
        value = f"{recommended.value:.6g}"
        remarks = [f"mean of {plural(recommended.evaluations, 'evaluation')}"]
        if recommended.estimate is not None and recommended.deviation is not None:
            value, deviation = rounded(recommended.estimate, 5), f"± {rounded(recommended.deviation, 2)}"
            remarks = [f"estimate; {remarks[0]}: {recommended.value:.6g}"]
        is_best = best.parameters == recommended.parameters
        remarks.append("also the best value" if is_best else f"best single value: {best.value:.6g} ({best.origin})")
    parameters = history.recommended or {}
    active = {name: each for name, each in parameters.items() if each is not None}
    given = as_given(history.settings.space, active)
    return {
        "label": label,
        "value": value,
        "deviation": deviation,
        "remark": "; ".join(remarks),
        "parameters": [[name, str(short(each))] for name, each in active.items()],
        "copies": [["arguments", as_arguments(given)], ["Python", repr(given)], ["YAML", _as_yaml(given).rstrip()]],
        "front": _front(history),
    }


def _front(history: History) -> Plain | None:
    """Return the front as a table; None with one objective."""
    goals = history.goals
    if len(goals.objectives) == 1:
        return None
    rows = history.front[:_MOST_FRONT]

    def value(index: int, row: TrialRow) -> float:
        return goals.values(row.value or 0.0, row.metrics)[index]

    def parameter(name: str, row: TrialRow) -> object:
        return row.parameters.get(name)

    metrics = [Column(goal.metric, partial(value, index)) for index, goal in enumerate(goals.objectives)]
    parameters = [Column(name, partial(parameter, name)) for name in parameter_names(rows)]
    return _table([Column("trial", attrgetter("trial")), *metrics, *parameters], rows)


def _running(history: History, now: float) -> list[list[object]]:
    """Return trial, time, newest report and parameters of the trials that have run longest."""
    longest = heapq.nsmallest(_MOST_RUNNING, history.campaign.running.items(), key=lambda item: item[1].since)
    rows: list[list[object]] = []
    for trial, run in longest:
        row = history.trials[trial]
        step, value = max(row.training.reports.items(), default=(None, None))
        report = "" if step is None else f"step {step}: {short(value)}"
        parameters = ", ".join(f"{name}={short(each)}" for name, each in row.parameters.items())
        rows.append([trial, duration(max(0.0, now - run.since)), report, one_line(printable(parameters), 300)])
    return rows


def trial_table(history: History) -> Plain:
    """Return the table of trials: all of them, or the best and the newest if there are many."""
    rows = every = history.listed
    if len(rows) > _MOST_LISTED:
        best = heapq.nlargest(_MOST_LISTED // 2, history.succeeded, key=history.worth)
        newest = rows[-_MOST_LISTED // 2 :]
        rows = sorted({row.trial: row for row in [*best, *newest]}.values(), key=lambda row: row.trial)
    clock = CampaignClock.of(history)

    def start(row: TrialRow) -> float | None:
        return None if row.started is None else round(float(clock(row.started)), 3)

    columns = reported(history, rows, Column("started (s)", start, kind="number extra"))
    return _table(columns, rows) | {"unlisted": len(every) - len(rows)}


def _table(columns: Sequence[Column], rows: Sequence[object]) -> Plain:
    cells = [list(map(column.cell, rows)) for column in columns]
    return {
        "columns": [
            {"name": printable(column.heading), "kind": column.kind_of(of_column)}
            for column, of_column in zip(columns, cells, strict=True)
        ],
        "rows": [list(map(_cell, row)) for row in zip(*cells, strict=True)],
    }


def _cell(value: object) -> object:
    """Return floats with six significant digits, and lists and mappings as JSON text."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(strict_json(value), default=str)
    return printable(value) if isinstance(value, str) else value


def _as_yaml(tree: Mapping[str, object]) -> str:
    if not tree:
        return ""

    def plain(value: object) -> object:
        return dict(value) if isinstance(value, Mapping) else str(value)

    text = json.dumps(tree, default=plain, ensure_ascii=False)
    # libyaml, where PyYAML has it, is several times as fast, but escapes characters such as emoji
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper) if text.isascii() else yaml.SafeDumper
    return str(yaml.dump(json.loads(text), Dumper=dumper, sort_keys=False, allow_unicode=True, width=100))


def settings_set(settings: Settings) -> Plain:
    """Return the settings, as in a campaign file, without those that have their default."""
    kept = cast(Plain, _without_defaults(settings, shown(settings)))
    given = kept.get("strategy", {})
    if (strategy := STRATEGIES.get(str(given.get("name")))) is not None:
        # its preset replaces some defaults
        defaults = json.loads(json.dumps(asdict(strategy(**with_preset(strategy, {}))), default=str))
        kept["strategy"] = {
            key: each for key, each in given.items() if key == "name" or _known(defaults.get(key)) != _known(each)
        }
    return kept


def _without_defaults(value: object, tree: Any) -> object:
    """Return `tree`, the plain values of `value`, without the fields of sections that have their default."""
    if is_dataclass(value):
        parts = {key_of(field.name): (field, getattr(value, field.name)) for field in fields(value)}
        return {
            key: tree[key] if isinstance(value, Parameter) else _without_defaults(each, tree[key])
            for key, (field, each) in parts.items()
            if key in tree and each is not None and (each != default_of(field) or key in _TAGS)
        }
    if isinstance(value, Mapping):
        return {key: _without_defaults(each, tree[key]) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_defaults(each, plain) for each, plain in zip(value, tree, strict=True)]
    return tree


def _known(value: object) -> object:
    """Return a tree without nulls."""
    return {k: _known(v) for k, v in value.items() if v is not None} if isinstance(value, Mapping) else value


# in JSON: a backslash, or a non-ASCII character except halves of surrogate pairs
_ESCAPES = re.compile(r"\\\\|\\u(?P<code>(?!d[89a-f])[0-9a-f]{4})")
# plotly.js sets styles in its figures and compiles shaders
_POLICY = (
    "default-src 'none'; script-src {script} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def write_report(history: History, path: Path, title: str, plotly: Path | None = None) -> None:
    """Write the report to `path`, readable only by its owner.

    Args:
        history: the campaign.
        path: the report's file, in the run's folder.
        title: its title.
        plotly: a plotly.js file for the report to refer to instead of containing it. It is written
            if it does not exist.

    Raises:
        OSError: if a file cannot be written; an existing report is then unchanged.
    """
    if plotly is not None and not plotly.exists():
        files.write_text(plotly, get_plotlyjs())
    shared = "" if plotly is None else os.path.relpath(plotly.resolve(), path.parent.resolve())
    files.write_text(path, page(title, snapshot(history, title), quote(shared)))


def page(title: str, data: Plain | None, plotly: str, root: str = "") -> str:
    """Return the page.

    Args:
        title: its title.
        data: the snapshot; None: the page polls it.
        plotly: the address of plotly.js; if it is empty, the page contains plotly.js.
        root: the address of a live page's server; empty in a report.
    """
    script = resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = _POLICY.format(
        script=f"'sha256-{digest}'{' ' + repr('self') if plotly else ''}", connect="'self'" if root else "'none'"
    )
    slots = {
        "policy": policy,
        "title": html.escape(printable(title)),
        "root": html.escape(root),
        "style": resource("page.css"),
        "snapshot": "" if data is None else pack(to_json(data)),
        "plotly": "" if plotly else _pack_plotly(),
        "shared": f'<script src="{html.escape(plotly)}"></script>' if plotly else "",
        "script": script,
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: slots[match[1]], resource("page.html"))


def to_json(value: object) -> str:
    """Return JSON in which invisible and direction-changing characters are escaped.

    Raises ValueError for NaN and infinities, which JSON cannot represent.
    """
    return _ESCAPES.sub(_visible, json.dumps(value, allow_nan=False, separators=(",", ":"), default=str))


def _visible(match: re.Match[str]) -> str:
    character = chr(int(match["code"], 16)) if match["code"] else ""
    return match[0] if printable(character) == character else f"\\{match[0]}"


def pack(text: str) -> str:
    """Return `text` gzipped in base64, which is a third of the size and has no special characters
    of HTML."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


@cache
def _pack_plotly() -> str:
    """Return plotly.js, compressed from 4.8 MB to 2 MB."""
    return pack(get_plotlyjs())
