"""Draws the best values so far of several runs in one figure, as an HTML file that needs no network
or as an image file."""

from collections.abc import Sequence
from pathlib import Path

from bbkb.orchestrator import files
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.comparing import without_seed
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import Figure, axis, label, layout, scatter
from bbkb.orchestrator.report.notebook import plotly_figure

IMAGES = (".png", ".svg", ".pdf")
_TITLE = "Best value so far"
_EVALUATIONS = "evaluations, in the order they finished"

Steps = tuple[list[int], list[float]]


def best_steps(history: History) -> Steps:
    """Return the curve as indices of results and best values: each improvement and the end."""
    steps = history.trace.improvements
    if not steps:
        return [], []
    values = [step.item.value or 0.0 for step in steps]
    return [*(step.place for step in steps), history.trace.count], [*values, values[-1]]


def best_courses(runs: Sequence[tuple[str, History]]) -> list[Figure]:
    """Return a figure for each direction, with the best values so far of the runs, by name."""
    figures = []
    for is_maximized, direction in ((True, "maximized"), (False, "minimized")):
        alike = [(name, history) for name, history in runs if history.is_maximized == is_maximized]
        if alike:
            figures.append(_best_course(alike, direction))
    return figures


def _best_course(runs: Sequence[tuple[str, History]], direction: str) -> Figure:
    line = {"width": 2.5, "shape": "hv"}
    colors = [f"hsl({(210 + 137 * group) % 360}, 65%, 50%)" for group in _groups(runs)]
    lines = [
        scatter("lines", *best_steps(history), name=label(name), line={**line, "color": color})
        for (name, history), color in zip(runs, colors, strict=True)
    ]
    xaxis = axis(_EVALUATIONS, rangemode="tozero")
    # below the axis, because it may have several lines
    legend = {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}
    return Figure(
        name=f"best-{direction}",
        title=_TITLE,
        caption=f"The best value among the first evaluations of each run, {direction}.",
        traces=lines,
        layout=layout(xaxis, axis(_axis(runs)), height=420, showlegend=True, legend=legend),
    )


def _groups(runs: Sequence[tuple[str, History]]) -> Sequence[int]:
    """Return the index of each run's color. Runs that differ only in their seed share a color, unless
    all do."""
    keys = [without_seed(history) for _, history in runs]
    different = list(dict.fromkeys(keys))
    return [different.index(key) for key in keys] if len(different) > 1 else range(len(runs))


def write_picture(runs: Sequence[tuple[str, History]], path: Path) -> None:
    """Write a figure with the curve of each run to `path`, as .html or as an image.

    Raises:
        UserError: the suffix is unknown, matplotlib is not installed for an image, or the runs have
            different directions.
        OSError: the file cannot be written.
    """
    if len({history.is_maximized for _, history in runs}) > 1:
        directions = ", ".join(
            f"{name} {'maximize' if objective.is_maximized else 'minimize'}" for name, objective in runs
        )
        raise UserError(f"--picture needs runs with the same direction, got {directions}")
    if path.suffix == ".html":
        (course,) = best_courses(runs)
        files.write_text(path, plotly_figure(course).to_html(include_plotlyjs=True), is_private=False)
    elif path.suffix in IMAGES:
        _write_image(runs, path)
    else:
        raise UserError(f"--picture must end with .html or one of {', '.join(IMAGES)}, got {path.name!r}")


def _axis(runs: Sequence[tuple[str, History]]) -> str:
    return f"best value ({'higher' if runs[0][1].is_maximized else 'lower'} is better)"


def _write_image(runs: Sequence[tuple[str, History]], path: Path) -> None:
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise UserError(
            f"{path.suffix} pictures need matplotlib, which is not installed: "
            'pip install "matplotlib>=3.8,<4", or write .html'
        ) from None
    figure = Canvas(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for (name, history), group in zip(runs, _groups(runs), strict=True):
        text = name.replace("$", r"\$")
        axes.step(*best_steps(history), where="post", label=text, color=f"C{group % 10}")
    axes.set(title=_TITLE, xlabel=_EVALUATIONS, ylabel=_axis(runs))
    axes.legend()
    figure.savefig(path, dpi=150)
