"""Parallel coordinates: one axis for each parameter, and one line for each evaluation, colored by
its value."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bbkb.objectives.parameters import Constant, Parameter, Range
from bbkb.orchestrator.bandit.model.fitting import FIRST_FIT
from bbkb.orchestrator.history.columns import parameter_names
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.report.figure import (
    COLOR_BAR,
    COLOR_SCALE,
    FONT,
    Figure,
    Spec,
    label,
    look,
    quantiles,
    round_values,
    sentences,
)
from bbkb.orchestrator.wording import one_line, printable

_MISSING = "none"  # the tick of an inactive conditional parameter
_MOST_LINES = 4_000
_LARGEST = 1e300  # of positions
_LEAST_RANGE = 1e-300
_LARGEST_POWER = 308.25  # the largest power of ten that a float can represent


def parallel_coordinates(history: History) -> Figure | None:
    """Return all successful trials with their parameters, the best on top; None if there are
    none."""
    rows = sorted(sample_results(history, _MOST_LINES, 4), key=history.worth)
    names = parameter_names(rows, history.settings.space)
    if not names:
        return None
    axes = _axes(history, rows, names)
    trace = {
        "type": "parcoords",
        "dimensions": [axis.dimension for axis in axes],
        "line": _line_colors(rows, is_maximized=history.is_maximized),
        "labelfont": FONT,
        "tickfont": {**FONT, "size": 11},
        "rangefont": {**FONT, "size": 1, "color": "--card"},  # invisible: the ticks show the range
        "unselected": {"line": {"color": "--grid", "opacity": 0.25}},
    }
    return Figure(
        name="parameters",
        title="Parallel coordinates",
        caption=sentences(
            "Drag along an axis to keep the lines that pass there, click it to undo.",
            any(row.is_feasible is False for row in rows) and "Infeasible trials have the color of the worst value.",
            len(rows) < FIRST_FIT and f"Importance and slices are drawn from {FIRST_FIT} results on.",
        ),
        is_wide=True,
        traces=[trace],
        layout={**look(420), "margin": {"l": 72, "r": 24, "t": 52, "b": 24}},
        min_width=130 * len(axes),
    )


def _axes(history: History, rows: list[TrialRow], names: list[str]) -> list["ParameterAxis"]:
    space = history.settings.space
    columns = [(name, [row.parameters.get(name) for row in rows]) for name in names]
    axes = [parameter_axis(name, values, space.get(name)) for name, values in columns]
    if history.goals.constraints:
        answers = ["no" if row.is_feasible is False else "yes" for row in rows]
        axes.append(parameter_axis("feasible", answers))
    return [*axes, parameter_axis("value", [row.value for row in rows])]


def _line_colors(rows: list[TrialRow], is_maximized: bool) -> Spec:
    """Return the color of each line by its value; infeasible results have the worst color.

    If no result is feasible, all colors follow the values.
    """
    values = np.array([row.value or 0.0 for row in rows])
    is_feasible = np.array([row.is_feasible is not False for row in rows])
    if not is_feasible.any():
        is_feasible[:] = True
    low, high = quantiles(values[is_feasible], *((0.02, 1.0) if is_maximized else (0.0, 0.98)))
    if low == high:  # a single value has the color of the best one
        low, high = (low - 1, high) if is_maximized else (low, high + 1)
    return {
        "color": round_values(np.where(is_feasible, values, low if is_maximized else high)),
        "colorscale": COLOR_SCALE,
        "reversescale": not is_maximized,
        "cmin": low,
        "cmax": high,
        "showscale": True,
        "colorbar": {**COLOR_BAR, "title": {"text": "value", "side": "right", "font": FONT}},
    }


def sample_results(history: History, most: int, share: int) -> list[TrialRow]:
    """Return at most about `most` results in the order of arrival.

    If there are more, `most` / `share` of the sample are the best results, and the others are
    spread evenly over the campaign.
    """
    rows = history.succeeded
    if len(rows) <= most:
        return rows
    best = heapq.nlargest(most // share, range(len(rows)), lambda index: history.worth(rows[index]))
    evenly = np.linspace(0, len(rows) - 1, most - len(best)).astype(np.intp)
    return [rows[index] for index in np.unique([*best, *evenly])]


@dataclass(frozen=True)
class ParameterAxis:
    """The axis of a parameter."""

    name: str
    positions: list[float | None]  # (n,) the position of each evaluation
    range: tuple[float, float]
    ticks: dict[float, str]  # position → label
    is_stepped: bool = False  # whether positions are the indices 0, 1, … of steps

    @property
    def dimension(self) -> Spec:
        """The axis in plotly's format."""
        ticks = {"tickvals": list(self.ticks), "ticktext": list(self.ticks.values())} if self.ticks else {}
        return {"label": label(self.name, 24), "values": self.positions, "range": list(self.range), **ticks}


def parameter_axis(name: str, values: Sequence[Any], parameter: Parameter | None = None) -> ParameterAxis:
    """Return the axis of a parameter: a range (linear or logarithmic), steps or categories.

    Args:
        name: the parameter's name.
        values: the values (n,) of the trials. None if the parameter is inactive.
        parameter: the parameter in the space. It is None for candidates from a table, whose values
            then determine the kind of axis.
    """
    if parameter is not None and not isinstance(parameter, Range | Constant):
        return _step_axis(name, values, parameter.levels)
    present: list[Any] = [value for value in values if value is not None]
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)
    if not present or not are_numbers:
        return _step_axis(name, values, sorted({str(value) for value in present}))
    return _numeric_axis(name, values, present, parameter if isinstance(parameter, Range) else None)


def _numeric_axis(
    name: str, values: Sequence[float | None], present: list[float], parameter: Range | None
) -> ParameterAxis:
    is_log = parameter is not None and parameter.log
    bounds = [] if parameter is None else [parameter.low, parameter.high]
    scale = math.log10 if is_log else float
    scaled = [clip(scale(number)) for number in [*present, *bounds]]
    low, high = min(scaled), max(scaled)
    if high - low < _LEAST_RANGE:
        margin = max(0.5, 1e-3 * abs(low))  # added to a large value, 0.5 would be rounded away
        low, high = low - margin, high + margin
    ticks = _log_ticks(low, high) if is_log else {}
    if len(present) < len(values):
        ticks = ticks or {at: f"{at:.4g}" for at in np.linspace(low, high, 5).tolist()}
        low -= 0.12 * (high - low)
        ticks = {low: _MISSING, **ticks}
    positions = round_values(low if value is None else clip(scale(value)) for value in values)
    return ParameterAxis(name, positions, (low, high), ticks)


def clip(position: float) -> float:
    """Clip a position so that differences of positions cannot overflow."""
    return max(-_LARGEST, min(position, _LARGEST))


def _log_ticks(low: float, high: float) -> dict[float, str]:
    """Return ticks at powers of ten, or also at 2 and 5 times them, or evenly spaced ones, so that
    there are at least two. Positions are decimal logarithms."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for mantissas in ((1,), (1, 2, 5)):
        ticks = [power + math.log10(mantissa) for power in powers for mantissa in mantissas]
        ticks = [at for at in ticks if low - 1e-9 <= at <= high + 1e-9]
        if len(ticks) > 2:
            break
    else:
        ticks = np.linspace(low, high, 5).tolist()
    every = math.ceil(len(ticks) / 8)
    return {at: f"{10 ** min(at, _LARGEST_POWER):.3g}" for at in ticks[::every]}


def _step_axis(name: str, values: Sequence[object], levels: Sequence[object]) -> ParameterAxis:
    """Return an axis with a step for each level, in order, and then for every other value."""
    cells = [_MISSING if value is None else str(value) for value in values]
    steps = list(dict.fromkeys([*(_MISSING if level is None else str(level) for level in levels), *cells]))
    index = {step: float(position) for position, step in enumerate(steps)}
    every = math.ceil(len(steps) / 24)  # more labels would overlap
    # Not escaped, because plotly draws the ticks of parallel coordinates as plain text
    ticks = {index[step]: one_line(printable(step), 20) for step in steps[::every]}
    positions: list[float | None] = [index[cell] for cell in cells]
    return ParameterAxis(name, positions, (-0.5, len(steps) - 0.5), ticks, is_stepped=True)
