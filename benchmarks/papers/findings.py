"""The results of an experiment as plain values: tables of numbers with intervals, and figures made
of curves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % confidence interval, mean ± `half_width` (NaN with one
    seed)."""

    mean: float
    half_width: float
    seeds: int

    @staticmethod
    def of(samples: ArrayLike) -> "Interval":
        """The interval of `samples` (n,), one for each seed."""
        mean, half_width = mean_and_half_width(np.asarray(samples, np.float64))
        return Interval(float(mean), float(half_width), len(np.asarray(samples)))

    def __str__(self) -> str:
        if not np.isfinite(self.half_width):
            return four_digits(self.mean)
        # two digits of the half-width, and the mean to the same decimal place
        magnitude = math.floor(math.log10(self.half_width)) if self.half_width > 0 else -2
        places = max(0, 1 - magnitude)
        return f"{self.mean:.{places}f} ± {self.half_width:.{places}f}"


def mean_and_half_width(samples: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Mean of `samples` (n, …) over the first axis and half the width of its t-interval, both (…);
    NaN for n = 1."""
    mean, count = samples.mean(axis=0), len(samples)
    if count < 2:
        return mean, np.full_like(mean, np.nan)
    standard_error = samples.std(axis=0, ddof=1) / np.sqrt(count)
    half_width: Floats = student.ppf(0.5 + level / 2, count - 1) * standard_error
    return mean, half_width


def four_digits(number: float) -> str:
    """A number in four significant digits, with all digits before the decimal point; – for NaN."""
    if math.isnan(number):
        return "–"
    return f"{number:.0f}" if abs(number) >= 1e4 else f"{number:.4g}"


Cell = str | int | float | Interval


@dataclass(frozen=True)
class Table:
    """A table of numbers. `name` is that of its CSV file; `title` is printed above it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


@dataclass(frozen=True)
class Curve:
    """A line (n,) with a band of ± `half_width` (n,) where it is not NaN. Curves with one label
    have one colour."""

    label: str
    x: Floats
    mean: Floats
    half_width: Floats
    style: Literal["solid", "dashed", "dotted", "points"] = "solid"

    @staticmethod
    def over_seeds(label: str, x: ArrayLike, samples: ArrayLike, points: int = 400) -> "Curve":
        """The mean of `samples` (seeds, n) at `x` (n,), reduced to about `points`, with the first
        and the last."""
        across, values = np.asarray(x, np.float64), np.asarray(samples, np.float64)
        shown = np.unique(np.linspace(0, len(across) - 1, min(points, len(across))).round().astype(np.intp))
        mean, half_width = mean_and_half_width(values[:, shown])
        return Curve(label, across[shown], mean, half_width)


@dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, `columns` in a row, as in the paper. `name` is that of its files."""

    name: str
    title: str
    panels: Sequence[Panel]
    columns: int = 2


@dataclass(frozen=True)
class Findings:
    """All results of an experiment. `notes` list the differences from the paper; `numbers` are
    written as JSON."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    numbers: Mapping[str, object] = field(default_factory=dict)
