"""The parts of a picture on the page: plotly's JSON figure format, and the common style.

A colour is written as the name of a CSS variable (`--accent`): the page replaces it by the value of
the light or the dark scheme. Plotly reads a subset of HTML in every text it draws, so each text
from outside goes through `label`.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.wording import one_line, printable

Spec = dict[str, Any]  # a part of a picture, as plotly reads it

_FEWEST = 5  # values of which one can be a far outlier by Tukey's rule
MANY_POINTS = 2000  # from this number on, points are drawn by WebGL if the browser has it: SVG takes seconds
FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": "--ink"}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture: `traces` and `layout` are plotly's; `title` and `caption` are text of the page."""

    name: str  # its id on the page
    title: str
    caption: str  # how to read it
    traces: list[Spec]
    layout: Spec
    is_wide: bool = True
    min_width: int = field(default=0)  # pixels; a wider picture scrolls sideways on a narrow screen

    @property
    def spec(self) -> Spec:
        """The whole picture in plotly's JSON format."""
        return {"data": self.traces, "layout": self.layout}


def label(text: object, limit: int = 60) -> str:
    """Return `text` as plotly will show it literally: escaped, on one line, at most `limit`
    characters, control characters visible."""
    return html.escape(one_line(printable(" ".join(str(text).split())), limit), quote=False)


def parameters_label(parameters: Iterable[tuple[str, object]]) -> str:
    """Return hover text: one line for each parameter."""
    return "<br>".join(f"{label(name)} = {label(short(value))}" for name, value in parameters)


def short(value: object) -> object:
    """Return numbers to six significant digits, everything else unchanged."""
    return f"{value:.6g}" if isinstance(value, float) else value


def round_values(values: Iterable[float], digits: int = 6) -> list[float | None]:
    """Return `values` as short JSON numbers of `digits` digits; None if not finite."""
    pairs = ((value, float(f"{value:.{digits}g}")) for value in values)  # the largest numbers become infinite
    return [rounded if math.isfinite(rounded) else value if math.isfinite(value) else None for value, rounded in pairs]


def axis(title: str, **options: object) -> Spec:
    """Return an axis with a title (its unit in brackets); `options` are plotly's."""
    look = {"gridcolor": "--grid", "linecolor": "--line", "zeroline": False, "automargin": True}
    return {"title": {"text": title, "standoff": 10, "font": {"size": 13, "color": "--muted"}}, **look, **options}


def counting_axis(title: str, count: int) -> Spec:
    """Return an axis for 1, 2, …, `count`: ticks at whole numbers only."""
    return axis(title, range=[0.4, max(count, 8) + 0.6], **({"dtick": 1} if count <= 12 else {}))


def layout(xaxis: Spec, yaxis: Spec, height: int = 320, **options: object) -> Spec:
    """Return the layout every picture starts from."""
    return {**look(height), "xaxis": xaxis, "yaxis": yaxis, **options}


def look(height: int) -> Spec:
    """Return colours, font and margins of a picture `height` pixels high."""
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
    """Return two quantiles of finite values; the largest floats of both signs may be among them."""
    lower, upper = np.quantile(np.divide(values, 4.0), (low, high))  # no difference of quarters overflows
    return 4.0 * float(lower), 4.0 * float(upper)


def visible_range(
    values: NDArray[np.float64], is_feasible: NDArray[np.bool_], is_maximized: bool
) -> tuple[float, float] | None:
    """Return a range that shows the feasible values `values[is_feasible]` without far outliers on
    the bad side, so that one diverged trial does not flatten the curve; None: all.

    A value is a far outlier beyond Tukey's outer fence (three times the interquartile range).
    Infeasible values that are better than all feasible ones at most double the range. Outliers are
    left out only when the range of all values is more than four times as wide. Fewer than five
    feasible values tell no outlier: all values do then, and the feasible ones are shown.
    """
    sign = 1.0 if is_maximized else -1.0
    rewards, feasible = sign * values, sign * values[is_feasible]
    is_few = feasible.size < _FEWEST
    typical = rewards if is_few else feasible
    worst, best, top = float(rewards.min()), float(rewards.max()), float(typical.max())
    first, third = quantiles(typical, 0.25, 0.75)
    fence = 3 * (third - first)
    bottom = max(worst, first - fence)
    bottom = min([bottom, *feasible.tolist()]) if is_few else bottom
    top = min(best, top + (top - bottom))
    if best - worst <= 4 * (top - bottom) or fence == 0:
        return None
    return axis_range(sign * bottom, sign * top)


def axis_range(one_end: float, other_end: float) -> tuple[float, float] | None:
    """Return the range of an axis with a margin beyond both ends, rounded to six digits; None where
    a bound is not finite, which JSON cannot hold."""
    margin = 0.05 * abs(other_end - one_end)
    low, high = min(one_end, other_end) - margin, max(one_end, other_end) + margin
    bounds = float(f"{low:.6g}"), float(f"{high:.6g}")
    return bounds if all(map(math.isfinite, bounds)) else None
