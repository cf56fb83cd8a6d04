"""Figures as PNG and SVG, by matplotlib, an optional extra."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers.findings import Curve, Figure, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can distinguish, and two more
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#8B4513", "#6A3D9A")
_STYLES = {"solid": "-", "dashed": "--", "dotted": ":", "points": "none"}
_PANEL_INCHES = (5.2, 3.6)


def draw(figure: Figure, folder: Path) -> list[Path]:
    """Write `<folder>/<name>.png` and `.svg`; their paths. Raises ImportError when matplotlib is
    not installed."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    columns = min(figure.columns, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    size = (_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.4)
    # text is not converted to paths and ids are fixed, so that the same numbers give the same SVG
    # file
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name, "font.size": 9.0}):
        canvas = Canvas(figsize=size, layout="constrained")
        canvas.suptitle(figure.title)
        colours = _colours(figure.panels)
        for place, panel in enumerate(figure.panels, start=1):
            _draw_panel(canvas.add_subplot(rows, columns, place), panel, colours)
        paths = [folder / f"{figure.name}.png", folder / f"{figure.name}.svg"]
        canvas.savefig(paths[0], dpi=150)
        canvas.savefig(paths[1], metadata={"Date": None})
    return paths


def _colours(panels: Sequence[Panel]) -> dict[str, str]:
    """One colour for each label, the same in all panels."""
    labels = dict.fromkeys(curve.label for panel in panels for curve in panel.curves)
    return {label: COLOURS[index % len(COLOURS)] for index, label in enumerate(labels)}


def _draw_panel(axes: "Axes", panel: Panel, colours: dict[str, str]) -> None:
    for curve in panel.curves:
        _draw_curve(axes, curve, colours[curve.label])
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label, xscale=panel.x_scale, yscale=panel.y_scale)
    _limit(axes, panel)
    axes.grid(alpha=0.3)
    if panel.curves:
        axes.legend(fontsize=7.5)


def _limit(axes: "Axes", panel: Panel) -> None:
    """Limit the y axis to the range of the means when none is negative: intervals of few seeds can
    be very wide."""
    means = np.concatenate([curve.mean[np.isfinite(curve.mean)] for curve in panel.curves] or [np.empty(0)])
    if len(means) and means.min() >= 0.0 and means.max() > 0.0:
        if panel.y_scale == "linear":
            axes.set_ylim(0.0, 1.1 * means.max())
        else:
            axes.set_ylim(0.7 * means[means > 0.0].min(), 1.5 * means.max())


def _draw_curve(axes: "Axes", curve: Curve, colour: str) -> None:
    marker = "o" if curve.style == "points" else ""
    axes.plot(
        curve.x, curve.mean, color=colour, linestyle=_STYLES[curve.style], marker=marker, label=curve.label, lw=1.4
    )
    if np.isfinite(curve.half_width).any():
        low, high = curve.mean - curve.half_width, curve.mean + curve.half_width
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.2, linewidth=0)
