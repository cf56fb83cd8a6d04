"""The data of the page as JSON values: the overview, the updates of a campaign, its figures and its
trials."""

import heapq
import json
import math
from collections.abc import Mapping
from pathlib import Path

from bbkb.orchestrator.campaign.endings import Phase
from bbkb.orchestrator.history.columns import DETAILS, TRIAL, VALUE, Column, live, present
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.history.export import strict_json
from bbkb.orchestrator.history.facts import as_plain, goal_facts
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.one_trial import Plain, describe_trial
from bbkb.orchestrator.history.remarks import remark
from bbkb.orchestrator.history.rows import AttemptRow, TrialRow
from bbkb.orchestrator.report.comparison import best_courses
from bbkb.orchestrator.report.figure import Figure
from bbkb.orchestrator.report.pictures import figures, internal_figures
from bbkb.orchestrator.report.progress import Course
from bbkb.orchestrator.report.summary import (
    as_yaml,
    best_parameters,
    model_facts,
    recommended_parameters,
    subtitle,
)
from bbkb.orchestrator.serve.feed import Feed
from bbkb.orchestrator.wording import duration, moment, plural, printable, size_text
from bbkb.workers.checkpoints import Checkpoints
from bbkb.workers.output_files import find_output, read_end, written_attempts

MOST_NEW_POINTS = 400  # if there are more new results, the complete sample is sent
_RUNNING = 50
_RECENT = 12
_PAGE = 25
_MESSAGE = 300
_SEARCHED = 1000  # the number of trials that are searched for the names of parameters
_OUTPUTS = 3  # the number of attempts of a trial whose output is shown
_OUTPUT_BYTES = 32 * 1024  # the part shown from the end of each output


def overview(feeds: list[Feed]) -> list[Plain]:
    """Return a line for each campaign, with running ones first."""
    lines = [_line(feed) for feed in feeds]
    return sorted(lines, key=lambda line: (line["state"] != "running", -line["last_time"], line["name"]))


def _line(feed: Feed) -> Plain:
    line: Plain = {"name": feed.source.name, "state": state_of(feed), "problem": feed.problem, "last_time": 0.0}
    seen = feed.overview
    if seen is None:
        return line
    if feed.is_listed and not feed.problem:
        line["state"] = str(seen.state)
    status = seen.status
    return line | {
        "strategy": seen.strategy,
        "direction": status.best.direction,
        "tags": " ".join(seen.tags),
        "began": moment(seen.began),
        "trials": status.trials_text,
        "best": strict_json(status.best.value),
        "failed": status.trials.failed,
        "running": status.trials.in_flight if feed.is_held is not False else 0,
        "last_time": status.last_time,
        "updated": moment(status.last_time),
    }


def state_of(feed: Feed) -> str:
    """Return the state: unreadable, reading, running, stopping, or a `RunState`."""
    if feed.problem:
        return "unreadable"
    if not feed.is_complete or feed.history is None:
        return "reading"
    phase = feed.history.campaign.session.phase
    if feed.is_held is False or (phase is Phase.CLOSED and feed.is_held is None):
        return str(feed.history.state)
    return "stopping" if phase is Phase.STOPPING else "running"


def update(feed: Feed, cursor: int | None, now: float) -> Plain:
    """Return the changes since position `cursor` of the log, or everything if it is None."""
    message: Plain = {
        "name": feed.source.name,
        "state": state_of(feed),
        "problem": feed.problem,
        "position": feed.position,
        "length": feed.length,
        "holder": feed.holding.holder,
    }
    history = feed.history
    if history is None:
        return message
    return {
        **message,
        **_progress(history, now if feed.is_held is not False and not history.is_virtual else None),
        "checkpoints": _checkpoints(feed.checkpoints),
        "failures": [
            {
                "kind": cause.kind,
                "message": cause.message,
                "count": cause.attempts,
                "summary": cause.summary[:_MESSAGE],
                "trials": [cause.trial],
            }
            for cause in reversed(history.campaign.notes.failures)
        ],
        "results": _results(feed, history, cursor),
    }


def _progress(history: History, now: float | None) -> Plain:
    """Return the status, including running trials if the campaign is running at `now`."""
    status = history.status(now)
    left = status.budget.left_seconds
    objectives = history.goals.objectives
    return {
        "subtitle": subtitle(history),
        "note": history.settings.note,
        "maximize": history.is_maximized,
        "objective": objectives[0].metric if len(objectives) > 1 else "",
        "goals": [
            {"name": fact.label, "value": fact.value, "remark": fact.remark} for fact in goal_facts(status.goals)
        ],
        "status": strict_json({**as_plain(status), "running": [], "recent": []}),
        "left": "" if now is None or left is None else duration(left),
        "elapsed": duration(status.budget.elapsed_seconds),
        "idle": "",
        "running": [] if now is None else _running(history, now),
        "recent": [_end_row(history, attempt) for attempt in reversed(history.attempts[-_RECENT:])],
        "best": best_parameters(history),
        "recommended": recommended_parameters(history),
    }


def _checkpoints(count: Checkpoints) -> list[str]:
    """Return the size of all checkpoints and the number of trials that have one, as texts."""
    return [size_text(count.size), f"in the folders of {plural(count.trials, 'trial')}"] * bool(count.trials)


def _running(history: History, now: float) -> list[Plain]:
    longest = heapq.nsmallest(_RUNNING, history.campaign.running.items(), key=lambda item: item[1].since)
    return [
        {
            "trial": trial,
            "attempt": run.attempt,
            "seconds": max(0.0, now - run.since),
            "age": duration(max(0.0, now - run.since)),
            "parameters": _shorten(history.trials[trial].parameters),
            "reported": _last_report(history.trials[trial]),
        }
        for trial, run in longest
    ]


def _last_report(row: TrialRow) -> object:
    step, value = max(row.training.reports.items(), default=(None, None))
    return None if step is None else [step, strict_json(value)]


def _end_row(history: History, attempt: AttemptRow) -> Plain:
    return {
        "trial": attempt.trial,
        "attempt": attempt.attempt,
        "ended": attempt.ended,
        "value": None if attempt.failure else strict_json(attempt.value),
        "message": attempt.message[:_MESSAGE],
        "seconds": duration(max(0.0, attempt.finished - attempt.started)),
        "worker": attempt.worker,
        "parameters": _shorten(history.trials[attempt.trial].parameters),
    }


def _shorten(values: Mapping[str, object]) -> Plain:
    return {name: _short(value) for name, value in values.items()}


def _short(value: object) -> object:
    """Return a rounded number or a shortened text."""
    if isinstance(value, float):
        return strict_json(float(f"{value:.6g}"))
    if isinstance(value, bool | int) or value is None:
        return value
    return str(value)[:80]


def _results(feed: Feed, history: History, cursor: int | None) -> Plain:
    """Return the results since `cursor`, or a sample of all results, with `from` set to 0."""
    known_results = 0 if cursor is None else feed.results_after(cursor)
    new = history.succeeded[known_results:]
    best = history.trace.improvements[-300:]
    course = Course(history)
    whole = {
        "improvements": [[course.position(step), _short(step.item.value)] for step in best],
        "count": len(history.succeeded),
        "axis": course.title,
        "end": course.end,
        "range": course.visible,
        "caption": course.caption,
    }
    if known_results and len(new) <= MOST_NEW_POINTS and not course.counts_steps:
        points = [_point(index, row) for index, row in enumerate(new, start=known_results + 1)]
        return {"from": known_results, "points": points, **whole}
    points = [_point(course.position(point), point.item) for point in course.points]
    if len(points) > 1000:
        points = points[:: math.ceil(len(points) / 1000)]
    return {"from": 0, "points": points, **whole}


def _point(place: int, row: TrialRow) -> list[object]:
    return [place, _short(row.value), row.trial, row.is_feasible is not False]


def pictures(history: History) -> Plain:
    """Return all figures except that of the best values, and the configuration and model facts."""
    return {
        "position": history.position,
        "figures": [_picture(figure, "results") for figure in figures(history) if figure.name != "best"]
        + [_picture(figure, "internals") for figure in internal_figures(history)],
        "model": model_facts(history),
        "configuration": as_yaml(history.settings.shown),
    }


def comparison(runs: list[tuple[str, History]], problems: list[tuple[str, str]]) -> Plain:
    """Return a comparison of campaigns: their results, the differences between their files, the
    courses of their best values, and the errors of campaigns that could not be read."""
    return {
        "problems": problems,
        "names": [name for name, _ in runs],
        "rows": side_by_side([history for _, history in runs]),
        "figures": [_picture(figure, "results") for figure in best_courses(runs)],
    }


def _picture(figure: Figure, section: str) -> Plain:
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "wide": figure.is_wide,
        "min_width": figure.min_width,
        "height": figure.layout["height"],
        "section": section,
        "spec": json.dumps(figure.spec, allow_nan=False, default=str, separators=(",", ":")),
    }


def trials(history: History, order: str, is_descending: bool, text: str, page: int) -> Plain:
    """Return a page of the table of trials.

    Args:
        history: the campaign.
        order: the name of the column by which rows are sorted; any other text: the order of choice.
        is_descending: whether the largest value comes first. Rows without a value in the column
            always come last.
        text: select the rows whose status, parameters or remark contain it; empty: all rows.
        page: the index of the page, from 0.
    """
    columns = live(history, history.trials[:_SEARCHED])
    sorting = next((column for column in columns if column.name == order), columns[0])
    rows = history.trials
    if text:
        rows = [row for row in rows if text.lower() in _text_to_search(history, row)]
    last_row = (page + 1) * _PAGE
    listed = _ordered(rows, sorting, is_descending, last_row)[page * _PAGE : last_row]
    return {
        "total": len(rows),
        "page": page,
        "pages": math.ceil(len(rows) / _PAGE),
        "order": sorting.name,
        "columns": [
            {
                "name": column.name,
                "heading": column.heading,
                "kind": column.kind_of(map(column.cell, listed)),
                "descends": column.name == TRIAL.name or (column is VALUE and history.is_maximized),
            }
            for column in columns
        ],
        "rows": [[_shown(column, row) for column in columns] for row in listed],
    }


def _shown(column: Column, row: TrialRow) -> object:
    """Return a trial's cell as text, or as a short value."""
    cell = column.cell(row)
    return cell if cell is None else (column.text or _short)(cell)


def _ordered(rows: list[TrialRow], column: Column, is_descending: bool, count: int) -> list[TrialRow]:
    """Return at least the first `count` rows, sorted by a column."""
    if column.name == TRIAL.name:
        return rows[::-1] if is_descending else rows
    cells = [(column.cell(row), row) for row in rows]
    known = [(cell, row) for cell, row in cells if cell is not None]
    first = heapq.nlargest if is_descending else heapq.nsmallest
    ordered = first(count, known, key=lambda pair: _sort_key(pair[0]))
    return [row for _, row in ordered] + [row for cell, row in cells if cell is None]


def _text_to_search(history: History, row: TrialRow) -> str:
    named = " ".join(f"{name}={value}" for name, value in row.parameters.items())
    return f"{row.trial} {row.status} {named} {row.error} {remark(history, row)}".lower()


def _sort_key(cell: object) -> tuple[int, float, str]:
    """Return a sort key that puts numbers before texts."""
    return (0, float(cell), "") if isinstance(cell, int | float) else (1, 0.0, str(cell))


def trial(history: History, number: int, folder: Path | None) -> Plain | None:
    """Return the details of one trial, its result as names and values, and the end of the output of
    its newest attempts.

    None if the trial does not exist. `folder` is the folder of the run's trials, or None if it is
    unknown.
    """
    described = describe_trial(history, number)
    if described is None:
        return None
    row = history.trials[number]
    result = {column.heading: _shown(column, row) for column in present(DETAILS, [row])}
    return described | {
        "result": result | described["metrics"],
        "outputs": [] if folder is None else _outputs(folder, number),
    }


def _outputs(folder: Path, number: int) -> list[Plain]:
    """Return the end of the output of each of a trial's newest attempts."""
    try:
        return [
            {"attempt": attempt, "text": printable(text.decode("utf-8", errors="replace"))}
            for attempt in written_attempts(folder, number)[-_OUTPUTS:]
            for text in [read_end(find_output(folder, number, attempt), _OUTPUT_BYTES)]
        ]
    except OSError as error:  # it may be another user's run
        return [{"attempt": 0, "text": f"(unreadable: {error.strerror})"}]
