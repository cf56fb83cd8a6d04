"""The report page: one HTML file without other files, which sends no request.

Everything that came from outside (messages, parameters, names, settings) is escaped: by Jinja2 in the page's text, by
`figure.label` in pictures, by base64 inside scripts (`pack`), and the table is built from text nodes. In addition, a
content security policy allows only the page's own script and no requests. Characters that change the direction of
writing, or have no width, are shown as escapes.
"""

import base64
import gzip
import hashlib
import heapq
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from objectives.parameters import Constant
from orchestrator import files
from orchestrator.bandit.strategy import Record
from orchestrator.campaign.events import ModelRefreshed
from orchestrator.campaign.status import idle_text
from orchestrator.history.export import parameter_names, strict_json
from orchestrator.history.fold import History, TrialRow
from orchestrator.report.curves import learning_curves
from orchestrator.report.figure import Figure, Spec, short
from orchestrator.report.goals import feasible_share, fronts, hypervolume_course
from orchestrator.report.landscape import landscape
from orchestrator.report.parallel import parallel_coordinates
from orchestrator.report.progress import (
    batch_sizes,
    best_so_far,
    cumulative_regret,
    dictionary_sizes,
    simple_regret,
)
from orchestrator.report.surrogate import fit_surrogate
from orchestrator.report.timeline import CampaignClock, gantt, utilization
from orchestrator.wording import duration, moment, plural, printable

_MOST_LISTED = 10_000  # trials in the table: more make the file and the page slow

_STATES = {
    "finished": "finished",
    "failed": "failed",
    "interrupted": "interrupted",
    "killed": "unfinished",  # no closing event: killed, or still running
}


@dataclass(frozen=True)
class Card:
    """A number of the summary: name, value and remark."""

    name: str
    value: str
    remark: str = ""


def write_report(history: History, path: Path) -> None:
    """Write the report to `path`, titled with the campaign's name, readable by its owner only.

    Raises OSError when it cannot be written; a report that was there stays as it was.
    """
    files.write_text(path, render(history, history.created.name))


def render(history: History, title: str) -> str:
    """The whole page as HTML. The same history gives the same page."""
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
        state=state(history),
        cards=summary_cards(history),
        best=_best_parameters(history),
        recommended=recommended_parameters(history),
        figures=figures(history),
        internals=internal_figures(history),
        model=model_facts(history),
        table=trial_table(history),
        unlisted=len(history.trials) - len(listed_rows(history)),
        notes=_note_rows(history),
        sessions=_session_rows(history),
        configuration=as_yaml(history.settings.shown),
        style=resource("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        plotly=_packed_plotly(),
    )
    return printable(page)


def resource(name: str) -> str:
    """A text file of the report's folder."""
    return resources.files("orchestrator.report").joinpath(name).read_text(encoding="utf-8")


def pack(value: object) -> str:
    """`value` as strict JSON, gzipped, in base64: a third of the size, and without characters that have a meaning in
    HTML.

    Raises ValueError on NaN and infinities, which JSON does not have.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=str)
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


@cache
def _packed_plotly() -> str:
    """plotly.js for the page: 2 MB instead of 4.8."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=6, mtime=0)).decode()


def figures(history: History) -> list[Figure]:
    """The pictures of the results that have contents for this campaign, in the page's order."""
    first = (best_so_far, hypervolume_course, feasible_share, simple_regret, cumulative_regret, learning_curves)
    last = (parallel_coordinates, gantt, utilization)
    model = landscape(fit_surrogate(history), history.is_maximized)
    return [*fronts(history), *_draw(first, history), *model, *_draw(last, history)]


def internal_figures(history: History) -> list[Figure]:
    """The pictures of the algorithm itself: batches or refits, and its dictionary."""
    return _draw((batch_sizes, dictionary_sizes), history)


def _draw(makers: Iterable[Callable[[History], Figure | None]], history: History) -> list[Figure]:
    return [figure for figure in (make(history) for make in makers) if figure is not None]


def state(history: History) -> str:
    """The state of the campaign, in one or two words."""
    return _STATES[history.sessions[-1].outcome] if history.sessions else "not started"


def summary_cards(history: History) -> list[Card]:
    """The numbers at the head of the page."""
    best, batches, now = history.best_known, history.batches, history.status()
    retried = sum(1 for attempt in history.attempts if attempt.failure) - now.failed
    open_trials = now.chosen - now.done
    mean_size = f"mean size {now.chosen / len(batches):.3g}" if batches else ""
    idle = idle_text(now.idle_seconds)
    refits = len(history.refreshes)
    per_refit = f"{now.done / refits:.3g} results each" if refits else ""
    first = history.goals.objectives[0]
    direction = str(first) if len(history.goals.objectives) > 1 else str(first).rpartition(" ")[2]
    origin = f"{direction}, {best.origin}" if best is not None and best.trial is None else direction
    return [
        Card("Best value", "none" if best is None else str(short(best.value)), origin),
        *goal_cards(history),
        Card(
            "Evaluations done",
            f"{now.succeeded:,}",
            ", ".join(
                [f"budget {now.evaluations:,}"]
                + [f"{open_trials:,} open"] * (open_trials > 0)
                + [f"{now.stopped:,} stopped early"] * (now.stopped > 0)
            ),
        ),
        Card("Failed", f"{now.failed:,}", f"{retried:,} more attempts failed and ran again" if retried > 0 else ""),
        Card("Refits", f"{refits:,}", per_refit)
        if history.is_asynchronous
        else Card("Batches", f"{len(batches):,}", mean_size),
        Card(
            "Elapsed",
            duration(now.elapsed_seconds),
            f"{plural(len(history.sessions), 'session')}, at least {duration(now.least_seconds)} of work",
        ),
        *existing_cards(history),
        Card("Utilisation", f"{100 * now.utilization:.0f} %", idle and f"idle: {idle}"),
    ]


def model_facts(history: History) -> list[tuple[str, str]]:
    """The record of the fitted model in words; empty for strategies that fit none."""
    record = next((found for one in reversed(history.refreshes) if (found := _fit_of(one))), None)
    if record is None:
        return []
    names = [name for name, kind in history.settings.space.items() if not isinstance(kind, Constant)]
    scales = [float(scale) for scale in record["lengthscales"]]
    labels = names if len(names) == len(scales) else [f"parameter {number}" for number in range(1, len(scales) + 1)]
    by_relevance = sorted(zip(labels, scales, strict=True), key=lambda pair: pair[1])
    relevance = ", ".join(f"{name} {scale:.3g}" for name, scale in by_relevance)
    facts = [("Fitted lengthscales, the shortest first: the most relevant", relevance)]
    if "noise" in record:
        facts.append(("Fitted noise, as a share of the variance of the scores", f"{float(record['noise']):.3g}"))
    if record.get("predicted"):
        share = record["inside"] / record["predicted"]
        facts.append(
            ("Results inside mean ± 2 deviations before the model knew them", f"{share:.0%} of {record['predicted']:,}")
        )
    return facts


def _fit_of(refresh: ModelRefreshed) -> Record | None:
    """The fitted model in the record of a refresh."""
    found: Record | None = refresh.record.get("model")
    return found


def goal_cards(history: History) -> list[Card]:
    """The front of several objectives, and how many results satisfy the constraints."""
    now = history.status().goals
    if now is None:
        return []
    volume = "none yet" if now.hypervolume is None else f"{now.hypervolume:.6g}"
    cards = [Card("Front", plural(now.front, "result"), f"hypervolume {volume}")] * (len(now.objectives) > 1)
    share = "none yet" if now.feasible is None else f"{now.feasible:.0%}"
    return cards + [Card("Feasible", share, ", ".join(now.constraints))] * bool(now.constraints)


def existing_cards(history: History) -> list[Card]:
    """A card for existing data, which are in no picture."""
    existing = history.existing
    if existing is None:
        return []
    left_out = f", {existing.unmatched:,} more match no candidate" if existing.unmatched else ""
    return [Card("Existing data", f"{len(existing.arms):,}", f"results of {existing.source}{left_out}")]


def subtitle(history: History) -> str:
    """The objective, the strategy and the number of candidates."""
    settings = history.settings
    parts = [
        settings.objective and f"objective {settings.objective}",
        settings.strategy and f"strategy {settings.strategy}",
        f"{history.created.arms + history.appended:,} candidates",
        f"seed {history.created.seed}",
        history.tags and f"tags {' '.join(history.tags)}",
    ]
    return " · ".join(part for part in parts if part)


def _best_parameters(history: History) -> list[tuple[str, str]]:
    best, own = history.best_known, history.best
    if best is None:
        return []
    if best.trial is None or own is None:
        where = [("from", best.origin), ("candidate", str(best.arm))]
    else:
        where = [("trial", str(own.trial)), ("candidate", str(own.arm)), ("batch", str(own.batch))]
    return [(name, str(short(value))) for name, value in best.parameters.items()] + where


def recommended_parameters(history: History) -> list[tuple[str, str]]:
    """The recommended configuration when the best value may be due to noise; empty when it is that of the best
    value."""
    found = history.campaign.recommended
    if found is None:
        return []
    named = [(name, str(short(value))) for name, value in found.parameters.items()]
    return [*named, ("mean value", str(short(found.value))), ("evaluations", str(found.evaluations))]


def _session_rows(history: History) -> list[dict[str, str]]:
    return [
        {
            "epoch": str(session.epoch),
            "executor": session.executor,
            "slots": str(session.slots),
            "started": moment(session.started),
            "length": duration(session.seconds),
            "ended": _STATES[session.outcome],
            "reason": session.reason or "no closing record: killed, or still running",
        }
        for session in history.sessions
    ]


def _note_rows(history: History) -> list[dict[str, str]]:
    """The notes: the file's note first, then the others in the order written."""
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
    """The table of trials for the page's script: `columns` with a name and a kind, `rows` as lists, strict JSON."""
    clock = CampaignClock.of(history)
    rows = listed_rows(history)
    names, metrics = parameter_names(rows), history.goals.further_metrics
    before = [("trial", "number"), ("status", "status"), ("value", "number"), *((name, "number") for name in metrics)]
    after = ["batch", "attempts", "started (s)", "seconds"]
    columns = [
        *({"name": printable(name), "kind": kind} for name, kind in before),
        *({"name": printable(name), "kind": "number" if _is_numeric(rows, name) else "text"} for name in names),
        *({"name": name, "kind": "number"} for name in after),
        {"name": "worker", "kind": "text"},
        {"name": "error", "kind": "message"},
    ]
    times = clock([math.nan if row.started is None else row.started for row in rows]).round(3).tolist()
    return {
        "columns": columns,
        "rows": [_table_row(row, names, metrics, time) for row, time in zip(rows, times, strict=True)],
    }


def listed_rows(history: History) -> list[TrialRow]:
    """The trials of the table: all while they are few, else the best results and the newest trials."""
    if len(history.trials) <= _MOST_LISTED:
        return history.trials
    sign = 1.0 if history.is_maximized else -1.0
    best = heapq.nlargest(_MOST_LISTED // 2, history.succeeded, key=lambda row: sign * (row.value or 0.0))
    newest = history.trials[-_MOST_LISTED // 2 :]
    return sorted({row.trial: row for row in [*best, *newest]}.values(), key=lambda row: row.trial)


def _is_numeric(rows: list[TrialRow], name: str) -> bool:
    values = (row.parameters.get(name) for row in rows)
    return all(value is None or isinstance(value, int | float) for value in values)


def _table_row(row: TrialRow, names: list[str], metrics: Sequence[str], started: float) -> list[object]:
    """`started` in seconds in session, NaN where it has not."""
    parameters = [row.parameters.get(name) for name in names]
    found = [row.metrics.get(name) for name in metrics]
    cells = [row.trial, row.status, row.value, *found, *parameters, row.batch, row.attempts, started, row.seconds]
    return [_cell(value) for value in [*cells, row.worker, row.error]]


def _cell(value: object) -> object:
    """Numbers to six significant digits, lists and mappings as JSON text."""
    if isinstance(value, float):
        return strict_json(float(f"{value:.6g}"))
    if isinstance(value, Mapping | list | tuple | bool):
        return json.dumps(strict_json(value), default=str)
    return printable(value) if isinstance(value, str) else value


def as_yaml(settings: Mapping[str, object]) -> str:
    """The resolved campaign file, its keys in their order."""
    plain = json.loads(
        json.dumps(settings, default=lambda value: dict(value) if isinstance(value, Mapping) else str(value))
    )
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
