"""The details of one trial, for the live page and for `bbkb status RUN --trial`."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

from bbkb.objectives.parameters import has_prior
from bbkb.orchestrator.campaign.events import PickedTrial
from bbkb.orchestrator.history.fold import History, TrialRow
from bbkb.orchestrator.history.tables import broken_constraints, strict_json, training_remark
from bbkb.orchestrator.wording import duration, iso, rounded

Plain = dict[str, Any]  # a JSON value

MOST_REPORTS = 1000
_FIRST_REPORTS = 5  # in the lines
_LAST_REPORTS = 20
_SCORES = "a score is not in the unit of the objective, and a high one is good"
_REASONS = {  # by the reason of a pick; picks without a reason have the largest upper bounds
    "spread": ", to cover the space, because no result shows yet where values are better",
    "coverage": ", because a level of one of its choices lacked evaluations, as the most promising "
    "or the most uncertain candidate of that level",
    "verification": ", to evaluate one of the best candidates again, because single values are noisy, "
    "or to find out whether they are",
    "exploitation": ", to repeat the best candidate, because a new one is hardly expected to be better, "
    "or the best value has not risen for long",
    "exhausted": ", to evaluate it again, because all candidates were evaluated",
}


def describe_trial(history: History, number: int) -> Plain | None:
    """Return a trial's parameters, result, reports, attempts, and the reason for its choice.

    All values can be written as JSON. Return None if the trial does not exist.
    """
    if not 0 <= number < len(history.trials):
        return None
    row = history.trials[number]
    training = row.training
    reports = sorted(training.reports.items())[-MOST_REPORTS:]
    return {
        "trial": number,
        "candidate": row.arm,
        "status": row.status,
        "value": strict_json(row.value),
        "reason": reason(history, row),
        "scores": scores(row.pick),
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
                "started": f"{attempt.started:.2f} s (virtual)" if history.is_virtual else iso(attempt.started),
                "seconds": duration(max(0.0, attempt.finished - attempt.started)),
                "worker": attempt.worker,
            }
            for attempt in history.attempts
            if attempt.trial == number
        ],
    }


def result_text(described: Mapping[str, Any]) -> str:
    """Return the status and the value, if it is known, of a trial from `describe_trial`."""
    status, value = described["status"], described["value"]
    return f"{status}" if value is None else f"{status}, value {value:.6g}"


def reason(history: History, row: TrialRow) -> str:
    """Return why the strategy chose this trial's candidate, in one sentence."""
    batch = history.batches[row.batch - 1]
    index = f", number {row.place} of {len(batch.picks)}" if len(batch.picks) > 1 else ""
    chosen = f"Chosen in batch {row.batch}{index}"
    mean = _mean(row.pick)
    if mean is None:
        return f"{chosen} ({batch.reason}), without a prediction by the strategy."
    why = _REASONS.get(row.pick.reason, "")
    if not why and _bounds(row.pick) is not None:
        prior = ", including the priors of the space" if has_prior(history.settings.space) else ""
        why = f", because it could still be the best{prior}"
    value_of = _values_by_score(history, row)
    if value_of is None:
        return f"{chosen}{why}."
    text = f"{chosen}{why}: a predicted value of about {rounded(value_of(mean), 4)}"
    if (bounds := _bounds(row.pick)) is None:
        return f"{text}."
    low, high = sorted(map(value_of, bounds))
    return f"{text}, between {rounded(low, 4)} and {rounded(high, 4)}."


def _mean(pick: PickedTrial) -> float | None:
    return None if pick.mean is None or not math.isfinite(pick.mean) else pick.mean


def _bounds(pick: PickedTrial) -> tuple[float, float] | None:
    if pick.mean is None or pick.width is None or pick.variance is None:
        return None
    half = pick.width * math.sqrt(max(0.0, pick.variance))
    return (pick.mean - half, pick.mean + half) if math.isfinite(pick.mean + half) else None


def scores(pick: PickedTrial) -> str:
    """Return the predicted score and its confidence bounds; empty without a prediction."""
    mean = _mean(pick)
    if mean is None:
        return ""
    bounds = _bounds(pick)
    interval = "" if bounds is None else f", between {bounds[0]:.4g} and {bounds[1]:.4g}"
    return f"The predicted score is {mean:.4g}{interval}; {_SCORES}."


def _values_by_score(history: History, row: TrialRow) -> Callable[[float], float] | None:
    """Return the map from scores to values at the time of the choice.

    None if there are several objectives or constraints, or if the model's settings are unknown.
    """
    strategy = history.settings.strategy
    model = strategy.get("model") if isinstance(strategy, Mapping) else None
    chosen_at = history.batches[row.batch - 1].time
    values: dict[int, list[float]] = defaultdict(list)  # arm → the values that the strategy had learned
    if history.existing is not None:
        for arm, value in zip(history.existing.arms, history.existing.values, strict=True):
            values[arm].append(value)
    for refresh in history.refreshes:
        for learned in (history.trials[trial] for trial in refresh.trials if refresh.time <= chosen_at):
            if learned.value is not None and learned.status == "succeeded":
                values[learned.arm].append(learned.value)
    if not isinstance(model, Mapping) or not values or not history.goals.is_single:
        return None
    import numpy as np

    from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale  # loads scipy

    rewards = np.array([history.sign * fmean(of_arm) for of_arm in values.values()])
    try:
        scale = Scale(rewards, Outputs(str(model.get("outputs"))))
    except ValueError:  # the model of a strategy of the user
        return None
    return lambda score: history.sign * float(scale.rewards(np.array([score]))[0])


def trial_lines(trial: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text about a trial from `describe_trial`, after its result. Of many reports,
    the first and the last."""
    yield trial["reason"]
    if trial["feasible"] is not None:
        yield trial["broken_constraints"] or "feasible: it satisfies all constraints"
    if trial["training"]:
        yield f"training: {trial['training']}"
    reports = []
    for step, value in trial["reports"]:
        metrics = trial["report_metrics"].get(step, {})
        reports.append(f"step {step}: {value}" + "".join(f", {name} {number}" for name, number in metrics.items()))
    hidden = len(reports) - _FIRST_REPORTS - _LAST_REPORTS
    if hidden > 1:
        reports[_FIRST_REPORTS:-_LAST_REPORTS] = [f"… {hidden:,} more"]
    for title, lines in (
        ("parameters", [f"{name}: {value}" for name, value in trial["parameters"].items()]),
        ("metrics", [f"{name}: {value}" for name, value in trial["metrics"].items()]),
        ("reports", reports),
    ):
        if lines:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)
    for attempt in trial["attempts"]:
        worker = f"on {attempt['worker'] or 'an unknown worker'}, begun {attempt['started']}"
        yield f"attempt {attempt['attempt']}: {attempt['ended']} after {attempt['seconds']} {worker}"
        yield from (f"  {line}" for line in attempt["message"].splitlines())
    if not trial["attempts"]:
        yield "no attempt has ended yet"
