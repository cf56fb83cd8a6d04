"""The details of one trial, for the live page and for `bbkb status RUN --trial`."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from objectives.parameters import has_prior
from orchestrator.campaign.events import PickedTrial
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
    index = f", number {row.place} of {len(batch.picks)}" if len(batch.picks) > 1 else ""
    chosen = f"Chosen in batch {row.batch}{index}"
    mean = row.pick.mean
    if mean is None or not math.isfinite(mean):
        return f"{chosen} ({batch.reason}), without a prediction by the strategy."
    best = _upper_bound(row.pick)
    prediction = _prediction(history, row, mean, best)
    if row.pick.reason == "coverage":
        return (
            f"{chosen}, because a level of one of its choices lacked evaluations, as the most "
            f"promising candidate of that level: {prediction}."
        )
    if row.pick.reason == "verification":
        return f"{chosen}, to evaluate one of the best candidates again, because single values are noisy: {prediction}."
    if row.pick.reason == "exhausted":
        return f"{chosen}, to evaluate it again, because all candidates were evaluated: {prediction}."
    if best is None:
        return f"{chosen}, with this prediction by the model: {prediction}."
    prior = ", including the priors of the space" if has_prior(history.settings.space) else ""
    return f"{chosen}, because it could still be the best{prior}: {prediction}."


def _upper_bound(pick: PickedTrial) -> float | None:
    """Return the upper confidence bound of the score; None if the strategy has no width."""
    if pick.mean is None or pick.width is None or pick.variance is None:
        return None
    bound = pick.mean + pick.width * math.sqrt(max(0.0, pick.variance))
    return bound if math.isfinite(bound) else None


def _prediction(history: History, row: TrialRow, mean: float, best: float | None) -> str:
    """Return the predicted value in the objective's unit, with the scores in brackets."""
    value_of = _values_by_score(history, row)
    if value_of is None:
        at_best = "" if best is None else f", at best {best:.4g}"
        return f"a predicted score of {mean:.4g}{at_best}; {_SCORES}"
    if best is None:
        return f"a predicted value of about {value_of(mean):.4g} (score {mean:.4g})"
    return (
        f"a predicted value of about {value_of(mean):.4g}, at best about {value_of(best):.4g} "
        f"(scores {mean:.4g} and {best:.4g})"
    )


def _values_by_score(history: History, row: TrialRow) -> Callable[[float], float] | None:
    """Return the map from scores to values at the time of the choice.

    None if there are several objectives or constraints, or if the model's settings are unknown.
    """
    strategy = history.settings.plain.get("strategy")
    model = strategy.get("model") if isinstance(strategy, Mapping) else None
    values = _learned_values(history, history.batches[row.batch - 1].time)
    if not isinstance(model, Mapping) or not values or not history.goals.is_single:
        return None
    import numpy as np

    from orchestrator.bandit.model.outputs import Outputs, Scale  # loads scipy

    rewards = np.array([history.sign * fmean(of_arm) for of_arm in values.values()])
    try:
        scale = Scale(rewards, Outputs(str(model.get("outputs"))))
    except ValueError:  # of another version
        return None
    return lambda score: history.sign * float(scale.rewards(np.array([score]))[0])


def _learned_values(history: History, time: float) -> dict[int, list[float]]:
    """Return arm → values of the results that the strategy had learned at `time`."""
    values: dict[int, list[float]] = defaultdict(list)
    if history.existing is not None:
        for arm, value in zip(history.existing.arms, history.existing.values, strict=True):
            values[arm].append(value)
    for refresh in history.refreshes:
        for learned in (history.trials[trial] for trial in refresh.trials if refresh.time <= time):
            if learned.value is not None and learned.status == "succeeded":
                values[learned.arm].append(learned.value)
    return values
