"""The details of one trial, for the live page and for `bbkb status RUN --trial`."""

import math
from typing import Any

from objectives.parameters import has_prior
from orchestrator.history.export import strict_json
from orchestrator.history.fold import History
from orchestrator.history.remarks import broken_constraints, training_remark
from orchestrator.history.rows import TrialRow
from orchestrator.wording import duration, iso

Plain = dict[str, Any]  # a value for JSON

MOST_REPORTS = 1000
_SCORES = "a score is not in the unit of the objective, and a high one is good"


def describe_trial(history: History, number: int) -> Plain | None:
    """Return a trial's parameters, result, reports, attempts and the reason for its choice.

    All values can be written as JSON. None if the trial does not exist.
    """
    if not 0 <= number < len(history.trials):
        return None
    row = history.trials[number]
    attempts = [attempt for attempt in history.attempts if attempt.trial == number]
    training = row.training
    reports = sorted(training.reports.items())[-MOST_REPORTS:]
    return {
        "trial": number,
        "candidate": row.arm,
        "status": row.status,
        "value": strict_json(row.value),
        "reason": reason(history, row),
        "training": training_remark(history, row),
        "feasible": row.is_feasible,
        "broken_constraints": broken_constraints(history, row),
        "parameters": strict_json(dict(row.parameters)),
        "metrics": strict_json(dict(row.metrics)),
        "reports": [[step, strict_json(value)] for step, value in reports],
        "report_metrics": {
            step: strict_json(metrics) for step, _ in reports if (metrics := training.metrics.get(step)) is not None
        },
        "attempts": [
            {
                "attempt": attempt.attempt,
                "ended": attempt.ended,
                "message": attempt.message,
                "started": _when(history, attempt.started),
                "seconds": duration(max(0.0, attempt.finished - attempt.started)),
                "worker": attempt.worker,
            }
            for attempt in attempts
        ],
        "notes": [note.text for note in history.notes if note.trial == number],
    }


def _when(history: History, at: float) -> str:
    return f"{at:.2f} s (virtual)" if history.is_virtual else iso(at)


def reason(history: History, row: TrialRow) -> str:
    """Return why the strategy chose this trial's candidate, in one sentence."""
    batch = history.batches[row.batch - 1]
    together = f", number {row.place} of {len(batch.picks)}" if len(batch.picks) > 1 else ""
    where = f"in batch {row.batch}{together}"
    mean = row.pick.mean
    width = row.pick.width
    variance = row.pick.variance
    if mean is None or not math.isfinite(mean):
        return f"Chosen {where} ({batch.reason}), without a prediction by the strategy."
    if row.pick.reason == "coverage":
        return (
            f"Chosen {where}, because a level of one of its choices lacked evaluations, as the most promising "
            f"candidate of that level: a predicted mean score of {mean:.4g}; {_SCORES}."
        )
    if row.pick.reason == "verification":
        return (
            f"Chosen {where}, to evaluate one of the best candidates again, because single values are noisy: a "
            f"predicted mean score of {mean:.4g}; {_SCORES}."
        )
    if width is None or variance is None or not math.isfinite(width + variance):
        return f"Chosen {where}: the model predicted a mean score of {mean:.4g} for it; {_SCORES}."
    prior = ", with what the priors of the space add" if has_prior(history.settings.space) else ""
    return (
        f"Chosen {where}, because it could still be the best{prior}: a predicted mean score of {mean:.4g}, plus "
        f"{width * math.sqrt(max(0.0, variance)):.4g} for what the model does not know there; {_SCORES}."
    )
