"""Figures of the report as Plotly figures, for notebooks and scripts."""

import functools
import re
from typing import TYPE_CHECKING

from bbkb.orchestrator.bandit.model.fitting import FIRST_FIT
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import Figure, palette
from bbkb.orchestrator.report.landscape import importance
from bbkb.orchestrator.report.parallel import parallel_coordinates
from bbkb.orchestrator.report.progress import best_so_far
from bbkb.orchestrator.report.surrogate import fit_surrogate
from bbkb.orchestrator.wording import plural

if TYPE_CHECKING:
    import plotly.graph_objects


def course_plot(history: History) -> "plotly.graph_objects.Figure":
    """Draw all values and the best value so far. Raises RunError if no trial has succeeded."""
    return _drawn(history, best_so_far(history))


def parallel_plot(history: History) -> "plotly.graph_objects.Figure":
    """Draw parallel coordinates of the parameters. Raises RunError if no trial has succeeded."""
    return _drawn(history, parallel_coordinates(history))


def importance_plot(history: History) -> "plotly.graph_objects.Figure":
    """Draw the importance of each parameter. Raises RunError if there are too few results."""
    surrogate = fit_surrogate(history)
    if surrogate is None:
        raise RunError(
            f"the importance of parameters needs {FIRST_FIT} results that differ, "
            f"of parameters that vary; {history.created.name} has {plural(len(history.succeeded), 'result')}"
        )
    return plotly_figure(importance(surrogate, *surrogate.importance()))


def _drawn(history: History, figure: Figure | None) -> "plotly.graph_objects.Figure":
    if figure is None:
        raise RunError(f"nothing to draw: no trial of {history.created.name} has succeeded")
    return plotly_figure(figure)


def plotly_figure(figure: Figure) -> "plotly.graph_objects.Figure":
    """Convert a figure of the report, with the colors of the light scheme."""
    import plotly.graph_objects  # it takes a quarter of a second

    margin = {**figure.layout["margin"], "t": 72}  # for title and legend
    layout = {**figure.layout, "title": {"text": figure.title}, "margin": margin}
    spec = {"data": _with_colors(figure.traces), "layout": _with_colors(layout)}
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
    """Return variable → color in the light scheme, the first block of the report's style."""
    light, _, _ = palette().partition("}")
    return {name: color.strip() for name, color in re.findall(r"(--[\w-]+): ([^;]+);", light)}
