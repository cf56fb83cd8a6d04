"""Parallel coordinates: one axis for each parameter, one line for each evaluation, coloured by its
value."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from objectives.parameters import Constant, Parameter, Range
from orchestrator.bandit.model.fitting import FIRST_FIT
from orchestrator.history.export import parameter_names
from orchestrator.history.fold import History
from orchestrator.history.rows import TrialRow
from orchestrator.report.figure import FONT, Figure, Spec, label, look, quantiles, round_values
from orchestrator.wording import one_line, printable

_MISSING = "none"  # tick of a conditional parameter that is inactive
_LARGEST_POWER = 308.25  # of ten, that a float can have
# of positions on an axis, so that its ticks can be computed
_LARGEST = 1e300
_LEAST_RANGE = 1e-300
_TICKS = 8
_MOST_LINES = 10_000
_SCALE = [[0, "--scale-worst"], [0.75, "--scale-middle"], [1, "--scale-best"]]  # ordered in lightness


def parallel_coordinates(history: History) -> Figure | None:
    """Return all successful trials over their parameters, the best last; None without any."""
    sign = history.sign
    rows = sorted(sample_results(history, _MOST_LINES, 4), key=history.worth)
    names = parameter_names(rows)
    if not names:
        return None
    space = history.settings.space
    axes = [parameter_axis(name, [row.parameters.get(name) for row in rows], space.get(name)) for name in names]
    values = [float(row.value or 0.0) for row in rows]
    if history.goals.constraints:
        axes.append(parameter_axis("feasible", ["no" if row.is_feasible is False else "yes" for row in rows]))
    axes.append(parameter_axis("value", values))
    feasible = [value for row, value in zip(rows, values, strict=True) if row.is_feasible is not False]
    low, high = quantiles(feasible or values, *((0.02, 1.0) if sign > 0 else (0.0, 0.98)))
    if low == high:  # a single value is the best one
        low, high = low - (sign > 0), high + (sign < 0)
    worst = low if sign > 0 else high
    colours = [worst if feasible and row.is_feasible is False else row.value or 0.0 for row in rows]
    line = {
        "color": round_values(colours),
        "colorscale": _SCALE,
        "reversescale": sign < 0,
        "cmin": low,
        "cmax": high,
        "showscale": True,
        "colorbar": {
            "title": {"text": "value", "side": "right", "font": FONT},
            "thickness": 14,
            "outlinewidth": 0,
            "tickfont": FONT,
        },
    }
    trace = {
        "type": "parcoords",
        "dimensions": [axis.dimension for axis in axes],
        "line": line,
        "labelfont": FONT,
        "tickfont": {**FONT, "size": 11},
        "rangefont": {**FONT, "size": 1, "color": "--card"},  # the ticks show it
        "unselected": {"line": {"color": "--grid", "opacity": 0.25}},
    }
    return Figure(
        name="parameters",
        title="Parallel coordinates",
        caption=_caption(len(rows), len(feasible)),
        traces=[trace],
        layout={**look(420), "margin": {"l": 72, "r": 24, "t": 52, "b": 24}},
        min_width=130 * len(axes),
    )


def _caption(results: int, feasible: int) -> str:
    """Return the caption of the picture of `results` trials, `feasible` of which satisfy all
    constraints."""
    caption = (
        "One line per trial; the strongest lines are the best. Drag along an axis to keep the lines that pass there, "
        "click it to undo."
    )
    if not feasible:
        caption += " No result satisfies all constraints: the colours are those of the values alone."
    elif feasible < results:
        caption += " Those that break a constraint have the colour of the worst."
    if results < FIRST_FIT:
        caption += (
            f" Importance, slices and contours of the parameters are drawn from {FIRST_FIT} trials on that ran to "
            f"their end: {results} did."
        )
    return caption


def sample_results(history: History, most: int, share: int) -> list[TrialRow]:
    """Return all results if they are at most `most`; else the best 1/`share` of that many, and
    others evenly over the campaign."""
    rows = history.succeeded
    if len(rows) <= most:
        return rows
    best = heapq.nlargest(most // share, range(len(rows)), key=lambda place: history.worth(rows[place]))
    evenly = np.linspace(0, len(rows) - 1, most - len(best)).astype(np.intp)
    return [rows[place] for place in np.unique([*best, *evenly])]


@dataclass(frozen=True)
class ParameterAxis:
    """A parameter's axis: positions (n,) at which evaluations cross it, range and ticks."""

    name: str
    positions: list[float | None]
    range: tuple[float, float]
    ticks: dict[float, str]
    is_stepped: bool = False  # positions are the numbers of steps, 0, 1, …

    @property
    def dimension(self) -> Spec:
        """The axis in plotly's format."""
        return {
            "label": label(self.name, 24),
            "values": self.positions,
            "range": list(self.range),
            "tickvals": list(self.ticks),
            "ticktext": list(self.ticks.values()),
        }


def parameter_axis(name: str, values: Sequence[Any], parameter: Parameter | None = None) -> ParameterAxis:
    """Return the axis of a parameter: its range (logarithmic where the space says so), its steps,
    or its categories.

    `values` (n,) are the trials'; None: the parameter is inactive there. Without a `parameter` (the
    candidates are a table's rows) the values tell the kind.
    """
    if parameter is not None and not isinstance(parameter, Range | Constant):
        return _step_axis(name, values, parameter.levels)
    present: list[Any] = [value for value in values if value is not None]
    if not present or not all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return _step_axis(name, values, sorted({str(value) for value in present}))
    return _numeric_axis(name, values, present, parameter if isinstance(parameter, Range) else None)


def _numeric_axis(
    name: str, values: Sequence[float | None], present: list[float], parameter: Range | None
) -> ParameterAxis:
    is_log = parameter is not None and parameter.log
    bounds = [] if parameter is None else [parameter.low, parameter.high]
    scale = math.log10 if is_log else float
    placed = [_clip(scale(number)) for number in [*present, *bounds]]
    low, high = min(placed), max(placed)
    if high - low < _LEAST_RANGE:
        margin = max(0.5, 1e-3 * abs(low))  # beside a large value, 0.5 would be lost in rounding
        low, high = low - margin, high + margin
    ticks = _log_ticks(low, high) if is_log else _linear_ticks(low, high)
    if len(present) < len(values):
        low -= 0.12 * (high - low)
        ticks = {low: _MISSING, **ticks}
    positions = round_values(low if value is None else _clip(scale(value)) for value in values)
    return ParameterAxis(name, positions, (low, high), ticks)


def _clip(position: float) -> float:
    """Return a position whose differences to others do not overflow."""
    return max(-_LARGEST, min(position, _LARGEST))


def _step_axis(name: str, values: Sequence[object], levels: Sequence[object]) -> ParameterAxis:
    """Return a step for each level, in the given order, then for every other value."""
    cells = [_MISSING if value is None else str(value) for value in values]
    steps = list(dict.fromkeys([*(_MISSING if level is None else str(level) for level in levels), *cells]))
    index = {step: float(position) for position, step in enumerate(steps)}
    every = math.ceil(len(steps) / 24)  # more labels would overlap
    # plotly draws the ticks of this kind of picture as plain text: escaped, they would show their
    # escapes
    ticks = {
        float(position): one_line(printable(step), 20) for position, step in enumerate(steps) if position % every == 0
    }
    return ParameterAxis(name, [index[step] for step in cells], (-0.5, len(steps) - 0.5), ticks, is_stepped=True)


def _linear_ticks(low: float, high: float) -> dict[float, str]:
    """List at most `_TICKS` multiples of 1, 2 or 5 times a power of ten, with their labels."""
    rough = (high - low) / (_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * (1 - 1e-9))
    multiples = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return {n * step: f"{n * step:.6g}" for n in multiples}


def _log_ticks(low: float, high: float) -> dict[float, str]:
    """Return 1, 2, 5 times powers of ten while they are few, else powers of ten alone; linear ticks
    in less than an octave.

    `low`, `high` and the ticks' positions are decimal logarithms.
    """
    powers = range(math.floor(low), math.ceil(high) + 1)
    for mantissas in ((1, 2, 5), (1,)):
        places = {power + math.log10(mantissa): f"{mantissa}e{power}" for power in powers for mantissa in mantissas}
        ticks = {
            place: f"{float(number):.3g}" for place, number in places.items() if low - 1e-9 <= place <= high + 1e-9
        }
        if 2 <= len(ticks) <= _TICKS:
            return ticks
    step = (high - low) / (_TICKS // 2)
    return {low + i * step: f"{10 ** min(low + i * step, _LARGEST_POWER):.3g}" for i in range(_TICKS // 2 + 1)}
