"""Figures of values over time: the best so far, of one run or of several, the front of several
objectives, and learning curves."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.history.comparing import without_seed
from bbkb.orchestrator.history.fold import History, Point, TrialRow
from bbkb.orchestrator.history.tables import training_remark
from bbkb.orchestrator.report.figure import (
    MANY_POINTS,
    Figure,
    Spec,
    axis,
    axis_range,
    counting_axis,
    label,
    layout,
    parameters_label,
    quantiles,
    round_values,
    scatter,
    visible_range,
)
from bbkb.orchestrator.wording import joined, plural

_INFEASIBLE: Spec = {"color": "--muted", "size": 5, "symbol": "x"}  # marker of an infeasible result
_FEW_POINTS = 300
_MOST_PAIRS = 3  # of objectives
_MOST_CURVES = 60
_BEST_CURVES = 10
_MOST_BANDS = 3  # more bands would overlap
_FINISHED = "evaluations, in the order they finished"


def best_so_far(history: History) -> Figure | None:
    """Return the values in the order of arrival and the best so far; many are thinned out.

    The horizontal axis counts results, or the steps of all trials if they are the budget.
    """
    trace = history.trace
    points = list(trace.points())
    if not points:
        return None
    counts_steps = history.settings.budget.steps is not None and trace.steps > 0
    end = trace.steps if counts_steps else trace.count

    def position(point: Point[TrialRow]) -> int:
        return point.steps if counts_steps else point.place

    rows = [point.item for point in points]
    values = np.array([row.value for row in rows], dtype=float)
    visible = visible_range(
        values, np.array([row.is_feasible is not False for row in rows]), is_maximized=history.is_maximized
    )
    low, high = visible or (-np.inf, np.inf)
    hidden = sum(not low <= (row.value or 0.0) <= high for row in rows)
    feasible = [point for point in points if point.item.is_feasible is not False]
    infeasible = [point for point in points if point.item.is_feasible is False]
    few = len(points) <= _FEW_POINTS
    look = {"color": "--point", "size": 7 if few else 4, "opacity": 0.75 if few else 0.5}
    kind = "scatter" if len(points) <= MANY_POINTS else "scattergl"
    traces = [
        scatter(
            "markers",
            map(position, some),
            (point.item.value or 0.0 for point in some),
            type=kind,
            name=name,
            text=[f"trial {row.trial}<br>{parameters_label(row.parameters.items())}" for row in (p.item for p in some)],
            hovertemplate="<b>%{y}</b><br>%{text}<extra></extra>",
            marker=marker,
        )
        for name, some, marker in (("evaluations", feasible, look), ("infeasible", infeasible, _INFEASIBLE))
        if some or name == "evaluations"
    ]
    if trace.improvements:
        steps = [step for step in trace.improvements if low <= (step.item.value or 0.0) <= high]
        steps = steps or trace.improvements[-1:]
        best = [step.item.value or 0.0 for step in steps]
        traces.append(
            scatter(
                "lines",
                [*map(position, steps), end],
                [*best, best[-1]],
                name="best so far",
                hovertemplate="best so far: <b>%{y}</b><extra></extra>",
                line={"color": "--accent", "width": 2.5, "shape": "hv"},
            )
        )
    better = "higher" if history.is_maximized else "lower"
    yaxis = axis(f"{label(history.goals.objectives[0].metric)} ({better} is better)")
    stopped = history.campaign.totals.stopped
    return Figure(
        name="best",
        title="Best so far",
        caption=joined(
            " ",
            infeasible and "Crosses break a constraint.",
            trace.width > 1 and f"Of every {trace.width:,} results, the best and the worst.",
            history.existing and "Known results are not drawn.",
            stopped and f"Without {plural(stopped, 'trial')} that stopped early.",
            hidden and f"{plural(hidden, 'outlier')} outside: double-click to see all.",
        ),
        traces=traces,
        layout=layout(
            axis("steps of all trials", rangemode="tozero") if counts_steps else counting_axis(_FINISHED, end),
            yaxis if visible is None else {**yaxis, "range": list(visible)},
            height=360,
            showlegend=True,
        ),
    )


def fronts(history: History) -> list[Figure]:
    """Return a figure of the results for each pair of objectives; none with a single objective."""
    pairs = list(combinations(range(len(history.goals.objectives)), 2))[:_MOST_PAIRS]
    return [_front(history, pair) for pair in pairs if history.succeeded]


def _front(history: History, pair: tuple[int, int]) -> Figure:
    goals = history.goals
    members = {member.trial for member in history.campaign.results.front.members}
    rows = history.succeeded[-MANY_POINTS:]
    dominated = [row for row in rows if row.trial not in members]
    inside = [row for row in dominated if row.is_feasible is not False]
    outside = [row for row in dominated if row.is_feasible is False]
    on_front = sorted((history.trials[trial] for trial in members), key=lambda row: _values(history, row)[pair[0]])
    first, second = (goals.objectives[number] for number in pair)
    looks = (
        ("evaluations", inside, {"color": "--point", "size": 6, "opacity": 0.6}),
        ("infeasible", outside, _INFEASIBLE),
        ("front", on_front, {"color": "--accent", "size": 9}),
    )
    traces = [
        scatter(
            "markers",
            round_values(_values(history, row)[pair[0]] for row in some),
            (_values(history, row)[pair[1]] for row in some),
            name=name,
            text=[f"trial {row.trial}<br>{parameters_label(row.parameters.items())}" for row in some],
            hovertemplate="<b>%{x}, %{y}</b><br>%{text}<extra></extra>",
            marker=marker,
        )
        for name, some, marker in looks
        if some
    ]
    if len(goals.objectives) == 2 and on_front:
        traces[-1] |= {"mode": "lines+markers", "line": {"color": "--accent", "width": 1.5, "dash": "dot"}}
    newest = len(history.succeeded) > len(rows)
    return Figure(
        name="front" if pair == (0, 1) else f"front-{pair[0]}-{pair[1]}",
        title="Front" if len(goals.objectives) == 2 else f"Front: {first.metric} and {second.metric}",
        caption=joined(
            " ",
            f"{plural(len(members), 'result')} that no other one beats in every objective.",
            newest and f"Of the others, the newest {len(rows):,}.",
        ),
        traces=traces,
        layout=layout(axis(label(first)), axis(label(second)), height=360, showlegend=True),
    )


def _values(history: History, row: TrialRow) -> tuple[float, ...]:
    return history.goals.values(row.value or 0.0, row.metrics)


def best_steps(history: History) -> tuple[list[int], list[float]]:
    """Return the curve of the best value as indices of results and values: each improvement and the
    end."""
    steps = history.trace.improvements
    values = [step.item.value or 0.0 for step in steps]
    return ([*(step.place for step in steps), history.trace.count], [*values, values[-1]]) if steps else ([], [])


def comparison(runs: Sequence[tuple[str, History]]) -> list[Figure]:
    """Return the best values so far of several runs, by name, one figure for each direction."""
    figures = []
    for direction in ("maximized", "minimized"):
        alike = [(name, history) for name, history in runs if history.is_maximized == (direction == "maximized")]
        keys = [without_seed(history) for _, history in alike]
        groups = list(dict.fromkeys(keys))  # runs that differ only in their seed share a color, unless all do
        if not alike:
            continue
        traces = [
            scatter(
                "lines",
                *best_steps(history),
                name=label(name),
                line={"width": 2.5, "shape": "hv", "color": f"hsl({(210 + 137 * color) % 360}, 65%, 50%)"},
            )
            for index, ((name, history), key) in enumerate(zip(alike, keys, strict=True))
            for color in [groups.index(key) if groups[1:] else index]
        ]
        # below the axis, because it may have several lines
        legend = {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}
        figures.append(
            Figure(
                name=f"best-{direction}",
                title="Best so far",
                caption=f"The best value among the first evaluations of each run, {direction}.",
                traces=traces,
                layout=layout(
                    axis(_FINISHED, rangemode="tozero"),
                    axis(f"best value ({'higher' if direction == 'maximized' else 'lower'} is better)"),
                    height=420,
                    showlegend=True,
                    legend=legend,
                ),
            )
        )
    return figures


def learning_curves(history: History) -> Figure | None:
    """Return the curves of the best and the newest trials, with the best one on top.

    None if no trial has reported at two steps.
    """
    rows = [row for row in history.reporting.values() if row.training.reports]
    if not any(len(row.training.reports) > 1 for row in rows):
        return None
    valued = [row for row in rows if row.value is not None]
    best = sorted(valued, key=history.worth, reverse=True)[:_BEST_CURVES]
    shown = list({row.trial: row for row in [*best, *rows[-(_MOST_CURVES - len(best)) :]]}.values())
    best_last = sorted(shown, key=lambda row: row is history.best)
    lines = [_line(history, row, row.training.reports) for row in best_last]
    bands, expected = _forecasts(history, shown)
    # from the first quartile of the finite values to the best one, if that enlarges good trials by a factor of 2
    visible = None
    reported = (value for row in shown for value in row.training.reports.values())
    if rewards := [history.sign * value for value in reported if math.isfinite(value)]:
        quartile, high = quantiles(rewards, 0.25, 1.0)
        if high > quartile and high - min(rewards) > 2 * (high - quartile):
            visible = axis_range(history.sign * quartile, history.sign * high)
    last = max(step for row in shown for step in row.training.reports)
    is_cut = len(shown) < len(rows)
    metric = history.goals.objectives[0].metric
    caption = joined(
        " ",
        "Dashed: running. Dotted: stopped early.",
        expected and "Bands: the model's forecasts, ± 2 standard deviations.",
        is_cut and f"{plural(len(shown), 'trial')} of {len(rows):,}: the best and the newest.",
        visible and "Only the better values: double-click to see all.",
    )
    return Figure(
        name="curves",
        title="Learning curves",
        caption=caption,
        traces=[*bands, *lines, *expected],
        layout=layout(
            axis("step", rangemode="tozero", **({"dtick": 1} if last <= 12 else {})),
            axis(
                "reported value" if metric == VALUE else label(metric),
                **({} if visible is None else {"range": list(visible)}),
            ),
            height=360,
        ),
    )


def _forecasts(history: History, shown: list[TrialRow]) -> tuple[list[Spec], list[Spec]]:
    """Return the forecasts of running trials and then of the best stopped ones: bands from their latest
    values, and the final values with error bars."""
    end, forecasts = history.campaign.training_end, history.campaign.trainings.forecasts
    rows = [row for row in shown if row.trial in forecasts and row.status in ("running", "stopped", "queued")]
    rows.sort(key=lambda row: (row.status != "running", -history.sign * forecasts[row.trial].mean))
    drawn = [(row, forecasts[row.trial]) for row in rows[:_MOST_BANDS]]
    if not drawn or end is None:
        return [], []
    bands: list[Spec] = []
    for row, forecast in drawn:
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
    above = [max(forecast.low, forecast.high) - forecast.mean for _, forecast in drawn]
    below = [forecast.mean - min(forecast.low, forecast.high) for _, forecast in drawn]
    marks: Spec = {
        "type": "scatter",
        "mode": "markers",
        "x": [end] * len(drawn),
        "y": round_values((forecast.mean for _, forecast in drawn), digits=5),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": round_values(above, digits=5),
            "arrayminus": round_values(below, digits=5),
            "thickness": 1,
            "color": "--point",
        },
        "text": [f"trial {row.trial}" for row, _ in drawn],
        "name": "expected",
        "marker": {"color": "--point", "symbol": "diamond"},
        "opacity": 0.7,
        "hovertemplate": "%{text}: <b>%{y}</b> expected<extra></extra>",
    }
    return bands, [marks]


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
