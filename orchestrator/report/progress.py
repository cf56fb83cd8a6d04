"""Figures of a campaign's progress by evaluation and by batch.

Regret has its usual definitions. Let f* be the optimum and f(aₜ) the noise-free value of evaluation
t. Simple regret is the minimum of |f* − f(aₛ)| over s ≤ t, and cumulative regret is its sum over
s ≤ t. With constraints, only feasible evaluations count, and f* is still the optimum without
constraints.
"""

import numpy as np
from numpy.typing import NDArray

from orchestrator.history.fold import History
from orchestrator.history.rows import TrialRow
from orchestrator.history.trace import Point
from orchestrator.report.figure import (
    MANY_POINTS,
    Figure,
    Spec,
    axis,
    counting_axis,
    label,
    layout,
    parameters_label,
    round_values,
    sentences,
    short,
    visible_range,
)
from orchestrator.wording import plural

INFEASIBLE: Spec = {"color": "--muted", "size": 5, "symbol": "x"}  # marker of an infeasible result
_FEW_POINTS = 60  # up to this number of steps, each gets a bar
_ON_CONSTRAINTS = "Only results that satisfy all constraints count; the optimum is the one without constraints."


def best_so_far(history: History) -> Figure | None:
    """Return the values in the order of arrival and the best so far; many are thinned out."""
    points = list(history.trace.points())
    if not points:
        return None
    visible = visible_values(history)
    feasible = [point for point in points if point.item.is_feasible is not False]
    infeasible = [point for point in points if point.item.is_feasible is False]
    width = history.trace.width
    caption = sentences(
        (True, best_caption(history, visible)),
        (width > 1, f"Of every {width:,} consecutive results, the best and the worst are drawn."),
    )
    better = "higher" if history.is_maximized else "lower"
    yaxis = axis(f"{label(history.goals.objectives[0].metric)} ({better} is better)")
    if visible is not None:
        yaxis["range"] = list(visible)
    title, end = course_axis(history)
    xaxis = axis(title, rangemode="tozero") if counts_steps(history) else counting_axis(title, end)
    return Figure(
        name="best",
        title="Best so far",
        caption=caption,
        traces=[
            _points(history, feasible, "evaluations", len(points)),
            *([_points(history, infeasible, "infeasible", len(points)) | {"marker": INFEASIBLE}] if infeasible else []),
            *([_best_line(history, visible)] if history.trace.improvements else []),
        ],
        layout=layout(xaxis, yaxis, height=380, showlegend=True),
    )


def best_caption(history: History, visible: tuple[float, float] | None) -> str:
    """Explain points, crosses and the line of the best value so far.

    `visible` is the initial range of the value axis, from `visible_values`.
    """
    rows = [point.item for point in history.trace.points()]
    low, high = visible or (-np.inf, np.inf)
    hidden = sum(not low <= (row.value or 0.0) <= high for row in rows)
    has_crosses = any(row.is_feasible is False for row in rows)
    has_line = bool(history.trace.improvements)
    stopped = history.campaign.totals.stopped
    crosses = "Each point is one finished evaluation, a cross one that breaks a constraint;"
    return sentences(
        (
            not has_crosses,
            "Each point is one finished evaluation; the line is the best value so far.",
        ),
        (
            has_crosses and has_line,
            f"{crosses} the line is the best value so far of those that satisfy all constraints.",
        ),
        (
            has_crosses and not has_line,
            f"{crosses} there is no line of the best value so far, because none satisfies all constraints.",
        ),
        (history.existing is not None, "Existing data are not drawn."),
        (stopped, f"Excludes the {plural(stopped, 'trial')} that stopped early or paused."),
        (
            hidden,
            f"{hidden} outlying value{'s lie' if hidden > 1 else ' lies'} outside: double-click to see all.",
        ),
    )


def visible_values(history: History) -> tuple[float, float] | None:
    """Return the initial range of the value axis, from `visible_range`; None: all values."""
    rows = [point.item for point in history.trace.points()]
    if not rows:
        return None
    values = np.array([row.value for row in rows], dtype=float)
    is_feasible = np.array([row.is_feasible is not False for row in rows])
    return visible_range(values, is_feasible, history.is_maximized)


def counts_steps(history: History) -> bool:
    """Return whether the budget counts the steps that trials report."""
    return history.campaign.rules.steps is not None and history.trace.steps > 0


def position(history: History, point: Point[TrialRow]) -> int:
    """Return the position of a result on the horizontal axis: steps or results so far."""
    return point.steps if counts_steps(history) else point.place


def course_axis(history: History) -> tuple[str, int]:
    """Return the title of the horizontal axis, and the present end of the line on it."""
    if counts_steps(history):
        return "steps of all trials until the evaluation finished", history.trace.steps
    return "evaluations, in the order they finished", history.trace.count


def _points(history: History, points: list[Point[TrialRow]], name: str, count: int) -> Spec:
    """Return the markers of `points`; `count` is the number of all points in the figure."""
    few = count <= _FEW_POINTS * 5
    rows = [point.item for point in points]
    return {
        "type": "scatter" if count <= MANY_POINTS else "scattergl",
        "mode": "markers",
        "name": name,
        "x": [position(history, point) for point in points],
        "y": round_values(row.value or 0.0 for row in rows),
        "text": [f"trial {row.trial}, batch {row.batch}<br>{parameters_label(row.parameters.items())}" for row in rows],
        "hovertemplate": "<b>%{y}</b><br>%{text}<extra></extra>",
        "marker": {"color": "--point", "size": 7 if few else 4, "opacity": 0.75 if few else 0.5},
    }


def _best_line(history: History, visible: tuple[float, float] | None) -> Spec:
    """Return a line with a step at each improvement, up to the last evaluation."""
    low, high = visible or (-np.inf, np.inf)
    _, end = course_axis(history)
    unit = "steps" if counts_steps(history) else "evaluations"
    steps = history.trace.improvements
    steps = [step for step in steps if low <= (step.item.value or 0.0) <= high] or steps[-1:]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "best so far",
        "x": [*(position(history, step) for step in steps), end],
        "y": round_values([*(step.item.value or 0.0 for step in steps), steps[-1].item.value or 0.0]),
        "text": [f"trial {step.item.trial}" for step in steps] + ["so far"],
        "hovertemplate": f"best after %{{x}} {unit}: <b>%{{y}}</b> (%{{text}})<extra></extra>",
        "line": {"color": "--accent", "width": 2.5, "shape": "hv"},
        "marker": {"size": [7] * len(steps) + [0], "color": "--accent"},
    }


def regret_gaps(history: History) -> NDArray[np.float64]:
    """Return |f* − f(aₜ)| (n,) in the order of arrival, for results with a known noise-free value.

    The gap of an infeasible result is ∞. Return an empty array if no gap is finite.
    """
    optimum = history.created.optimum
    if optimum is None:
        return np.empty(0)
    values = np.array([row.metrics.get("noise_free", np.nan) for row in history.succeeded], dtype=float)
    is_feasible = np.array([row.is_feasible is not False for row in history.succeeded])
    gaps = np.where(is_feasible, np.abs(optimum - values), np.inf)[np.isfinite(values)]
    return gaps if np.isfinite(gaps).any() else np.empty(0)


def simple_regret(history: History) -> Figure | None:
    """Return the smallest gap to the optimum so far, on a logarithmic scale."""
    gaps = regret_gaps(history)
    if not gaps.size:
        return None
    regret = np.minimum.accumulate(gaps)
    caption = sentences(
        (True, "Distance of the best evaluated candidate from the optimum, without noise."),
        (history.goals.constraints, _ON_CONSTRAINTS),
        (
            regret[-1] == 0,
            f"The optimum itself was evaluated as number {int(np.argmax(regret == 0)) + 1}.",
        ),
    )
    positive = np.where((regret > 0) & np.isfinite(regret), regret, np.nan)  # a log axis has no zero
    yaxis = axis("simple regret", type="log", exponentformat="power", dtick=1 if _decades(positive) > 2 else "D2")
    return step_figure("simple-regret", "Simple regret", caption, positive, yaxis)


def cumulative_regret(history: History) -> Figure | None:
    """Return the sum of the gaps to the optimum so far."""
    gaps = regret_gaps(history)
    if not gaps.size:
        return None
    caption = sentences(
        (
            True,
            "Sum of the distances from the optimum over all evaluations; it is flat if evaluations are near "
            "the optimum.",
        ),
        (history.goals.constraints, _ON_CONSTRAINTS),
    )
    regret = np.cumsum(np.where(np.isfinite(gaps), gaps, 0.0))
    yaxis = axis("cumulative regret", rangemode="tozero")
    return step_figure("cumulative-regret", "Cumulative regret", caption, regret, yaxis)


def _decades(values: NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.log10(finite.max() / finite.min())) if finite.size else 0.0


def step_figure(name: str, title: str, caption: str, values: NDArray[np.float64], yaxis: Spec) -> Figure:
    """Return a step line of `values` (n,), one for each evaluation."""
    shown = np.unique(np.linspace(0, len(values) - 1, MANY_POINTS).astype(int))
    trace = {
        "type": "scatter",
        "mode": "lines" if len(values) > 1 else "markers",
        "x": (shown + 1).tolist(),
        "y": round_values(values[shown]),
        "hovertemplate": "after %{x} evaluations: <b>%{y}</b><extra></extra>",
        "line": {"color": "--accent", "width": 2, "shape": "hv"},
        "marker": {"color": "--accent"},
    }
    xaxis = counting_axis("evaluations", len(values))
    return Figure(name=name, title=title, caption=caption, traces=[trace], layout=layout(xaxis, yaxis), is_wide=False)


def batch_sizes(history: History) -> Figure | None:
    """Return the number of trials in each batch, or `refresh_sizes` in asynchronous mode."""
    if history.is_asynchronous:
        return refresh_sizes(history)
    batches = history.batches
    if not batches:
        return None
    sizes = np.array([len(batch.picks) for batch in batches])
    caption = f"{plural(len(batches), 'batch', 'es')}, mean size {sizes.mean():.3g}, largest {sizes.max()}."
    texts = [f"{label(batch.reason, 90)}<br>chosen in {short(batch.seconds)} s" for batch in batches]
    titles = ("batches", "Batch sizes", caption)
    return _columns(titles, sizes, texts, counted="batch", unit="trials", title="trials in the batch")


def refresh_sizes(history: History) -> Figure | None:
    """Return the number of new results in each refresh."""
    refreshes = history.refreshes
    if not refreshes:
        return None
    sizes = np.array([len(refresh.trials) for refresh in refreshes])
    caption = f"{plural(len(refreshes), 'refit')}, {sizes.mean():.3g} results on average, at most {sizes.max()}."
    texts = [f"refitted in {short(refresh.seconds)} s" for refresh in refreshes]
    titles = ("refreshes", "Results per refit", caption)
    return _columns(titles, sizes, texts, counted="refit", unit="results", title="new results")


def dictionary_sizes(history: History) -> Figure | None:
    """Return the size of the dictionary after each refresh; None if there is no dictionary."""
    refreshes = history.refreshes
    sizes = np.array([refresh.dictionary_size for refresh in refreshes], dtype=int)
    if not sizes.any():
        return None
    caption = (
        "Evaluated candidates, and steps of trainings, that represent all results in the model. "
        f"{plural(len(refreshes), 'refit')}, {sizes[-1]} at the end."
    )
    texts = [f"{len(refresh.trials)} new results, refitted in {short(refresh.seconds)} s" for refresh in refreshes]
    titles = ("dictionary", "Dictionary size", caption)
    return _columns(titles, sizes, texts, counted="refit", unit="candidates", title="dictionary size (candidates)")


def _columns(
    titles: tuple[str, str, str], sizes: NDArray[np.generic], texts: list[str], *, counted: str, unit: str, title: str
) -> Figure:
    """Return bars, or a filled step line if there are many.

    Args:
        titles: name, title and caption of the figure.
        sizes: the height of each bar (n,).
        texts: the hover text of each bar.
        counted: the noun for what a bar counts.
        unit: the unit of `sizes`.
        title: the title of the vertical axis.
    """
    hover = f"{counted} %{{x}}: <b>%{{y}} {unit}</b><br>%{{text}}<extra></extra>"
    trace: Spec = {"x0": 1, "y": sizes.tolist(), "text": texts, "hovertemplate": hover}
    if len(sizes) <= _FEW_POINTS:
        trace |= {"type": "bar", "textposition": "none", "marker": {"color": "--point"}}
    else:
        line = {"color": "--accent", "width": 1.5, "shape": "hvh"}
        trace |= {"type": "scatter", "mode": "lines", "line": line, "fill": "tozeroy", "fillcolor": "--fill"}
    axes = layout(counting_axis(counted, len(sizes)), axis(title, rangemode="tozero"))
    name, heading, caption = titles
    return Figure(name=name, title=heading, caption=caption, traces=[trace], layout=axes, is_wide=False)
