"""Learning curves: the values and metrics that trials report, one line for each trial."""

import math
from collections.abc import Mapping

from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.remarks import training_remark
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.report.figure import (
    Figure,
    Spec,
    axis,
    axis_range,
    label,
    layout,
    quantiles,
    round_values,
    sentences,
)
from bbkb.orchestrator.wording import plural

_MOST_CURVES = 60
_BEST_CURVES = 10
_MOST_BANDS = 3  # more bands would overlap


def learning_curves(history: History) -> Figure | None:
    """Return the curves of the best and the newest trials, with the best one on top.

    None if no trial has reported at two steps.
    """
    rows = [row for row in history.reporting.values() if row.training.reports]
    if not any(len(row.training.reports) > 1 for row in rows):
        return None
    shown = _rows(history, rows)
    best_last = sorted(shown, key=lambda row: row is history.best)
    lines = [_line(history, row, row.training.reports) for row in best_last]
    expected = _forecasts(history, shown)
    if expected is not None:
        lines = [*_bands(history, shown), *lines, expected]
    visible = _good_range(history, shown)
    is_cut = len(shown) < len(rows)
    metric = history.goals.objectives[0].metric
    caption = sentences(
        "Dashed: running. Dotted: stopped early.",
        expected and "Bands: the model's forecasts, ± 2 standard deviations.",
        is_cut and f"{plural(len(shown), 'trial')} of {len(rows):,}: the best and the newest.",
        visible and "Only the better values: double-click to see all.",
    )
    return Figure(
        name="curves",
        title="Learning curves",
        caption=caption,
        traces=lines,
        layout=layout(
            _step_axis(shown),
            axis(
                "reported value" if metric == VALUE else label(metric),
                **({} if visible is None else {"range": list(visible)}),
            ),
            height=360,
        ),
    )


def _step_axis(rows: list[TrialRow]) -> Spec:
    last = max(step for row in rows for step in row.training.reports)
    return axis("step", rangemode="tozero", **({"dtick": 1} if last <= 12 else {}))


def _good_range(history: History, shown: list[TrialRow]) -> tuple[float, float] | None:
    """Return a range from the first quartile of the finite values to the best one.

    It allows a reader to distinguish good trials. None if this would not enlarge them by a factor
    of 2.
    """
    reported = (value for row in shown for value in row.training.reports.values())
    rewards = [history.sign * value for value in reported if math.isfinite(value)]
    if not rewards:
        return None
    quartile, high = quantiles(rewards, 0.25, 1.0)
    if high - min(rewards) <= 2 * (high - quartile) or high <= quartile:
        return None
    return axis_range(history.sign * quartile, history.sign * high)


def _rows(history: History, rows: list[TrialRow]) -> list[TrialRow]:
    valued = [row for row in rows if row.value is not None]
    best = sorted(valued, key=history.worth, reverse=True)[:_BEST_CURVES]
    newest = rows[-(_MOST_CURVES - len(best)) :]
    return list({row.trial: row for row in [*best, *newest]}.values())


def _rows_with_forecast(history: History, shown: list[TrialRow]) -> list[TrialRow]:
    """Return the rows whose forecasts are drawn: running trials, then the best stopped ones."""
    forecasts = history.campaign.trainings.forecasts
    unfinished = ("running", "stopped", "queued")
    rows = [row for row in shown if row.trial in forecasts and row.status in unfinished]
    rows.sort(key=lambda row: (row.status != "running", -history.sign * forecasts[row.trial].mean))
    return rows[:_MOST_BANDS]


def _bands(history: History, shown: list[TrialRow]) -> list[Spec]:
    """Return bands from the latest value of each of these trials to its forecast."""
    end = history.campaign.training_end
    bands = []
    for row in _rows_with_forecast(history, shown) if end is not None else []:
        forecast = history.campaign.trainings.forecasts[row.trial]
        last, value = max(row.training.reports.items())
        bands.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [last, end, end, last],
                "y": round_values([value, forecast.high, forecast.low, value], digits=5),
                "name": f"trial {row.trial}, expected",
                "fill": "toself",
                "fillcolor": "--fill",
                "line": {"width": 0, "color": "--accent"},
                "hoverinfo": "skip",
            }
        )
    return bands


def _forecasts(history: History, shown: list[TrialRow]) -> Spec | None:
    """Return the forecasts of the final values with error bars; None if there are none."""
    end = history.campaign.training_end
    by_trial = history.campaign.trainings.forecasts
    forecasts = [by_trial[row.trial] for row in _rows_with_forecast(history, shown)]
    if not forecasts or end is None:
        return None
    means = [forecast.mean for forecast in forecasts]
    above = [max(forecast.low, forecast.high) - forecast.mean for forecast in forecasts]
    below = [forecast.mean - min(forecast.low, forecast.high) for forecast in forecasts]
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


def _line(history: History, row: TrialRow, values: Mapping[int, float]) -> Spec:
    steps = sorted(values)
    is_best = row is history.best
    remark = training_remark(history, row)
    facts = f"{' (best)' if is_best else ''}{f'<br>{remark}' if remark else ''}"
    color = "--accent" if is_best else "--point"
    dash = {"running": "dash", "stopped": "dot"}.get(row.status, "solid")
    return {
        "type": "scatter",
        "mode": "lines" if len(steps) > 1 else "markers",
        "x": steps,
        "y": round_values((values[step] for step in steps), digits=5),
        "name": f"trial {row.trial}",
        "line": {"color": color, "width": 2.5 if is_best else 1, "dash": dash},
        "marker": {"color": color},
        "opacity": 1.0 if is_best else 0.55,
        "hovertemplate": f"trial {row.trial}, step %{{x}}: <b>%{{y}}</b>{facts}<extra></extra>",
    }
