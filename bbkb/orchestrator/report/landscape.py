"""The value as a function of the parameters: parallel coordinates, importance and slices.

Importance and slices are drawn from a model: the posterior of BBKB with its calibrated model, told at
most `MOST_RESULTS` results of the campaign. It does not depend on the campaign's strategy, so all
campaigns have the same figures. Values are clipped at three robust standard deviations from the
median. The deviation is at least that of the earliest results, because later results concentrate
near the optimum.

Positions are the coordinates of the axes (`ParameterAxis`): logarithms for a logarithmic range, and
indices of steps for choices. The features of the model are in the unit cube; choices are one-hot
vectors divided by √2.
"""

import heapq
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.coding import draw
from bbkb.objectives.coding import values as values_of
from bbkb.objectives.constraints import order_parameters, without_inactive
from bbkb.objectives.parameters import Choice, Constant, Parameter, Range, Space
from bbkb.orchestrator.bandit.arms import Arms, Layout
from bbkb.orchestrator.bandit.model.fitting import FIRST_FIT
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import Outputs
from bbkb.orchestrator.bandit.results import LARGEST_REWARD, Observation
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.history.fold import History, TrialRow
from bbkb.orchestrator.history.tables import parameter_names
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
    quantiles,
    round_values,
    scatter,
    sentences,
    visible_range,
)
from bbkb.orchestrator.wording import one_line, plural, printable

Floats = NDArray[np.float64]

MOST_RESULTS = 1500  # of which the model is told
EARLIEST = 32  # results that are spread over the space
_LARGEST_CHOICE = 24  # parameters from a table with more categories are ignored
_WINSOR = 3.0
_SOBOL_POINTS, _MOST_DRAWS = 1024, 20_000  # points of each estimate, and of all
_LINE = 61  # grid points of a slice
_MOST_SLICES = 9
_MOST_POINTS = 400  # results drawn in each panel
_PANEL_CHARACTERS = 28  # the number of characters of tick labels that fit below a slice
_MISSING = "none"  # the tick of an inactive conditional parameter
_MOST_LINES = 4_000  # of parallel coordinates
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


@dataclass(frozen=True, eq=False)
class Dimension:
    """A parameter that varies: its axis and its features in the model."""

    axis: ParameterAxis
    is_choice: bool  # whether its steps have no order

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.axis.name

    def features(self, positions: Floats) -> Floats:
        """Return the features (n, k) of `positions` (n,), clipped to the axis."""
        low, high = self.axis.range
        if not self.is_choice:
            return np.clip((positions - low) / (high - low), 0.0, 1.0)[:, None]
        steps = np.clip(np.rint(positions), 0, len(self.levels) - 1).astype(np.intp)
        return np.asarray(np.eye(len(self.levels))[steps] / np.sqrt(2.0))

    def grid(self, count: int) -> Floats:
        """Return positions (m,) that cover the axis: all steps, or `count` evenly spaced ones."""
        return np.array(self.levels) if self.axis.is_stepped else np.linspace(*self.axis.range, count)

    def at(self, shares: Floats) -> Floats:
        """Return the positions at `shares` (n,) of the axis, in [0, 1)."""
        if self.axis.is_stepped:
            return np.minimum(np.floor(shares * len(self.levels)), len(self.levels) - 1.0)
        low, high = self.axis.range
        return np.asarray(low + shares * (high - low))

    @property
    def levels(self) -> list[float]:
        """The positions of the steps of a stepped axis."""
        return [float(step) for step in range(round(self.axis.range[1] + 0.5))]


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A model of the value as a function of the parameters."""

    dimensions: tuple[Dimension, ...]
    positions: Floats  # (n, p), the positions of the results
    values: Floats  # (n,), the values of these results, on the user's scale
    is_feasible: NDArray[np.bool_]  # (n,), False for a result that violates a constraint
    best: Floats  # (p,), the best feasible result, or the best one if none is feasible
    absent: tuple[str, ...]  # conditional parameters that are inactive in the best result
    left_out: int  # the number of early-stopped trials, which have no result
    mean: Floats  # (n,), the noise-free value at `positions`, with its deviation (n,)
    deviation: Floats
    # for each parameter, the line through the best result: positions, mean and deviation of the value
    lines: tuple[tuple[Floats, Floats, Floats], ...]
    # (p,), the first-order and the total Sobol index of each parameter: the shares of the variance of
    # the mean over the whole space to which it contributes alone, and alone or together with others.
    # The total indices may sum to more than 1.
    alone: Floats
    total: Floats


def fit_surrogate(history: History) -> Surrogate | None:
    """Return the model of the results.

    None if there are fewer than `FIRST_FIT` results, or if no parameter or no value varies.
    """
    rows = sample_results(history, MOST_RESULTS, 3)
    dimensions = _dimensions(history, rows)
    values = np.array([row.value for row in rows], dtype=float)
    if len(rows) < FIRST_FIT or not dimensions:
        return None
    center, spread, scores = _standardize(values)
    if spread <= 0.0:
        return None
    positions = np.column_stack([np.array(dimension.axis.positions, dtype=float) for dimension in dimensions])
    best = max(range(len(rows)), key=lambda index: history.worth(rows[index]))
    space = history.settings.space
    draws = _draws(space, dimensions)
    grids = [dimension.grid(_LINE) for dimension in dimensions]
    through_best = [np.tile(positions[best], (len(grid), 1)) for grid in grids]
    for parameter, grid in enumerate(grids):
        through_best[parameter][:, parameter] = grid
    # the posterior knows only arms, so every position that is drawn is one; equal results are one arm
    distinct, arms = np.unique(_encode(dimensions, positions), axis=0, return_inverse=True)
    lines = _encode(dimensions, np.concatenate(through_best))
    features = np.concatenate([distinct, lines, *(_encode(dimensions, each) for each in draws)])
    fitted, error = _posterior(dimensions, features, arms.ravel(), history.sign * scores)
    mean, deviation = center + spread * history.sign * fitted, spread * error
    first = len(distinct)
    ends = first + np.cumsum([len(grid) for grid in grids])
    parts = [slice(end - len(grid), end) for grid, end in zip(grids, ends, strict=True)]
    alone, total = _sobol(fitted[ends[-1] :].reshape(len(draws), -1))  # a square could overflow on the user's scale
    present = rows[best].parameters
    return Surrogate(
        dimensions=dimensions,
        positions=positions,
        values=values,
        is_feasible=np.array([row.is_feasible is not False for row in rows]),
        best=positions[best],
        absent=tuple(
            name
            for name in (dimension.name for dimension in dimensions)
            if present.get(name) is None and name in space and space[name].when is not None
        ),
        left_out=history.campaign.totals.stopped,
        mean=mean[:first][arms.ravel()],
        deviation=deviation[:first][arms.ravel()],
        lines=tuple((grid, mean[part], deviation[part]) for grid, part in zip(grids, parts, strict=True)),
        alone=alone,
        total=total,
    )


def _posterior(
    dimensions: Sequence[Dimension], features: Floats, arms: NDArray[np.intp], rewards: Floats
) -> tuple[Floats, Floats]:
    """Return the mean reward and its deviation at `features` (m, k), of which the rows `arms` (n,) have
    the results `rewards` (n,)."""
    widths = [dimension.features(np.zeros(1)).shape[1] for dimension in dimensions]
    owners = np.repeat(np.arange(len(dimensions)), widths).astype(np.intp)
    candidates = Arms(features, Layout(parameters=owners, extents=np.ones(len(dimensions))))
    strategy = BBKB(**with_preset(BBKB, {"model": Model(outputs=Outputs.RAW)}))
    pulls = [Observation(int(arm), float(reward)) for arm, reward in zip(arms, rewards, strict=True)]
    state = strategy.tell(strategy.init(candidates, np.random.default_rng(0)), pulls, np.random.default_rng(0))
    belief = strategy.posterior(state)
    return belief.mean, belief.deviation


def _draws(space: Space, dimensions: Sequence[Dimension]) -> list[Floats]:
    """Return the positions (n, p) of Saltelli's estimators: two independent draws over the whole space,
    and for each parameter the first draw with this parameter of the second."""
    count = len(dimensions)
    points = min(_SOBOL_POINTS, _MOST_DRAWS // (count + 2) + 8)
    # a Latin hypercube (McKay, Beckman and Conover 1979); importing `scipy.stats` for it takes a second
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.tile(np.arange(points), (2 * count, 1)), axis=1)
    shares = (strata + rng.random(strata.shape)).T / points
    first, second = shares[:, :count], shares[:, count:]
    changed = [first.copy() for _ in range(count)]
    for parameter, draw_of in enumerate(changed):
        draw_of[:, parameter] = second[:, parameter]
    return [_drawn_positions(space, dimensions, each) for each in (first, second, *changed)]


def _drawn_positions(space: Space, dimensions: Sequence[Dimension], shares: Floats) -> Floats:
    """Return the positions (n, p) at `shares` (n, p), in [0, 1), of the parameters' axes, where a
    parameter exists only if its condition holds."""
    drawn = {dimension.name: column for dimension, column in zip(dimensions, shares.T, strict=True)}
    if all(parameter.when is None for parameter in space.values()):
        return np.column_stack([dimension.at(drawn[dimension.name]) for dimension in dimensions])
    zeros = np.zeros(len(shares))  # for parameters that do not vary
    codes = [draw(space[name], drawn.get(name, zeros)) for name in space]
    existing = without_inactive(space, order_parameters(space), np.stack(codes, axis=1))
    columns = dict(zip(space, existing.T, strict=True))
    axes = (
        parameter_axis(name, values_of(space[name], columns[name]).tolist(), space[name])
        for name in (dimension.name for dimension in dimensions)
    )
    return np.column_stack([np.array(axis.positions, dtype=float) for axis in axes])


def _sobol(means: Floats) -> tuple[Floats, Floats]:
    """Return the Sobol indices from the means at `_draws` (Saltelli et al. 2010, table 2, estimators b
    and f)."""
    values, others, *changed = means
    variance = float(values.var())
    if variance <= 1e-12:
        return np.zeros(len(changed)), np.zeros(len(changed))
    changes = np.array(changed) - values
    total = 0.5 * np.mean(changes**2, axis=1) / variance
    return np.clip(np.mean((others - others.mean()) * changes, axis=1) / variance, 0.0, total), total


def _dimensions(history: History, rows: Sequence[TrialRow]) -> tuple[Dimension, ...]:
    space = history.settings.space
    dimensions = []
    for name in list(space) or parameter_names(rows):
        values: list[object] = [row.parameters.get(name) for row in rows]
        if len({str(value) for value in values}) < 2:
            continue
        axis = parameter_axis(name, values, space.get(name))
        parameter = space.get(name)
        is_choice = axis.is_stepped and isinstance(parameter, Choice | None)
        if not is_choice or axis.range[1] + 0.5 <= _LARGEST_CHOICE or isinstance(parameter, Choice):
            dimensions.append(Dimension(axis, is_choice))
    return tuple(dimensions)


def _encode(dimensions: Sequence[Dimension], positions: Floats) -> Floats:
    columns = zip(dimensions, positions.T, strict=True)
    return np.hstack([dimension.features(column) for dimension, column in columns])


def _standardize(values: Floats) -> tuple[float, float, Floats]:
    """Return center, spread, and the clipped values (n,) in these units."""
    values = np.clip(values, -LARGEST_REWARD, LARGEST_REWARD)
    center = float(np.median(values))
    distances = np.abs(values - center)
    unit = float(distances.max()) or 1.0  # so that no square overflows
    deviation = unit * float(((values - center) / unit).std())
    robust = 1.4826 * max(float(np.median(distances)), float(np.median(distances[:EARLIEST])))
    spread = robust or deviation
    if spread <= 0.0 or not np.isfinite(spread):
        return center, 0.0, np.zeros(len(values))
    scores = np.clip((values - center) / spread, -_WINSOR, _WINSOR)
    scale = float(scores.std()) or 1.0
    shift = float(scores.mean())
    return center + spread * shift, spread * scale, (scores - shift) / scale


def landscape(surrogate: Surrogate | None, is_maximized: bool) -> list[Figure]:
    """Return the figures of importance, slices; none without a model."""
    if surrogate is None:
        return []
    order = [int(index) for index in np.argsort(-surrogate.total, kind="stable")]
    names = [dimension.name for dimension in surrogate.dimensions]
    through_best = [index for index in order if names[index] not in surrogate.absent]
    return [
        importance(surrogate),
        *([slices(surrogate, through_best, is_maximized)] if through_best else []),
    ]


def importance(surrogate: Surrogate) -> Figure:
    """Return bars with the total Sobol index of each parameter, the most important at the top, and
    inside them bars with the first-order index."""
    alone, total = surrogate.alone, surrogate.total
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
    grid, mean, deviation = surrogate.lines[parameter]
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
