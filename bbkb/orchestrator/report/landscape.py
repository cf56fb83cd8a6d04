"""The value as a function of the parameters: parallel coordinates, importance and slices.

Importance and slices are drawn from a model: the posterior of BBKB with its calibrated model, told at
most `MOST_RESULTS` results of the campaign. It does not depend on the campaign's strategy, so all
campaigns have the same figures. Values are clipped at three robust standard deviations from the
median. The deviation is at least that of the earliest results, because later results concentrate
near the optimum.

Positions are the coordinates of the axes (`ParameterAxis`): logarithms for a logarithmic range, and
indices of steps for choices. Codes and features are those of `bbkb.objectives.coding`.
"""

import heapq
import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives import coding
from bbkb.objectives.parameters import Choice, Constant, Parameter, Range
from bbkb.objectives.space import order_parameters, without_inactive
from bbkb.orchestrator.bandit.arms import Arms
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
    visible_range,
)
from bbkb.orchestrator.wording import joined, one_line, plural, printable

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
    space = history.settings.space
    names = parameter_names(rows, space)
    if not names:
        return None
    axes = [parameter_axis(name, [row.parameters.get(name) for row in rows], space.get(name)) for name in names]
    values = np.array([row.value or 0.0 for row in rows])
    is_feasible = np.array([row.is_feasible is not False for row in rows])
    is_any_infeasible = not is_feasible.all()
    if history.goals.constraints:
        axes.append(parameter_axis("feasible", ["yes" if each else "no" for each in is_feasible]))
    axes.append(parameter_axis("value", [row.value for row in rows]))
    if not is_feasible.any():  # the colors of all lines follow the values
        is_feasible[:] = True
    low, high = quantiles(values[is_feasible], *((0.02, 1.0) if history.is_maximized else (0.0, 0.98)))
    if low == high:  # a single value has the color of the best one
        low, high = (low - 1, high) if history.is_maximized else (low, high + 1)
    dimensions = []
    for each in axes:
        ticks = {"tickvals": list(each.ticks), "ticktext": list(each.ticks.values())} if each.ticks else {}
        dimensions.append({"label": label(each.name, 24), "values": each.positions, "range": list(each.range), **ticks})
    trace = {
        "type": "parcoords",
        "dimensions": dimensions,
        "line": {
            "color": round_values(np.where(is_feasible, values, low if history.is_maximized else high)),
            "colorscale": COLOR_SCALE,
            "reversescale": not history.is_maximized,
            "cmin": low,
            "cmax": high,
            "showscale": True,
            "colorbar": {**COLOR_BAR, "title": {"text": "value", "side": "right", "font": FONT}},
        },
        "labelfont": FONT,
        "tickfont": {**FONT, "size": 11},
        "rangefont": {**FONT, "size": 1, "color": "--card"},  # invisible: the ticks show the range
        "unselected": {"line": {"color": "--grid", "opacity": 0.25}},
    }
    return Figure(
        name="parameters",
        title="Parallel coordinates",
        caption=joined(
            " ",
            "Drag along an axis to keep the lines that pass there, click it to undo.",
            is_any_infeasible and "Infeasible trials have the color of the worst value.",
            len(rows) < FIRST_FIT and f"Importance and slices are drawn from {FIRST_FIT} results on.",
        ),
        is_wide=True,
        traces=[trace],
        layout={**look(420), "margin": {"l": 72, "r": 24, "t": 52, "b": 24}},
        min_width=130 * len(axes),
    )


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


def parameter_axis(name: str, values: Sequence[Any], parameter: Parameter | None = None) -> ParameterAxis:
    """Return the axis of a parameter: a range (linear or logarithmic), steps or categories.

    Args:
        name: the parameter's name.
        values: the values (n,) of the trials. None if the parameter is inactive.
        parameter: the parameter in the space. It is None for candidates from a table, whose values
            then determine the kind of axis.
    """
    present: list[Any] = [value for value in values if value is not None]
    if parameter is not None and not isinstance(parameter, Range | Constant):
        return _step_axis(name, values, parameter.levels)
    if not are_numbers(present):
        return _step_axis(name, values, sorted({str(value) for value in present}))
    is_log = isinstance(parameter, Range) and parameter.log
    bounds = [parameter.low, parameter.high] if isinstance(parameter, Range) else []
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


def are_numbers(values: Sequence[object]) -> bool:
    """Return whether there are values, and all are numbers."""
    return bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


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
    return ParameterAxis(name, positions, (-0.5, len(steps) - 0.5), ticks)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A model of the value as a function of the parameters that vary."""

    axes: tuple[ParameterAxis, ...]  # (p,), with the positions of the n results
    # for each parameter, the line through the best result: positions, mean and deviation of the value
    lines: tuple[tuple[list[float | None], Floats, Floats], ...]
    are_choices: tuple[bool, ...]  # (p,), whether the values have no order
    values: Floats  # (n,), the values of these results, on the user's scale
    is_feasible: NDArray[np.bool_]  # (n,), False for a result that violates a constraint
    best: int  # the best feasible result, or the best one if none is feasible
    absent: tuple[str, ...]  # conditional parameters that are inactive in the best result
    left_out: int  # the number of early-stopped trials, which have no result
    mean: Floats  # (n,), the noise-free value of each result, with its deviation (n,)
    deviation: Floats
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
    if len(rows) < FIRST_FIT:
        return None
    values = np.array([row.value for row in rows], dtype=float)
    center, spread, scores = _standardize(values)
    given = history.settings.space
    space: dict[str, Parameter] = {}
    columns: dict[str, list[Any]] = {}
    for name in list(given) or parameter_names(rows):
        column: list[Any] = [row.parameters.get(name) for row in rows]
        space[name] = given[name] if name in given else _of_table(column)
        columns[name] = column
    varying = [
        number
        for number, (name, column) in enumerate(columns.items())
        if len({str(value) for value in column}) > 1 and coding.width(space[name])
    ]
    if spread <= 0.0 or not varying:
        return None
    names = [list(space)[number] for number in varying]
    best = max(range(len(rows)), key=lambda index: history.worth(rows[index]))
    encoded = [coding.encode(space[name], np.array(column, object)) for name, column in columns.items()]
    codes = np.stack(encoded, axis=1)

    def features(of: Floats) -> Floats:
        return np.hstack([coding.features(space[name], of[:, n]) for n, name in zip(varying, names, strict=True)])

    grids = [coding.spread_codes(space[name], _LINE) for name in names]
    for index, (number, name) in enumerate(zip(varying, names, strict=True)):
        if not coding.is_real(space[name]) and not np.isnan(codes[best, number]):
            grids[index] = np.union1d(grids[index], codes[best, number])  # of many levels, not all are in a grid
    through_best = [np.tile(codes[best], (len(grid), 1)) for grid in grids]
    for number, grid, line in zip(varying, grids, through_best, strict=True):
        line[:, number] = grid
    draws = _saltelli(space, varying, codes[best])
    # the posterior knows only arms, so every position that is drawn is one; equal results are one arm
    distinct, arms = np.unique(features(codes), axis=0, return_inverse=True)
    arms = arms.ravel()
    owners = np.repeat(np.arange(len(names)), [coding.width(space[name]) for name in names])
    candidates = Arms.of(np.concatenate([distinct, *map(features, through_best), *map(features, draws)]), owners)
    strategy = BBKB(**with_preset(BBKB, {"model": Model(outputs=Outputs.RAW)}))
    rewards = history.sign * scores
    pulls = [Observation(int(arm), float(reward)) for arm, reward in zip(arms, rewards, strict=True)]
    state = strategy.tell(strategy.init(candidates, np.random.default_rng(0)), pulls, np.random.default_rng(0))
    belief = strategy.posterior(state)
    mean, deviation = center + spread * history.sign * belief.mean, spread * belief.deviation
    ends = len(distinct) + np.cumsum([len(grid) for grid in grids])
    lines = []
    for name, grid, end in zip(names, grids, ends, strict=True):
        levels = coding.values(space[name], grid).tolist()
        part = slice(end - len(grid), end)
        lines.append((parameter_axis(name, levels, space[name]).positions, mean[part], deviation[part]))
    # of the standardized values: a square could overflow on the user's scale
    alone, total = _sobol(belief.mean[ends[-1] :].reshape(len(draws), -1))
    return Surrogate(
        axes=tuple(parameter_axis(name, columns[name], space[name]) for name in names),
        lines=tuple(lines),
        are_choices=tuple(isinstance(space[name], Choice) for name in names),
        values=values,
        is_feasible=np.array([row.is_feasible is not False for row in rows]),
        best=best,
        absent=tuple(name for name in names if columns[name][best] is None and space[name].when is not None),
        left_out=history.campaign.totals.stopped,
        mean=mean[arms],
        deviation=deviation[arms],
        alone=alone,
        total=total,
    )


def _saltelli(space: Mapping[str, Parameter], varying: list[int], best: Floats) -> list[Floats]:
    """Return Saltelli's draws of codes: two independent ones over the whole space, and for each of the parameters
    with the numbers `varying` the first one with this parameter of the second.

    They are of a Latin hypercube (McKay, Beckman and Conover 1979): an import of `scipy.stats` takes a second. Other
    parameters have their code in `best`.
    """
    count = len(varying)
    points = min(_SOBOL_POINTS, _MOST_DRAWS // (count + 2) + 8)
    rng = np.random.default_rng(0)
    strata = rng.permuted(np.tile(np.arange(points), (2 * count, 1)), axis=1)
    shares = (strata + rng.random(strata.shape)) / points
    first, second = shares[:count], shares[count:]
    parameters, order = list(space.values()), order_parameters(space)
    draws = []
    for block in (first, second, *(np.where(np.eye(count)[n][:, None], second, first) for n in range(count))):
        drawn = np.tile(best, (points, 1))
        for number, share in zip(varying, block, strict=True):
            drawn[:, number] = coding.draw(parameters[number], share)
        draws.append(without_inactive(space, order, drawn))
    return draws


def _of_table(column: list[Any]) -> Parameter:
    """Return a parameter with the values of a table, which it changes to values of the parameter. It does
    not vary if there are too many categories."""
    if are_numbers(column):
        column[:] = [clip(float(value)) for value in column]
        return Range(min(column), max(column)) if min(column) < max(column) else Constant(column[0])
    column[:] = [_MISSING if value is None else str(value) for value in column]
    levels = sorted(set(column))
    if 1 < len(levels) <= _LARGEST_CHOICE:
        return Choice(tuple(levels))
    column[:] = [levels[0]] * len(column)
    return Constant(levels[0])


def _sobol(means: Floats) -> tuple[Floats, Floats]:
    """Return the Sobol indices from the means at Saltelli's draws (Saltelli et al. 2010, table 2,
    estimators b and f)."""
    values, others, *changed = means
    variance = float(values.var())
    if variance <= 1e-12:
        return np.zeros(len(changed)), np.zeros(len(changed))
    changes = np.array(changed) - values
    total = 0.5 * np.mean(changes**2, axis=1) / variance
    return np.clip(np.mean((others - others.mean()) * changes, axis=1) / variance, 0.0, total), total


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
    through_best = [index for index in order if surrogate.axes[index].name not in surrogate.absent]
    return [
        importance(surrogate),
        *([slices(surrogate, through_best, is_maximized)] if through_best else []),
    ]


def importance(surrogate: Surrogate) -> Figure:
    """Return bars with the total Sobol index of each parameter, the most important at the top, and
    inside them bars with the first-order index."""
    alone, total = surrogate.alone, surrogate.total
    rising = np.argsort(total, kind="stable")
    names = [label(surrogate.axes[index].name, 28) for index in rising]
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
    some = np.unique(np.linspace(0, len(surrogate.values) - 1, _MOST_POINTS).astype(np.intp))
    traces: list[Spec] = []
    frame: Spec = {
        **look(24 + 230 * lines),
        "margin": {"l": 56, "r": 16, "t": 16, "b": 40},
        "grid": {"rows": lines, "columns": columns, "pattern": "independent", "xgap": 0.14, "ygap": 0.3},
    }
    for panel, parameter in enumerate(shown):
        suffix = str(panel + 1) if panel else ""
        of_parameter = surrogate.axes[parameter]
        positions, mean, deviation = surrogate.lines[parameter]
        results = scatter(
            "markers",
            [of_parameter.positions[index] for index in some],
            surrogate.values[some],
            marker={"color": "--point", "size": 5, "opacity": 0.6},
        )
        if surrogate.are_choices[parameter]:  # there are no values between choices
            bar = {"array": round_values(2 * deviation), "color": "--accent", "thickness": 2, "width": 8}
            mark = {"color": "--accent", "size": 9, "symbol": "diamond"}
            drawn = [results, scatter("markers", positions, mean, error_y=bar, marker=mark)]
        else:
            around = np.concatenate((mean + 2 * deviation, (mean - 2 * deviation)[::-1]))
            edge = {"width": 0, "color": "--accent"}
            across = [*positions, *positions[::-1]]
            band = scatter("lines", across, around, line=edge, fill="toself", fillcolor="--fill")
            curve = scatter("lines", positions, mean, line={"color": "--accent", "width": 2.5})
            drawn = [band, results, curve]
        traces += [trace | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "hoverinfo": "skip"} for trace in drawn]
        # as many ticks as fit side by side
        texts = {at: label(text, 12) for at, text in sorted(of_parameter.ticks.items())}
        room = max((len(html.unescape(text)) for text in texts.values()), default=0) + 2
        at = list(texts)[:: math.ceil(len(texts) * room / _PANEL_CHARACTERS) or 1]
        ticks = {"tickvals": at, "ticktext": [texts[each] for each in at]} if texts else {"nticks": 4}
        low, high = of_parameter.range
        margin = 0.02 * (high - low)  # shows the points at the ends completely
        frame[f"xaxis{suffix}"] = axis(label(of_parameter.name, 28), range=[low - margin, high + margin], **ticks)
        frame[f"yaxis{suffix}"] = axis("value", nticks=5) | (
            ({"title": None, "showticklabels": False} if panel % columns else {})
            | ({"matches": "y"} if panel else {})
            | ({} if visible is None else {"range": list(visible)})
        )
    return Figure(
        name="slices",
        title="Slices",
        caption=joined(
            " ",
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
