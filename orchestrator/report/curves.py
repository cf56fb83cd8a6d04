"""Learning curves: the intermediate values and further numbers that the objective reports, one line
for each trial."""

import math
from collections import Counter
from collections.abc import Mapping

from orchestrator.history.fold import History
from orchestrator.history.remarks import training_remark
from orchestrator.history.rows import TrialRow
from orchestrator.report.figure import Figure, Spec, axis, axis_range, label, layout, quantiles, round_values
from orchestrator.wording import noun_and_numbers, one_line, plural, printable

_MOST_CURVES = 60
_BEST_CURVES = 10
_MOST_BANDS = 3  # more would cover one another
_MOST_METRICS = 8


def learning_curves(history: History) -> Figure | None:
    """Return the curves of the best and the newest trials, the best one in front; None when no
    trial reported at two steps."""
    rows = [row for row in history.reporting.values() if row.training.reports]
    if not any(len(row.training.reports) > 1 for row in rows):
        return None
    shown = _rows(history, rows)
    best = history.best
    steps = max(step for row in shown for step in row.training.reports)
    lines = [_line(history, row, row.training.reports) for row in sorted(shown, key=lambda row: row is best)]
    caption = "Intermediate values by step; dashed lines are running, dotted ones were stopped early."
    caption += _decisions(history)
    expected = _forecasts(history, shown)
    if expected is not None:
        lines = [*_bands(history, shown), *lines, expected]
        caption += (
            " Bands and bars at the last step: what the model expects of running trials and of the most promising "
            "stopped ones, ± 2 standard deviations."
        )
    if reliability := history.campaign.steps_reliability:
        parts = ", ".join(f"{correlation:.2f} at step {step}" for step, correlation in reliability)
        caption += f" Fitted correlation of a value with the final one: {parts}."
    if len(shown) < len(rows):
        caption += f" {plural(len(shown), 'trial')} of {len(rows):,}: the best and the newest."
    visible = _good_range(history, shown)
    if visible is not None:
        caption += " The axis shows the better values: double-click to see all."
    return Figure(
        name="curves",
        title="Learning curves",
        caption=caption,
        traces=lines,
        layout=layout(
            axis("step", rangemode="tozero", **({"dtick": 1} if steps <= 12 else {})),
            axis("reported value", **({} if visible is None else {"range": list(visible)})),
            height=400,
        ),
    )


def _good_range(history: History, shown: list[TrialRow]) -> tuple[float, float] | None:
    """Return a range from the first quartile of the finite reported values to the best one, so that
    good trials can be told apart; None: all values, which it would not show twice as large."""
    reported = (value for row in shown for value in row.training.reports.values())
    rewards = [history.sign * value for value in reported if math.isfinite(value)]
    if not rewards:
        return None
    low, (quartile, high) = min(rewards), quantiles(rewards, 0.25, 1.0)
    if high - low <= 2 * (high - quartile) or high <= quartile:
        return None
    return axis_range(history.sign * quartile, history.sign * high)


def metric_curves(history: History) -> list[Figure]:
    """Return a picture for each of the first eight further numbers that the drawn trials report."""
    rows = [row for row in history.reporting.values() if row.training.metrics]
    shown = sorted(_rows(history, rows), key=lambda row: row is history.best)
    names = dict.fromkeys(name for row in shown for metrics in row.training.metrics.values() for name in metrics)
    return [_metric_curves(history, shown, name, place) for place, name in enumerate([*names][:_MOST_METRICS])]


def _metric_curves(history: History, rows: list[TrialRow], name: str, place: int) -> Figure:
    values = (
        (row, {step: numbers[name] for step, numbers in row.training.metrics.items() if name in numbers})
        for row in rows
    )
    return Figure(
        name=f"curves-{place}",
        title=f"Reported {one_line(printable(name), 60)}",
        caption="By step, of the trials whose learning curves are drawn. Nothing is learned from it.",
        traces=[_line(history, row, numbers) for row, numbers in values if numbers],
        layout=layout(axis("step", rangemode="tozero"), axis(label(name))),
        is_wide=False,
    )


def _rows(history: History, rows: list[TrialRow]) -> list[TrialRow]:
    valued = [row for row in rows if row.value is not None]
    best = sorted(valued, key=history.worth, reverse=True)[:_BEST_CURVES]
    newest = rows[-(_MOST_CURVES - len(best)) :]
    return list({row.trial: row for row in [*best, *newest]}.values())


def _rows_with_forecast(history: History, shown: list[TrialRow]) -> list[TrialRow]:
    """Return shown rows with a drawn forecast: running trials, then the best stopped ones."""
    forecasts = history.campaign.training.forecasts
    unfinished = [row for row in shown if row.trial in forecasts and row.status in ("running", "stopped", "queued")]
    best_first = sorted(
        unfinished, key=lambda row: (row.status != "running", -history.sign * forecasts[row.trial].mean)
    )
    return best_first[:_MOST_BANDS]


def _bands(history: History, shown: list[TrialRow]) -> list[Spec]:
    """Return from the latest value of these trials to what is expected of them."""
    forecasts, end = history.campaign.training.forecasts, history.campaign.training_end
    bands = []
    for row in _rows_with_forecast(history, shown) if end is not None else []:
        forecast, last = forecasts[row.trial], max(row.training.reports)
        bands.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [last, end, end, last],
                "y": round_values(
                    [row.training.reports[last], forecast.high, forecast.low, row.training.reports[last]], digits=5
                ),
                "name": f"trial {row.trial}, expected",
                "fill": "toself",
                "fillcolor": "--fill",
                "line": {"width": 0, "color": "--accent"},
                "hoverinfo": "skip",
            }
        )
    return bands


def _forecasts(history: History, shown: list[TrialRow]) -> Spec | None:
    """Return expected final values of these trials, with their bands; None where there are none."""
    training, end = history.campaign.training, history.campaign.training_end
    forecasts = [training.forecasts[row.trial] for row in _rows_with_forecast(history, shown)]
    if not forecasts or end is None:
        return None
    bounds = [(min(forecast.low, forecast.high), max(forecast.low, forecast.high)) for forecast in forecasts]
    means = [forecast.mean for forecast in forecasts]
    above = [high - mean for (_, high), mean in zip(bounds, means, strict=True)]
    below = [mean - low for (low, _), mean in zip(bounds, means, strict=True)]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [end] * len(means),
        "y": round_values(means, digits=5),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": round_values(above, digits=5),
            "arrayminus": round_values(below, digits=5),
            "thickness": 1,
            "color": "--point",
        },
        "text": [f"trial {forecast.trial}" for forecast in forecasts],
        "name": "expected",
        "marker": {"color": "--point", "symbol": "diamond"},
        "opacity": 0.7,
        "hovertemplate": "%{text}: <b>%{y}</b> expected<extra></extra>",
    }


def _decisions(history: History) -> str:
    """Return how many trials were stopped (by cause), continued, and which were spared."""
    stopped = [row for row in history.reporting.values() if row.status == "stopped"]
    if not stopped:
        return ""
    causes = Counter(row.training.stop_cause for row in stopped if row.training.stop_cause)
    why = ", ".join(f"{count} × {cause}" for cause, count in causes.most_common())
    parts = [f"{plural(len(stopped), 'trial')} stopped" + (f" ({why})" if why else "")]
    continued = sum(row.training.continuations > 0 for row in history.reporting.values())
    parts += [f"{continued} continued after a stop"] if continued else []
    rule = history.campaign.rules.training
    spared = [row.trial for row in history.reporting.values() if rule is not None and rule.is_witness(row.trial)]
    parts += (
        [f"{noun_and_numbers('trial', spared[:5])} spared as witness{'es' if len(spared) > 1 else ''}"]
        if spared
        else []
    )
    return f" {'; '.join(parts)}."


def _line(history: History, row: TrialRow, values: Mapping[int, float]) -> Spec:
    steps, is_best = sorted(values), row is history.best
    facts = " (best)" if is_best else ""
    facts += "".join(f"<br>{fact}" for fact in [training_remark(history, row)] if fact)
    dash = {"running": "dash", "stopped": "dot"}.get(row.status, "solid")
    return {
        "type": "scatter",
        "mode": "lines" if len(steps) > 1 else "markers",
        "x": steps,
        "y": round_values((values[step] for step in steps), digits=5),
        "name": f"trial {row.trial}",
        "line": {"color": "--accent" if is_best else "--point", "width": 2.5 if is_best else 1, "dash": dash},
        "marker": {"color": "--accent" if is_best else "--point"},
        "opacity": 1.0 if is_best else 0.55,
        "hovertemplate": f"trial {row.trial}, step %{{x}}: <b>%{{y}}</b>{facts}<extra></extra>",
    }
