"""Tables of results: printed on the terminal and written as CSV and Markdown."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text
from scipy.stats import t as student

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95 % t-interval, mean ± `half_width` (NaN with one seed)."""

    mean: float
    half_width: float

    @staticmethod
    def of(samples: ArrayLike) -> "Interval":
        """Compute the interval of `samples` (n,), one for each seed."""
        values = np.asarray(samples, np.float64)
        if len(values) < 2:
            return Interval(float(values.mean()), math.nan)
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        return Interval(float(values.mean()), float(student.ppf(0.975, len(values) - 1)) * error)

    def __str__(self) -> str:
        if not math.isfinite(self.half_width):
            return four_digits(self.mean)
        # two digits of the half-width, and the mean to the same decimal place
        magnitude = math.floor(math.log10(self.half_width)) if self.half_width > 0 else -2
        digits = max(0, 1 - magnitude)
        return f"{self.mean:.{digits}f} ± {self.half_width:.{digits}f}"


def four_digits(number: float) -> str:
    """Format a number with four significant digits; – for NaN."""
    if math.isnan(number):
        return "–"
    return f"{number:.0f}" if abs(number) >= 1e4 else f"{number:.4g}"


Cell = str | int | float | Interval


@dataclass(frozen=True)
class Table:
    """A table of numbers. `name` is the name of its CSV file; `title` is printed above it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


def write(tables: Sequence[Table], folder: Path, console: Console) -> None:
    """Print the tables, and write each of them as `<folder>/<name>.csv`."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        printed = Printed(title=table.title, title_justify="left", box=SIMPLE_HEAD)
        for index, column in enumerate(table.columns):
            printed.add_column(column, justify="right" if index else "left", no_wrap=True)
        for row in table.rows:
            printed.add_row(*map(Text, _texts(row)))
        console.print(printed)
        write_csv(table, folder)
    console.print(Text(f"tables as CSV: {folder}"), soft_wrap=True)


def write_csv(table: Table, folder: Path) -> None:
    """Write a table as `<folder>/<name>.csv`."""
    with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([table.columns, *map(_texts, table.rows)])


def _texts(row: Sequence[Cell]) -> list[str]:
    return [four_digits(cell) if isinstance(cell, float) else str(cell) for cell in row]
