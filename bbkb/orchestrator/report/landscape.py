"""Importance and slices: the value as a function of the parameters, from a model of the results
(`surrogate`)."""

import html
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bbkb.orchestrator.report.figure import (
    FONT,
    Figure,
    Spec,
    axis,
    label,
    layout,
    look,
    round_values,
    scatter,
    sentences,
    visible_range,
)
from bbkb.orchestrator.report.surrogate import EARLIEST, Dimension, Floats, Surrogate
from bbkb.orchestrator.wording import plural

_MOST_SLICES = 9
_MOST_POINTS = 400  # results drawn in each panel
_LINE = 61  # grid points of a curve
_PANEL_CHARACTERS = 28  # the number of characters of tick labels that fit below a slice


def landscape(surrogate: Surrogate | None, is_maximized: bool) -> list[Figure]:
    """Return the figures of importance, slices; none without a model."""
    if surrogate is None:
        return []
    alone, total = surrogate.importance()
    order = [int(index) for index in np.argsort(-total, kind="stable")]
    names = [dimension.name for dimension in surrogate.dimensions]
    through_best = [index for index in order if names[index] not in surrogate.absent]
    return [
        importance(surrogate, alone, total),
        *([slices(surrogate, through_best, is_maximized)] if through_best else []),
    ]


def importance(surrogate: Surrogate, alone: Floats, total: Floats) -> Figure:
    """Return bars with the total Sobol index of each parameter, the most important at the top, and
    inside them bars with the first-order index."""
    rising = np.argsort(total, kind="stable")
    names = [label(surrogate.dimensions[index].name, 28) for index in rising]
    looks = (("with others", total, "--point", 0.8), ("alone", alone, "--accent", 0.4))
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": round_values(100.0 * shares[rising], digits=4),
            "width": [width] * len(names),
            "hovertemplate": f"%{{y}} {name}: <b>%{{x:.3g}} %</b><extra></extra>",
            "marker": {"color": color},
        }
        for name, shares, color, width in looks
    ]
    without = f", without {plural(surrogate.left_out, 'trial')} that stopped early" * bool(surrogate.left_out)
    return Figure(
        name="importance",
        title="Parameter importance",
        caption=f"From a model of {plural(len(surrogate.values), 'result')}{without}.",
        explanation="The share of the variance between all configurations that each parameter explains alone "
        "(first-order Sobol index), and together with others (total index). An interaction counts for each of its "
        "parameters, so the total indices may add up to more than 100 %. The model is a Gaussian process.",
        traces=traces,
        layout=layout(
            axis("share of the variance (%)", rangemode="tozero"),
            axis("", type="category", tickfont={**FONT, "size": 12}),
            height=130 + 28 * len(names),
            barmode="overlay",
            showlegend=True,
        ),
    )


def slices(surrogate: Surrogate, order: Sequence[int], is_maximized: bool) -> Figure:
    """Return a panel for each parameter: the results, and the model near the best configuration."""
    shown = list(order[:_MOST_SLICES])
    lines = math.ceil(len(shown) / 3)
    columns = math.ceil(len(shown) / lines)
    visible = visible_range(surrogate.values, surrogate.is_feasible, is_maximized, EARLIEST)
    traces: list[Spec] = []
    frame: Spec = {**look(24 + 230 * lines), "margin": {"l": 56, "r": 16, "t": 16, "b": 8}}
    for panel, parameter in enumerate(shown):
        traces += _slice(surrogate, parameter, panel + 1)
        frame |= _panel(panel, columns, lines, surrogate.dimensions[parameter])
        yaxis = frame[f"yaxis{_suffix(panel + 1)}"]
        yaxis |= {"title": None, "showticklabels": False} if panel % columns else {}
        yaxis |= {"matches": "y"} if panel else {}
        yaxis |= {} if visible is None else {"range": list(visible)}
    return Figure(
        name="slices",
        title="Slices",
        caption=sentences(
            "Through the best configuration, along one parameter at a time.",
            len(order) > len(shown) and f"The {_MOST_SLICES} most important parameters.",
            surrogate.absent and f"The best configuration has no {', '.join(surrogate.absent)}.",
            visible and "Outliers lie outside: double-click to see all.",
        ),
        explanation="Points are results. The line is the model's mean with the other parameters as in the best "
        "configuration, and the band ± 2 standard deviations; for values without an order, these are a mark and a bar.",
        traces=traces,
        layout=frame,
        is_wide=columns > 2,
        min_width=200 * columns,
    )


def _slice(surrogate: Surrogate, parameter: int, number: int) -> list[Spec]:
    dimension = surrogate.dimensions[parameter]
    grid = dimension.grid(_LINE)
    line = np.tile(surrogate.best, (len(grid), 1))
    line[:, parameter] = grid
    mean, deviation = surrogate.predict(line)
    axes = {"xaxis": f"x{_suffix(number)}", "yaxis": f"y{_suffix(number)}"}
    some = _some(surrogate)
    point = {"color": "--point", "size": 5, "opacity": 0.6}
    results = _scatter("markers", surrogate.positions[some, parameter], surrogate.values[some], marker=point)
    if dimension.is_choice:  # there are no values between choices
        bar = {"array": round_values(2 * deviation), "color": "--accent", "thickness": 2, "width": 8}
        mark = {"color": "--accent", "size": 9, "symbol": "diamond"}
        return [axes | results, axes | _scatter("markers", grid, mean, error_y=bar, marker=mark)]
    across = np.concatenate((grid, grid[::-1]))
    edge = {"width": 0, "color": "--accent"}
    around = np.concatenate((mean + 2 * deviation, (mean - 2 * deviation)[::-1]))
    band = _scatter("lines", across, around, line=edge, fill="toself", fillcolor="--fill")
    curve = _scatter("lines", grid, mean, line={"color": "--accent", "width": 2.5})
    return [axes | band, axes | results, axes | curve]


def _scatter(mode: str, x: Floats, y: Floats, **options: object) -> Spec:
    """Return points or a line (n,) without hover text."""
    return scatter(mode, round_values(x), y, hoverinfo="skip", **options)


def _panel(number: int, columns: int, lines: int, dimension: Dimension) -> Spec:
    """Return the axes of one panel in a grid; panel 0 is at the top left."""
    line, column = divmod(number, columns)
    width = 1.0 / columns
    height = 1.0 / lines
    suffix = _suffix(number + 1)
    low, high = dimension.axis.range
    margin = 0.02 * (high - low)  # shows the points at the ends completely
    x = _with_ticks(dimension) | {
        "domain": [column * width, (column + 0.86) * width],
        "anchor": f"y{suffix}",
        "range": [low - margin, high + margin],
    }
    bottom = 1.0 - (line + 1) * height
    y = axis("value", domain=[bottom + 0.26 * height, bottom + height], anchor=f"x{suffix}", nticks=5)
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _with_ticks(dimension: Dimension) -> Spec:
    """Return the axis of a parameter, with as many of its ticks as fit side by side."""
    texts = {at: label(text, 12) for at, text in sorted(dimension.axis.ticks.items())}
    room = max((len(html.unescape(text)) for text in texts.values()), default=0) + 2
    shown = list(texts)[:: math.ceil(len(texts) * room / _PANEL_CHARACTERS) or 1]
    ticks = {"tickvals": shown, "ticktext": [texts[at] for at in shown]} if texts else {"nticks": 4}
    return axis(label(dimension.name, 28), **ticks)


def _suffix(number: int) -> str:
    return "" if number == 1 else str(number)


def _some(surrogate: Surrogate) -> NDArray[np.intp]:
    """Return the indices (m,) of at most `_MOST_POINTS` evenly spaced results."""
    return np.unique(np.linspace(0, len(surrogate.values) - 1, _MOST_POINTS).astype(np.intp))
