"""Pictures of how the value depends on the parameters, by a model fitted to the results
(`surrogate`)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.report.figure import FONT, Figure, Spec, axis, label, layout, look, round_values, visible_range
from orchestrator.report.surrogate import Dimension, Floats, Surrogate
from orchestrator.wording import plural

_MOST_SLICES = 9
_MOST_POINTS = 400  # results drawn in each panel
_CONTOUR_GAP = 0.11  # of the picture's width, for the ticks and the title of the axis of the next one
_LINE = 61  # grid points of a curve
_CONTOUR = 25  # grid points of one side of a contour picture
_PAIRS = ((0, 1), (0, 2), (1, 2))  # of the most important parameters
_SCALE = [[0, "--scale-worst"], [0.75, "--scale-middle"], [1, "--scale-best"]]


def landscape(surrogate: Surrogate | None, is_maximized: bool) -> list[Figure]:
    """Return importance, slices and contours; none without a model."""
    if surrogate is None:
        return []
    shares = surrogate.importance()
    order = [int(place) for place in np.argsort(-shares, kind="stable")]
    through_best = [place for place in order if surrogate.dimensions[place].name not in surrogate.absent]
    contour = contours(surrogate, through_best, is_maximized)
    return [
        importance(surrogate, shares, order),
        *([slices(surrogate, through_best, is_maximized)] if through_best else []),
        *([contour] if contour else []),
    ]


def importance(surrogate: Surrogate, shares: Floats, order: Sequence[int]) -> Figure:
    """Return one bar for each parameter: its total Sobol index, the most important at the top."""
    names = [label(surrogate.dimensions[place].name, 28) for place in reversed(order)]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": round_values((100.0 * float(shares[place]) for place in reversed(order)), digits=4),
        "hovertemplate": "%{y}: <b>%{x:.3g} %</b><extra></extra>",
        "marker": {"color": "--point"},
    }
    return Figure(
        name="importance",
        title="Parameter importance",
        caption=(
            "How much each parameter matters: the share of the differences between all configurations that it has a "
            f"part in, alone or together with others (the total Sobol index). {_model_text(surrogate)}"
        ),
        traces=[trace],
        layout=layout(
            axis("share of the variance (%)", rangemode="tozero"),
            axis("", type="category", tickfont={**FONT, "size": 12}),
            height=130 + 28 * len(names),
        ),
    )


def slices(surrogate: Surrogate, order: Sequence[int], is_maximized: bool) -> Figure:
    """Return a panel for each parameter: results, and the model through the best configuration."""
    places = list(order[:_MOST_SLICES])
    columns = min(3, len(places))
    lines = math.ceil(len(places) / columns)
    traces: list[Spec] = []
    visible = visible_range(surrogate.values, surrogate.is_feasible, is_maximized)
    frame: Spec = {**look(24 + 230 * lines), "margin": {"l": 56, "r": 16, "t": 16, "b": 8}}
    for number, place in enumerate(places):
        traces += _slice(surrogate, place, number + 1)
        frame |= _panel(number, columns, lines, surrogate.dimensions[place])
        frame[f"yaxis{_suffix(number + 1)}"] |= {"title": None} if number % columns else {}
        frame[f"yaxis{_suffix(number + 1)}"] |= {} if visible is None else {"range": list(visible)}
    outside = "" if visible is None else " Outlying values lie outside: double-click to see all."
    remark = f" The {_MOST_SLICES} most important parameters." if len(order) > len(places) else ""
    if surrogate.absent:
        remark += f" The best configuration has no {', '.join(surrogate.absent)}."
    return Figure(
        name="slices",
        title="Slices",
        caption=(
            "Points are results. The line is the model's mean with the other parameters as in the best configuration, "
            f"the band ± 2 standard deviations; for values without an order, these are a mark and a bar for each value."
            f"{remark}{_best_text(surrogate)}{outside}"
        ),
        traces=traces,
        layout=frame,
        min_width=230 * columns,
    )


def _slice(surrogate: Surrogate, place: int, number: int) -> list[Spec]:
    dimension = surrogate.dimensions[place]
    grid = dimension.grid(_LINE)
    line = np.tile(surrogate.best, (len(grid), 1))
    line[:, place] = grid
    mean, deviation = surrogate.predict(line)
    axes = {"xaxis": f"x{_suffix(number)}", "yaxis": f"y{_suffix(number)}"}
    some = _some(surrogate)
    point = {"color": "--point", "size": 5, "opacity": 0.6}
    results = _scatter("markers", surrogate.positions[some, place], surrogate.values[some], marker=point)
    if dimension.is_choice:  # a line would show values between the choices, which do not exist
        bar = {"array": round_values(2 * deviation), "color": "--accent", "thickness": 2, "width": 8}
        mark = {"color": "--accent", "size": 9, "symbol": "diamond"}
        return [axes | results, axes | _scatter("markers", grid, mean, error_y=bar, marker=mark)]
    across, edge = np.concatenate((grid, grid[::-1])), {"width": 0, "color": "--accent"}
    around = np.concatenate((mean + 2 * deviation, (mean - 2 * deviation)[::-1]))
    band = _scatter("lines", across, around, line=edge, fill="toself", fillcolor="--fill")
    curve = _scatter("lines", grid, mean, line={"color": "--accent", "width": 2.5})
    return [axes | band, axes | results, axes | curve]


def _scatter(mode: str, x: Floats, y: Floats, **options: object) -> Spec:
    """Return points or a line (n,), of which nothing is shown under the mouse."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": round_values(x),
        "y": round_values(y),
        "hoverinfo": "skip",
        **options,
    }


def _panel(number: int, columns: int, lines: int, dimension: Dimension) -> Spec:
    """Return the axes of one panel in a grid of panels, the first at the top left."""
    column, line = number % columns, number // columns
    width, height = 1.0 / columns, 1.0 / lines
    suffix = _suffix(number + 1)
    x = _with_ticks(dimension) | {"domain": [column * width, (column + 0.86) * width], "anchor": f"y{suffix}"}
    bottom = 1.0 - (line + 1) * height
    y = axis("value", domain=[bottom + 0.26 * height, bottom + height], anchor=f"x{suffix}", nticks=5)
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _with_ticks(dimension: Dimension) -> Spec:
    ticks = dimension.axis.ticks
    texts = [label(text, 12) for text in ticks.values()]
    return axis(
        label(dimension.name, 28), range=list(dimension.axis.range), tickvals=list(ticks), ticktext=texts, tickangle=0
    )


def _suffix(number: int) -> str:
    return "" if number == 1 else str(number)


def contours(surrogate: Surrogate, order: Sequence[int], is_maximized: bool) -> Figure | None:
    """Return the model's mean over pairs of the three main parameters; None if one varies."""
    pairs = [(order[a], order[b]) for a, b in _PAIRS if b < len(order)]
    if not pairs:
        return None
    panels = [_grid_means(surrogate, pair) for pair in pairs]
    means = np.concatenate([panel[2].ravel() for panel in panels])
    bounds = (float(means.min()), float(means.max()))
    frame: Spec = {**look(340), "margin": {"l": 64, "r": 16, "t": 16, "b": 48}}
    traces: list[Spec] = []
    for number, (pair, panel) in enumerate(zip(pairs, panels, strict=True)):
        suffix, width = _suffix(number + 1), (1.0 - _CONTOUR_GAP * (len(pairs) - 1)) / len(pairs)
        domain = [number * (width + _CONTOUR_GAP), number * (width + _CONTOUR_GAP) + width]
        frame[f"xaxis{suffix}"] = _with_ticks(surrogate.dimensions[pair[0]]) | {
            "domain": domain,
            "anchor": f"y{suffix}",
        }
        frame[f"yaxis{suffix}"] = _with_ticks(surrogate.dimensions[pair[1]]) | {"anchor": f"x{suffix}"}
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        is_coarse = any(surrogate.dimensions[place].is_choice for place in pair)
        heights = _heights(panel, bounds, is_maximized, is_coarse)
        traces.append({**axes, **heights, "showscale": number == len(pairs) - 1})
        traces.append({**axes, **_dots(surrogate, pair)})
    return Figure(
        name="contours",
        title="Contours",
        caption=(
            "The model's mean over pairs of the most important parameters, the others as in the best configuration; "
            f"dots are results.{_best_text(surrogate)}"
        ),
        traces=traces,
        layout=frame,
        min_width=330 * len(pairs),
    )


def _heights(
    panel: tuple[Floats, Floats, Floats], bounds: tuple[float, float], is_maximized: bool, is_coarse: bool
) -> Spec:
    """Return the means as lines of equal height, or as cells between choices (`is_coarse`)."""
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
        "colorscale": _SCALE,
        "reversescale": not is_maximized,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "tickfont": FONT},
        "hovertemplate": "<b>%{z:.5g}</b><extra></extra>",
    }


def _dots(surrogate: Surrogate, pair: tuple[int, int]) -> Spec:
    some = _some(surrogate)
    x, y = (surrogate.positions[some, place] for place in pair)
    return _scatter("markers", x, y, marker={"color": "--ink", "size": 3, "opacity": 0.35})


def _some(surrogate: Surrogate) -> NDArray[np.intp]:
    """Return results (m,) to be drawn, evenly spaced."""
    return np.unique(np.linspace(0, len(surrogate.values) - 1, _MOST_POINTS).astype(np.intp))


def _grid_means(surrogate: Surrogate, pair: tuple[int, int]) -> tuple[Floats, Floats, Floats]:
    """Return positions (m,) and (k,) of the two parameters, and the model's mean (k, m) there."""
    across, up = (surrogate.dimensions[place].grid(_CONTOUR) for place in pair)
    points = np.tile(surrogate.best, (len(across) * len(up), 1))
    points[:, pair[0]] = np.tile(across, len(up))
    points[:, pair[1]] = np.repeat(up, len(across))
    return across, up, surrogate.predict(points)[0].reshape(len(up), len(across))


def _best_text(surrogate: Surrogate) -> str:
    return (
        ""
        if surrogate.is_feasible.any()
        else " No result satisfies all constraints: the best configuration is the one with the best value."
    )


def _model_text(surrogate: Surrogate) -> str:
    without = f", without {plural(surrogate.left_out, 'trial')} that stopped early" if surrogate.left_out else ""
    return f"The model is a Gaussian process fitted to {plural(surrogate.results, 'result')}{without}."
