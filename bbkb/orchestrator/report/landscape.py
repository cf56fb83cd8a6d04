"""Figures of the value as a function of the parameters, from a model of the results
(`surrogate`)."""

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bbkb.orchestrator.report.figure import (
    COLOR_BAR,
    COLOR_SCALE,
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
_CONTOUR = 25  # grid points of one side of a contour panel
_PAIRS = ((0, 1), (0, 2), (1, 2))  # of the most important parameters
_PANEL_CHARACTERS = 28  # the number of characters of tick labels that fit below a slice


def landscape(surrogate: Surrogate | None, is_maximized: bool) -> list[Figure]:
    """Return the figures of importance, slices and contours; none without a model."""
    if surrogate is None:
        return []
    alone, total = surrogate.importance()
    order = [int(index) for index in np.argsort(-total, kind="stable")]
    names = [dimension.name for dimension in surrogate.dimensions]
    through_best = [index for index in order if names[index] not in surrogate.absent]
    contour = contours(surrogate, through_best, is_maximized)
    return [
        importance(surrogate, alone, total),
        *([slices(surrogate, through_best, is_maximized)] if through_best else []),
        *([contour] if contour else []),
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
        caption=(
            "The share of the variance between all configurations that each parameter explains alone "
            "(first-order Sobol index), and with others (total index). An interaction counts for each of "
            "its parameters, so the total indices may add up to more than 100 %. "
            f"The model is a Gaussian process fitted to {plural(len(surrogate.values), 'result')}{without}."
        ),
        traces=traces,
        layout=layout(
            axis("Sobol index (% of the variance)", rangemode="tozero"),
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
            "Points are results. The line is the model's mean with the other parameters as in the "
            "best configuration, and the band ± 2 standard deviations; for values without an "
            "order, these are a mark and a bar for each value.",
            len(order) > len(shown) and f"The {_MOST_SLICES} most important parameters.",
            surrogate.absent and f"The best configuration has no {', '.join(surrogate.absent)}.",
            _on_best(surrogate),
            visible and "Outlying values lie outside: double-click to see all.",
        ),
        traces=traces,
        layout=frame,
        min_width=230 * columns,
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
    x = _with_ticks(dimension, _PANEL_CHARACTERS) | {
        "domain": [column * width, (column + 0.86) * width],
        "anchor": f"y{suffix}",
        "range": [low - margin, high + margin],
    }
    bottom = 1.0 - (line + 1) * height
    y = axis("value", domain=[bottom + 0.26 * height, bottom + height], anchor=f"x{suffix}", nticks=5)
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _with_ticks(dimension: Dimension, characters: int | None = None) -> Spec:
    """Return an axis whose labels fit side by side into a width of `characters`, if given."""
    texts = _tick_texts(dimension)
    shown = list(texts) if characters is None else _ticks_that_fit(texts, characters)
    return axis(
        label(dimension.name, 28),
        range=list(dimension.axis.range),
        tickvals=shown,
        ticktext=[texts[at] for at in shown],
    )


def _tick_texts(dimension: Dimension) -> dict[float, str]:
    return {at: label(text, 12) for at, text in dimension.axis.ticks.items()}


def _ticks_that_fit(texts: Mapping[float, str], characters: int) -> list[float]:
    """Return every k-th tick, with the smallest k for which labels do not overlap."""
    ticks = sorted(texts)
    for every in range(1, len(ticks)):
        shown = ticks[::every]
        if sum(len(html.unescape(texts[at])) + 2 for at in shown) <= characters:
            return shown
    return ticks[:1]


def _suffix(number: int) -> str:
    return "" if number == 1 else str(number)


def contours(surrogate: Surrogate, order: Sequence[int], is_maximized: bool) -> Figure | None:
    """Return the model's mean over pairs of the three most important parameters.

    None if only one parameter varies.
    """
    pairs = [(order[a], order[b]) for a, b in _PAIRS if b < len(order)]
    if not pairs:
        return None
    grids = [_grid_means(surrogate, pair) for pair in pairs]
    means = np.concatenate([grid[2].ravel() for grid in grids])
    bounds = (float(means.min()), float(means.max()))
    frame: Spec = {**look(340), "margin": {"l": 64, "r": 16, "t": 16, "b": 48}}
    traces: list[Spec] = []
    labels = [_tick_texts(surrogate.dimensions[up]).values() for _, up in pairs]
    longest = max(len(text) for texts in labels for text in texts)
    gap = 0.05 + 0.0065 * longest  # share of the figure's width between two panels, for an axis
    width = (1.0 - gap * (len(pairs) - 1)) / len(pairs)
    for panel, (pair, grid) in enumerate(zip(pairs, grids, strict=True)):
        across, up = (surrogate.dimensions[parameter] for parameter in pair)
        suffix = _suffix(panel + 1)
        left = panel * (width + gap)
        domain = {"domain": [left, left + width], "anchor": f"y{suffix}"}
        frame[f"xaxis{suffix}"] = _with_ticks(across, 48 // len(pairs) + 12) | domain
        frame[f"yaxis{suffix}"] = _with_ticks(up) | {"anchor": f"x{suffix}"}
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        heights = _heights(grid, bounds, is_maximized, across.is_choice or up.is_choice)
        traces.append({**axes, **heights, "showscale": panel == len(pairs) - 1})
        traces.append({**axes, **_dots(surrogate, pair)})
    return Figure(
        name="contours",
        title="Contours",
        caption=sentences(
            "The model's mean over pairs of the most important parameters, the others as in the "
            "best configuration; dots are results.",
            _on_best(surrogate),
        ),
        traces=traces,
        layout=frame,
        min_width=330 * len(pairs),
    )


def _heights(
    panel: tuple[Floats, Floats, Floats], bounds: tuple[float, float], is_maximized: bool, is_coarse: bool
) -> Spec:
    """Return the means as contour lines, or as a heat map of cells if `is_coarse`."""
    across, up, means = panel
    low, high = bounds
    kind: Spec = {"type": "heatmap"} if is_coarse else {"type": "contour", "line": {"width": 0.5, "color": "--grid"}}
    return {
        **kind,
        "x": round_values(across),
        "y": round_values(up),
        "z": [round_values(line, digits=4) for line in means],
        "zmin": low,
        "zmax": high if high > low else low + 1.0,
        "colorscale": COLOR_SCALE,
        "reversescale": not is_maximized,
        "colorbar": COLOR_BAR,
        "hovertemplate": "<b>%{z:.5g}</b><extra></extra>",
    }


def _dots(surrogate: Surrogate, pair: tuple[int, int]) -> Spec:
    some = _some(surrogate)
    x, y = (surrogate.positions[some, parameter] for parameter in pair)
    return _scatter("markers", x, y, marker={"color": "--ink", "size": 3, "opacity": 0.35})


def _some(surrogate: Surrogate) -> NDArray[np.intp]:
    """Return the indices (m,) of at most `_MOST_POINTS` evenly spaced results."""
    return np.unique(np.linspace(0, len(surrogate.values) - 1, _MOST_POINTS).astype(np.intp))


def _grid_means(surrogate: Surrogate, pair: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Return a grid of two parameters, (m,) and (k,), and the model's means (k, m)."""
    across, up = (surrogate.dimensions[parameter].grid(_CONTOUR) for parameter in pair)
    points = np.tile(surrogate.best, (len(across) * len(up), 1))
    points[:, pair[0]] = np.tile(across, len(up))
    points[:, pair[1]] = np.repeat(up, len(across))
    return across, up, surrogate.predict(points)[0].reshape(len(up), len(across))


def _on_best(surrogate: Surrogate) -> str:
    """Return a sentence about a best configuration that is not feasible; empty if it is."""
    if surrogate.is_feasible.any():
        return ""
    best = "the best configuration is the one with the best value"
    return f"No result satisfies all constraints: {best}."
