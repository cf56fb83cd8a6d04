"""The data of the page, as plain values for JSON: an overview, a campaign's update, its pictures, one trial."""

import heapq
import json
import math
from dataclasses import asdict
from typing import Any

from orchestrator.campaign.attempts import Best
from orchestrator.campaign.status import as_plain, idle_text
from orchestrator.history.export import strict_json
from orchestrator.history.fold import AttemptRow, History, TrialRow
from orchestrator.report.figure import Figure
from orchestrator.report.pictures import figures, internal_figures
from orchestrator.report.summary import as_yaml, goal_cards, model_facts, recommended_parameters, subtitle
from orchestrator.serve.feed import Feed
from orchestrator.wording import duration, iso, moment

Plain = dict[str, Any]

MOST_NEW_POINTS = 400  # when there are more new results, the whole thinned trace is sent
_RUNNING, _RECENT, _PAGE = 50, 12, 25
_MESSAGE = 300
_SCORES = "a score is not in the unit of the objective, and a high one is good"


def overview(feeds: list[Feed]) -> list[Plain]:
    """One line for each campaign, running ones first."""
    lines = [_line(feed) for feed in feeds]
    return sorted(lines, key=lambda line: (line["state"] != "running", -line["last_time"], line["name"]))


def _line(feed: Feed) -> Plain:
    line: Plain = {"name": feed.source.name, "state": state_of(feed), "problem": feed.problem, "last_time": 0.0}
    history = feed.history
    if history is None:
        return line
    status = history.status()
    return line | {
        "done": status.done,
        "evaluations": status.evaluations,
        "best": strict_json(status.best_value),
        "failed": status.failed,
        "running": status.in_flight if feed.is_held is not False else 0,
        "last_time": status.last_time,
        "updated": moment(status.last_time),
    }


def state_of(feed: Feed) -> str:
    """Name the state of a campaign: unreadable, reading, running, stopping, or that of its history (`RunState`)."""
    if feed.problem:
        return "unreadable"
    if not feed.is_complete or feed.history is None:
        return "reading"
    campaign = feed.history.campaign
    if feed.is_held is False or (campaign.phase == "closed" and feed.is_held is None):
        return str(feed.history.state)
    return "stopping" if campaign.phase == "stopping" else "running"


def update(feed: Feed, cursor: int | None, now: float) -> Plain:
    """The changes since the log's position `cursor`; everything when it is None."""
    history = feed.history
    message: Plain = {
        "name": feed.source.name,
        "state": state_of(feed),
        "problem": feed.problem,
        "position": feed.position,
        "length": feed.length,
        "holder": feed.holding.holder,
    }
    if history is None:
        return message
    is_live = feed.is_held is not False and not history.is_virtual
    status = history.status(now if is_live else None)
    message |= {
        "subtitle": subtitle(history),
        "maximize": history.is_maximized,
        "objective": history.goals.objectives[0].metric if len(history.goals.objectives) > 1 else "",
        "goals": [asdict(card) for card in goal_cards(history)],
        "status": strict_json({**as_plain(status), "running": [], "recent": []}),
        "left": "" if status.left_seconds is None or not is_live else duration(status.left_seconds),
        "elapsed": duration(status.elapsed_seconds),
        "idle": idle_text(status.idle_seconds),
        "running": _running(history, now if is_live else status.last_time) if is_live else [],
        "recent": [_end_row(history, attempt) for attempt in reversed(history.attempts[-_RECENT:])],
        "failures": [_end_row(history, attempt) for attempt in reversed(feed.failures)],
        "results": _results(feed, history, cursor),
        "best": None if history.best_known is None else _plain_parameters(history.best_known),
        "recommended": recommended_parameters(history),
    }
    return message


def _running(history: History, now: float) -> list[Plain]:
    longest = heapq.nsmallest(_RUNNING, history.campaign.running.items(), key=lambda item: item[1].since)
    return [
        {
            "trial": trial,
            "attempt": run.attempt,
            "seconds": max(0.0, now - run.since),
            "age": duration(max(0.0, now - run.since)),
            "parameters": _plain_parameters(history.trials[trial]),
            "reported": _last_report(history.trials[trial]),
        }
        for trial, run in longest
    ]


def _last_report(row: TrialRow) -> object:
    if not row.reports:
        return None
    step = max(row.reports)
    return [step, strict_json(row.reports[step])]


def _end_row(history: History, attempt: AttemptRow) -> Plain:
    row = history.trials[attempt.trial]
    is_result = not attempt.failure
    return {
        "trial": attempt.trial,
        "attempt": attempt.attempt,
        "ended": "stopped" if row.status == "stopped" else attempt.failure or "succeeded",
        "value": strict_json(row.value) if is_result else None,
        "message": attempt.message[:_MESSAGE],
        "seconds": duration(max(0.0, attempt.finished - attempt.started)),
        "worker": attempt.worker,
        "parameters": _plain_parameters(row),
    }


def _plain_parameters(row: TrialRow | Best) -> Plain:
    """Parameters in short: numbers to six digits, anything long cut."""
    return {name: _short(value) for name, value in row.parameters.items()}


def _short(value: object) -> object:
    if isinstance(value, float):
        return strict_json(float(f"{value:.6g}"))
    if isinstance(value, bool | int) or value is None:
        return value
    return str(value)[:80]


def _results(feed: Feed, history: History, cursor: int | None) -> Plain:
    """New results since `cursor`, or the thinned trace of all: the page replaces what it has when `from` is 0."""
    known = 0 if cursor is None else feed.results_after(cursor)
    new = history.succeeded[known:] if len(history.succeeded) - known <= MOST_NEW_POINTS else None
    improvements = [[point.place, _number(point.item.value)] for point in history.trace.improvements[-300:]]
    if known and new is not None:
        points = [[known + place, _number(row.value), row.trial] for place, row in enumerate(new, start=1)]
        return {"from": known, "points": points, "improvements": improvements, "count": len(history.succeeded)}
    points = [[point.place, _number(point.item.value), point.item.trial] for point in history.trace.points()]
    if len(points) > 1000:
        points = points[:: math.ceil(len(points) / 1000)]
    return {"from": 0, "points": points, "improvements": improvements, "count": len(history.succeeded)}


def _number(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def pictures(history: History) -> Plain:
    """Every picture except the best values, which updates contain; the configuration; facts about the fitted model."""
    return {
        "position": history.position,
        "figures": [_picture(figure, "results") for figure in figures(history) if figure.name != "best"]
        + [_picture(figure, "internals") for figure in internal_figures(history)],
        "model": model_facts(history),
        "configuration": as_yaml(history.settings.shown),
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


def trials(history: History, order: str, page: int) -> Plain:
    """A page of the table of trials: the `newest` first, or the `best`."""
    wanted = (page + 1) * _PAGE
    if order == "best":
        sign = 1.0 if history.is_maximized else -1.0
        rows = heapq.nlargest(wanted, history.succeeded, key=lambda row: sign * (row.value or 0.0))[page * _PAGE :]
        total = len(history.succeeded)
    else:
        total = len(history.trials)
        rows = history.trials[max(0, total - wanted) : max(0, total - page * _PAGE)][::-1]
    return {"total": total, "page": page, "pages": math.ceil(total / _PAGE), "rows": [_table_row(row) for row in rows]}


def _table_row(row: TrialRow) -> Plain:
    return {
        "trial": row.trial,
        "status": row.status,
        "value": strict_json(_number(row.value)),
        "seconds": "" if row.seconds is None else duration(max(0.0, row.seconds)),
        "parameters": _plain_parameters(row),
        "error": row.error[:_MESSAGE],
    }


def trial(history: History, number: int) -> Plain | None:
    """Everything about one trial; None when there is no such trial."""
    if not 0 <= number < len(history.trials):
        return None
    row = history.trials[number]
    attempts = [attempt for attempt in history.attempts if attempt.trial == number]
    return {
        "trial": number,
        "candidate": row.arm,
        "status": row.status,
        "value": strict_json(row.value),
        "reason": reason(history, row),
        "parameters": strict_json(dict(row.parameters)),
        "metrics": strict_json(dict(row.metrics)),
        "reports": [[step, strict_json(value)] for step, value in sorted(row.reports.items())][-1000:],
        "attempts": [
            {
                "attempt": attempt.attempt,
                "ended": attempt.failure or ("stopped early" if row.status == "stopped" else "succeeded"),
                "message": attempt.message,
                "started": _when(history, attempt.started),
                "seconds": duration(max(0.0, attempt.finished - attempt.started)),
                "worker": attempt.worker,
            }
            for attempt in attempts
        ],
    }


def _when(history: History, at: float) -> str:
    return f"{at:.2f} s (virtual)" if history.is_virtual else iso(at)


def reason(history: History, row: TrialRow) -> str:
    """Why the strategy chose this trial's candidate, in one sentence."""
    batch = history.batches[row.batch - 1]
    where = f"number {row.place} of the {len(batch.picks)} chosen together at step {row.batch}"
    mean, width, variance = row.pick.mean, row.pick.width, row.pick.variance
    if mean is None or not math.isfinite(mean):
        return f"Chosen as {where} ({batch.reason}), without a prediction: no result was used for this choice."
    if width is None or variance is None or not math.isfinite(width + variance):
        return f"Chosen as {where}: the model predicted a mean score of {mean:.4g} for it; {_SCORES}."
    return (
        f"Chosen as {where}, for the highest upper bound that was left: a predicted mean score of {mean:.4g}, "
        f"a variance of {variance:.3g} in units of the noise, and a width of {width:.3g} standard deviations; "
        f"{_SCORES}."
    )
