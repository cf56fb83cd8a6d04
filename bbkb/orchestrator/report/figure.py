"""Figures of the page in plotly's JSON format, and their common style.

A color is the name of a CSS variable (`--accent`). The page replaces it by the variable's value in
the light or the dark scheme. Plotly interprets a subset of HTML in every text that it draws, so
each text from outside passes through `label`.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.orchestrator.wording import one_line, printable

Spec = dict[str, Any]  # a part of a figure in plotly's format

_FEWEST = 5  # with fewer values, Tukey's rule finds no far outlier
MANY_POINTS = 2000  # more points are drawn with WebGL if possible, because SVG takes seconds
FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": "--ink"}
# colors from the worst to the best value, sorted by lightness
COLOR_SCALE = [[0, "--scale-worst"], [0.75, "--scale-middle"], [1, "--scale-best"]]
COLOR_BAR = {"thickness": 12, "outlinewidth": 0, "tickfont": FONT, "minexponent": 7}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure. `traces` and `layout` are plotly's; `title` and `caption` are texts of the page."""

    name: str  # the id on the page
    title: str
    caption: str  # one line
    traces: list[Spec]
    layout: Spec
    explanation: str = ""  # how to read it, folded
    is_wide: bool = False
    min_width: int = 0  # in pixels; the figure scrolls sideways on a narrower screen

    @property
    def spec(self) -> Spec:
        """The complete figure in plotly's JSON format."""
        return {"data": self.traces, "layout": self.layout}


def resource(name: str) -> str:
    """Return a text file of this package."""
    return resources.files("bbkb.orchestrator.report").joinpath(name).read_text(encoding="utf-8")


def palette() -> str:
    """Return the part of the report's style that defines the colors of both schemes."""
    style = resource("page.css")
    return style[style.index(":root") : style.index("* {")]


def label(text: object, limit: int = 60) -> str:
    """Escape `text` so that plotly shows it literally.

    The result is one line of at most `limit` characters with visible control characters.
    """
    return html.escape(one_line(printable(" ".join(str(text).split())), limit), quote=False)


def parameters_label(parameters: Iterable[tuple[str, object]]) -> str:
    """Return hover text with one line for each parameter."""
    return "<br>".join(f"{label(name)} = {label(short(value))}" for name, value in parameters)


def short(value: object) -> object:
    """Return floats as text with six significant digits, and other values unchanged."""
    return f"{value:.6g}" if isinstance(value, float) else value


def round_values(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Round `values` to `digits` significant digits, for short JSON. None if not finite."""
    return [_round(value, digits) if math.isfinite(value) else None for value in values]


def _round(value: float, digits: int) -> float:
    rounded = float(f"{value:.{digits}g}")
    return rounded if math.isfinite(rounded) else value  # the largest floats would become infinite


def scatter(mode: str, x: Iterable[object], y: Iterable[float], **options: object) -> Spec:
    """Return points or lines (n,) with rounded heights; `options` are plotly's."""
    return {"type": "scatter", "mode": mode, "x": list(x), "y": round_values(y), **options}


def axis(title: str, **options: object) -> Spec:
    """Return an axis. The title contains the unit in brackets; `options` are plotly's."""
    colors = {"gridcolor": "--grid", "linecolor": "--line", "zeroline": False}
    look = {**colors, "automargin": True, "minexponent": 7, "tickangle": 0}
    return {"title": {"text": title, "standoff": 10, "font": {"size": 13, "color": "--muted"}}, **look, **options}


def counting_axis(title: str, count: int) -> Spec:
    """Return an axis for 1, 2, …, `count` with ticks at integers only."""
    return axis(title, range=[0.4, max(count, 8) + 0.6], **({"dtick": 1} if count <= 12 else {}))


def layout(xaxis: Spec, yaxis: Spec, height: int = 320, **options: object) -> Spec:
    """Return the default layout with these axes; `options` are plotly's."""
    return {**look(height), "xaxis": xaxis, "yaxis": yaxis, **options}


def look(height: int) -> Spec:
    """Return colors, font and margins of a figure that is `height` pixels high."""
    return {
        "height": height,
        "paper_bgcolor": "--card",
        "plot_bgcolor": "--card",
        "font": FONT,
        "margin": {"l": 56, "r": 16, "t": 30, "b": 40},
        "hovermode": "closest",
        "modebar": {"bgcolor": "--card", "color": "--muted", "activecolor": "--ink"},
        "hoverlabel": {"bgcolor": "--card", "bordercolor": "--line", "font": FONT, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "showlegend": False,
    }


def quantiles(values: Sequence[float] | NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    """Return two quantiles of finite values, which may include the largest floats of both signs."""
    lower, upper = np.quantile(np.divide(values, 4.0), (low, high))  # divide by 4 so that differences cannot overflow
    return 4.0 * float(lower), 4.0 * float(upper)


def visible_range(
    values: NDArray[np.float64],
    is_feasible: NDArray[np.bool_],
    is_maximized: bool,
    earliest: int | None = None,
) -> tuple[float, float] | None:
    """Return a range of the value axis without far outliers on the worse side, so that one diverged
    trial does not flatten the curve. None if the axis should show all values.

    A far outlier is beyond Tukey's outer fence, which is three times the interquartile range of the
    feasible values. Infeasible values that are better than all feasible ones at most double the
    range. Outliers are omitted only if the range of all values is more than four times as wide.
    Fewer than five feasible values do not define a fence. The fence is then computed from all
    values, and feasible ones are always shown.

    Args:
        values: all values (n,).
        is_feasible: whether each value (n,) satisfies all constraints.
        is_maximized: whether high values are good.
        earliest: the number of feasible values, from the first on, that give the interquartile
            range. None: all of them.
    """
    sign = 1.0 if is_maximized else -1.0
    rewards = sign * values
    feasible = rewards[is_feasible]
    is_few = feasible.size < _FEWEST
    typical = rewards if is_few else feasible
    worst = float(rewards.min())
    best = float(rewards.max())
    first, third = quantiles(typical[:earliest], 0.25, 0.75)
    fence = 3 * (third - first)
    bottom = max(worst, first - fence)
    if is_few:
        bottom = min([bottom, *feasible.tolist()])
    top = float(typical.max())
    top = min(best, top + (top - bottom))
    if best - worst <= 4 * (top - bottom) or fence == 0:
        return None
    return axis_range(sign * bottom, sign * top)


def axis_range(one_end: float, other_end: float) -> tuple[float, float] | None:
    """Return the range of an axis with a margin at both ends, rounded to six digits.

    None if a bound is not finite, because JSON has no such number.
    """
    margin = 0.05 * abs(other_end - one_end)
    low = float(f"{min(one_end, other_end) - margin:.6g}")
    high = float(f"{max(one_end, other_end) + margin:.6g}")
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None
