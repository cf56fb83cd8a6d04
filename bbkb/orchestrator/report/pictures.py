"""Figures of the report outside of the page: as Plotly figures for notebooks and scripts, and as files."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bbkb.orchestrator import files
from bbkb.orchestrator.bandit.model.fitting import FIRST_FIT
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import Figure, palette
from bbkb.orchestrator.report.landscape import fit_surrogate, importance, parallel_coordinates
from bbkb.orchestrator.report.progress import best_so_far, best_steps, comparison
from bbkb.orchestrator.wording import plural

if TYPE_CHECKING:
    import plotly.graph_objects

IMAGES = (".png", ".svg", ".pdf")


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
            f"of parameters that vary; {history.settings.name} has {plural(len(history.succeeded), 'result')}"
        )
    return plotly_figure(importance(surrogate))


def _drawn(history: History, figure: Figure | None) -> "plotly.graph_objects.Figure":
    if figure is None:
        raise RunError(f"nothing to draw: no trial of {history.settings.name} has succeeded")
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


def write_picture(runs: Sequence[tuple[str, History]], path: Path) -> None:
    """Write a figure with the curve of each run to `path`, as .html or as an image.

    Raises:
        UserError: the suffix is unknown, matplotlib is not installed for an image, or the runs have
            different directions.
        OSError: the file cannot be written.
    """
    figures = comparison(runs)
    if len(figures) > 1:
        directions = ", ".join(f"{name} {'maximize' if history.is_maximized else 'minimize'}" for name, history in runs)
        raise UserError(f"--picture needs runs with the same direction, got {directions}")
    (figure,) = figures
    if path.suffix == ".html":
        files.write_text(path, plotly_figure(figure).to_html(include_plotlyjs=True), is_private=False)
        return
    if path.suffix not in IMAGES:
        raise UserError(f"--picture must end with .html or one of {', '.join(IMAGES)}, got {path.name!r}")
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise UserError(
            f"{path.suffix} pictures need matplotlib, which is not installed: "
            'pip install "matplotlib>=3.8,<4", or write .html'
        ) from None
    canvas = Canvas(figsize=(8, 4.5), layout="constrained")
    axes = canvas.subplots()
    for index, (name, history) in enumerate(runs):
        axes.step(*best_steps(history), where="post", label=name.replace("$", r"\$"), color=f"C{index % 10}")
    axes.set(
        title=figure.title,
        xlabel=figure.layout["xaxis"]["title"]["text"],
        ylabel=figure.layout["yaxis"]["title"]["text"],
    )
    axes.legend()
    canvas.savefig(path, dpi=150)
