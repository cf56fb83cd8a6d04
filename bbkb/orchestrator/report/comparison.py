"""Draws the best values so far of several runs into a file."""

from collections.abc import Sequence
from pathlib import Path

from bbkb.orchestrator import files
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.notebook import plotly_figure
from bbkb.orchestrator.report.progress import best_steps, comparison

IMAGES = (".png", ".svg", ".pdf")


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
