"""Parallel coordinates: an axis a parameter, a line an evaluation, coloured by its value."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.history.export import parameter_names
from orchestrator.history.fold import History
from orchestrator.report.figure import FONT, Figure, label, look, one_line, rounded

_MISSING = "none"  # tick of a conditional parameter that is inactive
_TICKS = 8
_SCALE = [[0, "--scale-worst"], [0.75, "--scale-middle"], [1, "--scale-best"]]  # ordered in lightness


def parallel_coordinates(history: History) -> Figure | None:
    """All successful trials over their parameters, the best drawn last; None without any or without parameters."""
    sign = 1.0 if history.is_maximized else -1.0
    rows = sorted(history.succeeded, key=lambda row: sign * (row.value or 0.0))
    names = parameter_names(rows)
    if not names:
        return None
    axes = [parameter_axis(name, [row.parameters.get(name) for row in rows], space_of(history, name)) for name in names]
    values = [float(row.value or 0.0) for row in rows]
    axes.append(parameter_axis("value", values, {}))
    low, high = (float(quantile) for quantile in np.quantile(values, (0.02, 1.0) if sign > 0 else (0.0, 0.98)))
    if low == high:  # one value only, and so the best
        low, high = low - (sign > 0), high + (sign < 0)
    line = {
        "color": rounded(values),
        "colorscale": _SCALE,
        "reversescale": sign < 0,
        "cmin": low,
        "cmax": high,
        "showscale": True,
        "colorbar": {"title": {"text": "value", "side": "right"}, "thickness": 14, "outlinewidth": 0, "tickfont": FONT},
    }
    trace = {
        "type": "parcoords",
        "dimensions": [axis.dimension for axis in axes],
        "line": line,
        "labelfont": FONT,
        "tickfont": {**FONT, "size": 11},
        "rangefont": {**FONT, "size": 1, "color": "--card"},  # the ticks say it
        "unselected": {"line": {"color": "--grid", "opacity": 0.25}},
    }
    return Figure(
        name="parameters",
        title="Parameters",
        caption="The strongest lines are the best. Drag along an axis to keep what passes there, click it to undo.",
        traces=[trace],
        layout={**look(420), "margin": {"l": 72, "r": 24, "t": 52, "b": 24}},
        min_width=130 * len(axes),
    )


def space_of(history: History, name: str) -> Mapping[str, Any]:
    """What the campaign file says about a parameter: `low`, `high`, `log`…; empty when it says nothing."""
    space = history.settings.get("space")
    entry = space.get(name) if isinstance(space, Mapping) else None
    return entry if isinstance(entry, Mapping) else {}


@dataclass(frozen=True)
class ParameterAxis:
    """Where each evaluation crosses the axis (n,), and the axis' range and ticks, all in the axis' own coordinate."""

    name: str
    positions: list[float | None]
    range: tuple[float, float]
    ticks: dict[float, str]

    @property
    def dimension(self) -> dict[str, Any]:
        """The axis in plotly's format."""
        return {
            "label": label(self.name, 24),
            "values": self.positions,
            "range": list(self.range),
            "tickvals": list(self.ticks),
            "ticktext": list(self.ticks.values()),
        }


def parameter_axis(name: str, values: list[Any], space: Mapping[str, Any]) -> ParameterAxis:
    """The axis of a parameter: numeric (log when the space says so and all values are > 0) or categorical."""
    known = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return _categorical_axis(name, values)
    is_log = bool(space.get("log")) and min(known) > 0
    bounds = [bound for bound in (space.get("low"), space.get("high")) if isinstance(bound, int | float)]
    scale = math.log10 if is_log else float
    placed = [scale(number) for number in [*known, *(bound for bound in bounds if bound > 0 or not is_log)]]
    low, high = min(placed), max(placed)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ticks = _log_ticks(low, high) if is_log else _linear_ticks(low, high)
    if len(known) < len(values):
        low -= 0.12 * (high - low)
        ticks = {low: _MISSING, **ticks}
    positions = rounded(low if value is None else scale(value) for value in values)
    return ParameterAxis(name, positions, (low, high), ticks)


def _categorical_axis(name: str, values: list[Any]) -> ParameterAxis:
    names = [_MISSING if value is None else str(value) for value in values]
    categories = {category: index for index, category in enumerate(sorted(set(names)))}
    step = math.ceil(len(categories) / 24)  # more labels would overlap
    # plotly draws the ticks of this kind of picture as plain text: escaped, they would show their escapes
    ticks = {float(index): one_line(category, 20) for category, index in categories.items() if index % step == 0}
    return ParameterAxis(name, [float(categories[n]) for n in names], (-0.5, len(categories) - 0.5), ticks)


def _linear_ticks(low: float, high: float) -> dict[float, str]:
    """At most `_TICKS` multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / (_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * (1 - 1e-9))
    multiples = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return {n * step: f"{n * step:.6g}" for n in multiples}


def _log_ticks(low: float, high: float) -> dict[float, str]:
    """1, 2, 5 times powers of ten while they are few, else powers of ten alone; linear ticks in less than an octave.

    `low`, `high` and the ticks' positions are decimal logarithms.
    """
    powers = range(math.floor(low), math.ceil(high) + 1)
    for mantissas in ((1, 2, 5), (1,)):
        values = [mantissa * 10.0**power for power in powers for mantissa in mantissas]
        ticks = {
            math.log10(value): f"{value:.3g}" for value in values if low - 1e-9 <= math.log10(value) <= high + 1e-9
        }
        if 2 <= len(ticks) <= _TICKS:
            return ticks
    step = (high - low) / (_TICKS // 2)
    return {low + i * step: f"{10 ** (low + i * step):.3g}" for i in range(_TICKS // 2 + 1)}
