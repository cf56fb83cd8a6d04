"""Figures of a campaign's progress by evaluation and by batch.

Regret has its usual definitions. Let f* be the optimum and f(aₜ) the noise-free value of evaluation
t. Simple regret is the minimum of |f* − f(aₛ)| over s ≤ t, and cumulative regret is its sum over
s ≤ t. With constraints, only feasible evaluations count, and f* is still the optimum without
constraints.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.history.trace import Point
from bbkb.orchestrator.report.figure import (
    MANY_POINTS,
    Figure,
    Spec,
    axis,
    counting_axis,
    label,
    layout,
    parameters_label,
    scatter,
    sentences,
    short,
    visible_range,
)
from bbkb.orchestrator.wording import plural

INFEASIBLE: Spec = {"color": "--muted", "size": 5, "symbol": "x"}  # marker of an infeasible result
_FEW_POINTS = 60  # up to this number of steps, each gets a bar
_ON_CONSTRAINTS = "Only results that satisfy all constraints count; the optimum is the one without constraints."


class Course:
    """The results in the order of arrival and the axes of their picture, for report and live page.

    The horizontal axis counts results, or the steps of all trials if they are the budget.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        trace = history.trace
        self.points = list(trace.points())
        self.counts_steps = history.campaign.rules.steps is not None and trace.steps > 0
        self.end = trace.steps if self.counts_steps else trace.count
        self.visible = self._visible_values() if self.points else None

    @property
    def title(self) -> str:
        """The title of the horizontal axis."""
        if self.counts_steps:
            return "steps of all trials until the evaluation finished"
        return "evaluations, in the order they finished"

    def position(self, point: Point[TrialRow]) -> int:
        """Return the position of a result on the horizontal axis."""
        return point.steps if self.counts_steps else point.place

    def is_visible(self, row: TrialRow) -> bool:
        """Return whether a result lies in the initial range of the value axis."""
        low, high = self.visible or (-np.inf, np.inf)
        return low <= (row.value or 0.0) <= high

    @property
    def caption(self) -> str:
        """An explanation of points, crosses and the line of the best value so far."""
        rows = [point.item for point in self.points]
        hidden = sum(not self.is_visible(row) for row in rows)
        outliers = "outlying value lies" if hidden == 1 else "outlying values lie"
        stopped = self._history.campaign.totals.stopped
        return sentences(
            self._legend(any(row.is_feasible is False for row in rows)),
            self._history.existing and "Known results are not drawn.",
            stopped and f"Excludes the {plural(stopped, 'trial')} that stopped early or paused.",
            hidden and f"{hidden} {outliers} outside: double-click to see all.",
        )

    def _legend(self, has_crosses: bool) -> str:
        if not has_crosses:
            return "Each point is one finished evaluation; the line is the best value so far."
        point = "Each point is one finished evaluation, a cross one that breaks a constraint"
        best = "the best value so far"
        if self._history.trace.improvements:
            return f"{point}; the line is {best} of those that satisfy all constraints."
        return f"{point}; there is no line of {best}, because none satisfies all constraints."

    def _visible_values(self) -> tuple[float, float] | None:
        rows = [point.item for point in self.points]
        values = np.array([row.value for row in rows], dtype=float)
        is_feasible = np.array([row.is_feasible is not False for row in rows])
        return visible_range(values, is_feasible, self._history.is_maximized)


def best_so_far(history: History) -> Figure | None:
    """Return the values in the order of arrival and the best so far; many are thinned out."""
    course = Course(history)
    if not course.points:
        return None
    better = "higher" if history.is_maximized else "lower"
    yaxis = axis(f"{label(history.goals.objectives[0].metric)} ({better} is better)")
    if course.visible is not None:
        yaxis["range"] = list(course.visible)
    xaxis = counting_axis(course.title, course.end)
    if course.counts_steps:
        xaxis = axis(course.title, rangemode="tozero")
    infeasible = [point for point in course.points if point.item.is_feasible is False]
    feasible = [point for point in course.points if point.item.is_feasible is not False]
    traces = [_points(course, feasible, "evaluations")]
    if infeasible:
        traces.append(_points(course, infeasible, "infeasible") | {"marker": INFEASIBLE})
    if history.trace.improvements:
        traces.append(_best_line(course, history.trace.improvements))
    width = history.trace.width
    every = f"Of every {width:,} consecutive results" if width > 1 else ""
    return Figure(
        name="best",
        title="Best so far",
        caption=sentences(course.caption, every and f"{every}, the best and the worst are drawn."),
        traces=traces,
        layout=layout(xaxis, yaxis, height=380, showlegend=True),
    )


def _points(course: Course, points: Sequence[Point[TrialRow]], name: str) -> Spec:
    count = len(course.points)
    few = count <= _FEW_POINTS * 5
    rows = [point.item for point in points]
    return scatter(
        "markers",
        map(course.position, points),
        (row.value or 0.0 for row in rows),
        type="scatter" if count <= MANY_POINTS else "scattergl",
        name=name,
        text=[f"trial {row.trial}, batch {row.batch}<br>{parameters_label(row.parameters.items())}" for row in rows],
        hovertemplate="<b>%{y}</b><br>%{text}<extra></extra>",
        marker={"color": "--point", "size": 7 if few else 4, "opacity": 0.75 if few else 0.5},
    )


def _best_line(course: Course, improvements: Sequence[Point[TrialRow]]) -> Spec:
    """Return a line with a step at each improvement, up to the last evaluation."""
    unit = "steps" if course.counts_steps else "evaluations"
    steps = [step for step in improvements if course.is_visible(step.item)] or improvements[-1:]
    values = [step.item.value or 0.0 for step in steps]
    return scatter(
        "lines+markers",
        [*map(course.position, steps), course.end],
        [*values, values[-1]],
        name="best so far",
        text=[*(f"trial {step.item.trial}" for step in steps), "so far"],
        hovertemplate=f"best after %{{x}} {unit}: <b>%{{y}}</b> (%{{text}})<extra></extra>",
        line={"color": "--accent", "width": 2.5, "shape": "hv"},
        marker={"size": [7] * len(steps) + [0], "color": "--accent"},
    )


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
    first = int(np.argmax(regret == 0)) + 1
    caption = sentences(
        "Distance of the best evaluated candidate from the optimum, without noise.",
        history.goals.constraints and _ON_CONSTRAINTS,
        regret[-1] == 0 and f"The optimum itself was evaluated as number {first}.",
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
        "Sum of the distances from the optimum over all evaluations; it is flat if evaluations are "
        + "near the optimum.",
        history.goals.constraints and _ON_CONSTRAINTS,
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
    trace = scatter(
        "lines" if len(values) > 1 else "markers",
        (shown + 1).tolist(),
        values[shown],
        hovertemplate="after %{x} evaluations: <b>%{y}</b><extra></extra>",
        line={"color": "--accent", "width": 2, "shape": "hv"},
        marker={"color": "--accent"},
    )
    xaxis = counting_axis("evaluations", len(values))
    return Figure(name=name, title=title, caption=caption, traces=[trace], layout=layout(xaxis, yaxis), is_wide=False)


def batch_sizes(history: History) -> Figure | None:
    """Return the number of trials in each batch, or of results in each refit if asynchronous."""
    if history.is_asynchronous:
        return _refresh_sizes(history)
    batches = history.batches
    if not batches:
        return None
    sizes = np.array([len(batch.picks) for batch in batches])
    caption = f"{plural(len(batches), 'batch', 'es')}, mean size {sizes.mean():.3g}, largest {sizes.max()}."
    texts = [f"{label(batch.reason, 90)}<br>chosen in {short(batch.seconds)} s" for batch in batches]
    titles = ("batches", "Batch sizes", caption)
    return _columns(titles, sizes, texts, counted="batch", unit="trials", title="trials in the batch")


def _refresh_sizes(history: History) -> Figure | None:
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
    """Return a bar for each of `counted`, or a filled step line if there are many.

    `titles` are name, title and caption of the figure, and `title` is that of the vertical axis.
    `sizes` (n,) are in `unit`, and `texts` are shown beside them.
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
