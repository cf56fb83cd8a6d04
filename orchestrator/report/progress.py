"""Pictures of the progress of a campaign by evaluation and by batch.

Regret follows the field's definitions: with f* the optimum and f(aₜ) the noise-free value of the
t-th evaluation, simple regret is min over s ≤ t of |f* − f(aₛ)|, cumulative regret the sum over s ≤
t of |f* − f(aₛ)|. With constraints only evaluations that satisfy them count, and f* is still the
optimum without them.
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
    short,
    visible_range,
)
from orchestrator.wording import plural

INFEASIBLE: Spec = {"color": "--muted", "size": 5, "symbol": "x"}  # the mark of a result that breaks a constraint
_FEW_POINTS = 60  # up to here every step gets a marker


def best_so_far(history: History) -> Figure | None:
    """Return every value in the order of finishing, and the best so far; thinned if too many."""
    points = list(history.trace.points())
    if not points:
        return None
    visible = visible_values(history)
    infeasible = [point for point in points if point.item.is_feasible is False]
    caption = best_caption(history, visible)
    if history.trace.width > 1:
        caption += f" Of every {history.trace.width:,} neighbours the best and the worst are drawn."
    better = "higher" if history.is_maximized else "lower"
    yaxis = axis(f"{label(history.goals.objectives[0].metric)} ({better} is better)") | (
        {} if visible is None else {"range": list(visible)}
    )
    xaxis = counting_axis("evaluations, in the order they finished", history.trace.count)
    return Figure(
        name="best",
        title="Best so far",
        caption=caption,
        traces=[
            _points([point for point in points if point.item.is_feasible is not False], "evaluations", len(points)),
            *([_points(infeasible, "infeasible", len(points)) | {"marker": INFEASIBLE}] if infeasible else []),
            *([_best_line(history, visible)] if history.trace.improvements else []),
        ],
        layout=layout(xaxis, yaxis, height=380, showlegend=True),
    )


def best_caption(history: History, visible: tuple[float, float] | None) -> str:
    """Return what points, crosses and the line of the best value so far are; `visible`: the range
    of values that is shown at first, from `visible_values`."""
    rows = [point.item for point in history.trace.points()]
    low, high = visible or (-np.inf, np.inf)
    hidden = sum(not low <= (row.value or 0.0) <= high for row in rows)
    caption = "Each point is one finished evaluation; the line is the best value so far."
    if any(row.is_feasible is False for row in rows):
        caption = "Each point is one finished evaluation, a cross one that breaks a constraint; " + (
            "the line is the best value so far of those that satisfy all constraints."
            if history.trace.improvements
            else "there is no line of the best value so far, because none satisfies all constraints."
        )
    if history.campaign.totals.stopped:
        caption += f" Without the {plural(history.campaign.totals.stopped, 'trial')} that stopped early or paused."
    if hidden:
        caption += f" {hidden} outlying value{'s lie' if hidden > 1 else ' lies'} outside: double-click to see all."
    return caption


def visible_values(history: History) -> tuple[float, float] | None:
    """Return the range of the values of the trace that is shown at first (`visible_range`)."""
    rows = [point.item for point in history.trace.points()]
    if not rows:
        return None
    values = np.array([row.value for row in rows], dtype=float)
    return visible_range(values, np.array([row.is_feasible is not False for row in rows]), history.is_maximized)


def _points(points: list[Point[TrialRow]], name: str, count: int) -> Spec:
    """Return the marks of `points`; `count`: how many the picture has in all."""
    few = count <= _FEW_POINTS * 5
    rows = [point.item for point in points]
    return {
        "type": "scatter" if count <= MANY_POINTS else "scattergl",
        "mode": "markers",
        "name": name,
        "x": [point.place for point in points],
        "y": round_values(row.value or 0.0 for row in rows),
        "text": [f"trial {row.trial}, batch {row.batch}<br>{parameters_label(row.parameters.items())}" for row in rows],
        "hovertemplate": "<b>%{y}</b><br>%{text}<extra></extra>",
        "marker": {"color": "--point", "size": 7 if few else 4, "opacity": 0.75 if few else 0.5},
    }


def _best_line(history: History, visible: tuple[float, float] | None) -> Spec:
    """Return a step at every improvement, then a line to the last evaluation."""
    steps = history.trace.improvements
    low, high = visible or (-np.inf, np.inf)
    steps = [step for step in steps if low <= (step.item.value or 0.0) <= high] or steps[-1:]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "best so far",
        "x": [*(step.place for step in steps), history.trace.count],
        "y": round_values([*(step.item.value or 0.0 for step in steps), steps[-1].item.value or 0.0]),
        "text": [f"trial {step.item.trial}" for step in steps] + ["so far"],
        "hovertemplate": "best after %{x} evaluations: <b>%{y}</b> (%{text})<extra></extra>",
        "line": {"color": "--accent", "width": 2.5, "shape": "hv"},
        "marker": {"size": [7] * len(steps) + [0], "color": "--accent"},
    }


def regret_gaps(history: History) -> NDArray[np.float64]:
    """Return |f* − f(aₜ)| (n,), in the order of finishing, where the noise-free value is known; ∞
    where it breaks a constraint. Empty when no gap is finite."""
    optimum = history.created.optimum
    if optimum is None:
        return np.empty(0)
    values = np.array([row.metrics.get("noise_free", np.nan) for row in history.succeeded], dtype=float)
    is_feasible = np.array([row.is_feasible is not False for row in history.succeeded])
    gaps = np.where(is_feasible, np.abs(optimum - values), np.inf)[np.isfinite(values)]
    return gaps if np.isfinite(gaps).any() else np.empty(0)


def simple_regret(history: History) -> Figure | None:
    """Return the smallest gap to the optimum so far, on a log scale."""
    gaps = regret_gaps(history)
    if not gaps.size:
        return None
    regret = np.minimum.accumulate(gaps)
    caption = (
        f"Distance of the best evaluated candidate from the optimum, without noise.{_note_on_constraints(history)}"
    )
    if regret[-1] == 0:
        caption += f" The optimum itself was evaluated as number {int(np.argmax(regret == 0)) + 1}."
    positive = np.where((regret > 0) & np.isfinite(regret), regret, np.nan)  # a log axis has no zero
    yaxis = axis("simple regret", type="log", exponentformat="power", dtick=1 if _decades(positive) > 2 else "D2")
    return step_figure("simple-regret", "Simple regret", caption, positive, yaxis)


def cumulative_regret(history: History) -> Figure | None:
    """Return the sum of the gaps to the optimum so far."""
    gaps = regret_gaps(history)
    if not gaps.size:
        return None
    caption = "Sum of the distances from the optimum over all evaluations; flat where evaluations are near it."
    caption += _note_on_constraints(history)
    regret = np.cumsum(np.where(np.isfinite(gaps), gaps, 0.0))
    yaxis = axis("cumulative regret", rangemode="tozero")
    return step_figure("cumulative-regret", "Cumulative regret", caption, regret, yaxis)


def _note_on_constraints(history: History) -> str:
    """Return which evaluations a picture of regret counts, where there are constraints."""
    if not history.goals.constraints:
        return ""
    return " Only results that satisfy all constraints count; the optimum is the one without constraints."


def _decades(values: NDArray[np.float64]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.log10(finite.max() / finite.min())) if finite.size else 0.0


def step_figure(name: str, title: str, caption: str, values: NDArray[np.float64], yaxis: Spec) -> Figure:
    """Return a step line of `values` (n,), one for each evaluation."""
    places = np.unique(np.linspace(0, len(values) - 1, MANY_POINTS).astype(int))
    trace = {
        "type": "scatter",
        "mode": "lines" if len(values) > 1 else "markers",
        "x": (places + 1).tolist(),
        "y": round_values(values[places]),
        "hovertemplate": "after %{x} evaluations: <b>%{y}</b><extra></extra>",
        "line": {"color": "--accent", "width": 2, "shape": "hv"},
        "marker": {"color": "--accent"},
    }
    xaxis = counting_axis("evaluations", len(values))
    return Figure(name=name, title=title, caption=caption, traces=[trace], layout=layout(xaxis, yaxis), is_wide=False)


def batch_sizes(history: History) -> Figure | None:
    """Return trials per batch and why each ended; `refresh_sizes` in asynchronous mode."""
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
    """Return the dictionary's size after each refresh; None for strategies without one."""
    refreshes = history.refreshes
    sizes = np.array([refresh.dictionary_size for refresh in refreshes], dtype=int)
    if not sizes.any():
        return None
    caption = (
        "Evaluated candidates, and steps of trainings where these report, that represent all of them in the model. "
        f"{plural(len(refreshes), 'refit')}, {sizes[-1]} at the end."
    )
    texts = [f"{len(refresh.trials)} new results, refitted in {short(refresh.seconds)} s" for refresh in refreshes]
    titles = ("dictionary", "Dictionary size", caption)
    return _columns(titles, sizes, texts, counted="refit", unit="candidates", title="dictionary size (candidates)")


def _columns(
    titles: tuple[str, str, str], sizes: NDArray[np.generic], texts: list[str], *, counted: str, unit: str, title: str
) -> Figure:
    """Return bars while they can be told apart, else a filled step line, which is fast for 10⁴ of
    them. `titles`: name, title and caption; `title`: that of the vertical axis."""
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
