"""The details of one trial, for the live page and for `bbkb status RUN --trial`."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from bbkb.objectives.parameters import has_prior
from bbkb.orchestrator.campaign.events import PickedTrial
from bbkb.orchestrator.history.columns import RESULT
from bbkb.orchestrator.history.export import strict_json
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.remarks import broken_constraints, training_remark
from bbkb.orchestrator.history.rows import TrialRow
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
    "verification": ", to evaluate one of the best candidates again, because single values are noisy",
    "exploitation": ", to repeat the best candidate, because a new one is hardly expected to be better",
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
        **{column.key: strict_json(column.cell(row)) for column in RESULT},
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
    """Return the status and the known numbers of the result of a trial from `describe_trial`."""
    parts = [described["status"]]
    for column in RESULT:
        if (cell := described[column.key]) is not None:
            parts.append(f"{column.heading} {column.text(cell) if column.text else f'{cell:.6g}'}")
    return ", ".join(parts)


def reason(history: History, row: TrialRow) -> str:
    """Return why the strategy chose this trial's candidate, in one sentence."""
    batch = history.batches[row.batch - 1]
    index = f", number {row.place} of {len(batch.picks)}" if len(batch.picks) > 1 else ""
    chosen = f"Chosen in batch {row.batch}{index}"
    if _mean(row.pick) is None:
        return f"{chosen} ({batch.reason}), without a prediction by the strategy."
    why = _REASONS.get(row.pick.reason, "")
    if not why and _bounds(row.pick) is not None:
        prior = ", including the priors of the space" if has_prior(history.settings.space) else ""
        why = f", because it could still be the best{prior}"
    prediction = _prediction(history, row)
    return f"{chosen}{why}{f': {prediction}' if prediction else ''}."


def _mean(pick: PickedTrial) -> float | None:
    """Return the predicted score; None if the strategy did not predict one."""
    return None if pick.mean is None or not math.isfinite(pick.mean) else pick.mean


def _bounds(pick: PickedTrial) -> tuple[float, float] | None:
    """Return the confidence bounds of the score; None if the strategy has no width."""
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


def _prediction(history: History, row: TrialRow) -> str:
    """Return the predicted value and its interval, in the objective's unit; empty if unknown."""
    mean = _mean(row.pick)
    value_of = _values_by_score(history, row)
    if mean is None or value_of is None:
        return ""
    bounds = _bounds(row.pick)
    if bounds is None:
        return f"a predicted value of about {rounded(value_of(mean), 4)}"
    low, high = sorted(map(value_of, bounds))
    return f"a predicted value of about {rounded(value_of(mean), 4)}, between {rounded(low, 4)} and {rounded(high, 4)}"


def _values_by_score(history: History, row: TrialRow) -> Callable[[float], float] | None:
    """Return the map from scores to values at the time of the choice.

    None if there are several objectives or constraints, or if the model's settings are unknown.
    """
    strategy = history.settings.strategy
    model = strategy.get("model") if isinstance(strategy, Mapping) else None
    values = _learned_values(history, history.batches[row.batch - 1].time)
    if not isinstance(model, Mapping) or not values or not history.goals.is_single:
        return None
    import numpy as np

    from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale  # loads scipy

    rewards = np.array([history.sign * fmean(of_arm) for of_arm in values.values()])
    try:
        scale = Scale(rewards, Outputs(str(model.get("outputs"))))
    except ValueError:  # written by another version
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


def trial_lines(trial: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text about a trial from `describe_trial`, after its result."""
    yield trial["reason"]
    if trial["feasible"] is not None:
        yield trial["broken_constraints"] or "feasible: it satisfies all constraints"
    if trial["training"]:
        yield f"training: {trial['training']}"
    yield from _section("parameters", _pairs(trial["parameters"]))
    yield from _section("metrics", _pairs(trial["metrics"]))
    yield from _section("reports", _report_lines(trial))
    yield from _attempt_lines(trial["attempts"])


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title}:", *lines] if lines else []


def _pairs(values: Mapping[str, object]) -> list[str]:
    return [f"  {name}: {value}" for name, value in values.items()]


def _attempt_lines(attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for attempt in attempts:
        worker = f"on {attempt['worker'] or 'an unknown worker'}, begun {attempt['started']}"
        yield f"attempt {attempt['attempt']}: {attempt['ended']} after {attempt['seconds']} {worker}"
        yield from (f"  {line}" for line in attempt["message"].splitlines())
    if not attempts:
        yield "no attempt has ended yet"


def _report_lines(trial: Mapping[str, Any]) -> list[str]:
    """Return the first and the last reports, and the number of the omitted ones."""
    lines = [_report_line(trial, step, value) for step, value in trial["reports"]]
    hidden = len(lines) - _FIRST_REPORTS - _LAST_REPORTS
    if hidden <= 1:
        return lines
    return [*lines[:_FIRST_REPORTS], f"  … {hidden:,} more", *lines[-_LAST_REPORTS:]]


def _report_line(trial: Mapping[str, Any], step: int, value: object) -> str:
    metrics = trial["report_metrics"].get(step, {})
    further = "".join(f", {name} {number}" for name, number in metrics.items())
    return f"  step {step}: {value}{further}"
