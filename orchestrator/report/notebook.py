"""Figures of the report as Plotly figures, for notebooks and scripts."""

import functools
import re
from typing import TYPE_CHECKING

from orchestrator.errors import RunError
from orchestrator.history.fold import History
from orchestrator.report.figure import Figure, palette
from orchestrator.report.landscape import importance
from orchestrator.report.parallel import parallel_coordinates
from orchestrator.report.progress import best_so_far
from orchestrator.report.surrogate import fit_surrogate

if TYPE_CHECKING:
    import plotly.graph_objects


def course_plot(history: History) -> "plotly.graph_objects.Figure":
    """Draw all values and the best value so far. Raises RunError if no trial has succeeded."""
    return _plotly_figure(history, best_so_far(history), "a trial that has succeeded")


def parallel_plot(history: History) -> "plotly.graph_objects.Figure":
    """Draw parallel coordinates of the parameters. Raises RunError if no trial has succeeded."""
    return _plotly_figure(history, parallel_coordinates(history), "a trial that has succeeded")


def importance_plot(history: History) -> "plotly.graph_objects.Figure":
    """Draw the importance of each parameter. Raises RunError if there are too few results."""
    surrogate = fit_surrogate(history)
    if surrogate is None:
        return _plotly_figure(history, None, "16 results that differ, of parameters that vary")
    shares = surrogate.importance()
    order = sorted(range(len(shares)), key=lambda index: -float(shares[index]))
    return _plotly_figure(history, importance(surrogate, shares, order), "")


def _plotly_figure(history: History, figure: Figure | None, requirement: str) -> "plotly.graph_objects.Figure":
    """Convert a figure of the report, with the colors of the light scheme."""
    if figure is None:
        raise RunError(f"this figure of {history.created.name} needs {requirement}; there is none yet")
    import plotly.graph_objects  # it takes a quarter of a second

    title = {"title": {"text": figure.title}}
    spec = {"data": _with_colors(figure.traces), "layout": _with_colors({**figure.layout, **title})}
    return plotly.graph_objects.Figure(spec)


def _with_colors(part: object) -> object:
    """Replace CSS variables in the values by colors."""
    if isinstance(part, dict):
        return {key: _with_colors(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_with_colors(value) for value in part]
    return _colors().get(part, part) if isinstance(part, str) else part


@functools.cache
def _colors() -> dict[str, str]:
    """Return variable → color of the light scheme, the first block of the report's style."""
    light, _, _ = palette().partition("}")
    return {name: color.strip() for name, color in re.findall(r"(--[\w-]+): ([^;]+);", light)}
