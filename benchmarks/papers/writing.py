"""Findings on the terminal and on disk: tables (also as CSV), all numbers as JSON, and figures if
possible."""

import csv
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Printed
from rich.text import Text

from benchmarks.papers.drawing import draw
from benchmarks.papers.findings import Cell, Figure, Findings, Interval, Table, four_digits


def write(findings: Findings, folder: Path, console: Console) -> None:
    """Print the tables and notes, write `findings.json`, one CSV for each table, and each figure as
    PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in findings.tables:
        console.print(_print_table(table))
        _write_csv(table, folder / f"{table.name}.csv")
    for note in findings.notes:
        console.print(Text(f"* {note}"), soft_wrap=True)
    text = json.dumps(_to_json(findings), indent=1, allow_nan=False)
    (folder / "findings.json").write_text(text + "\n", encoding="utf-8")
    console.print(Text(f"numbers {folder / 'findings.json'}"), soft_wrap=True)
    for figure in findings.figures:
        _draw(figure, folder, console)


def _draw(figure: Figure, folder: Path, console: Console) -> None:
    try:
        paths = draw(figure, folder)
    except ImportError as error:
        remedy = 'pip install "matplotlib>=3.8,<4", and run this command again; finished runs are not repeated'
        console.print(Text(f"figure {figure.name} is not drawn ({error}): {remedy}"), soft_wrap=True)
        return
    for path in paths:
        console.print(Text(f"figure {path}"), soft_wrap=True)


def _print_table(table: Table) -> Printed:
    printed = Printed(title=table.title, title_justify="left", box=SIMPLE_HEAD)
    for number, column in enumerate(table.columns):
        printed.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in table.rows:
        printed.add_row(*(_text(cell) for cell in row))
    return printed


def _text(cell: Cell) -> Text:
    return Text(four_digits(cell) if isinstance(cell, float) else str(cell))


def _write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV. An interval has two columns: its mean and half its width."""
    spread = [any(isinstance(row[place], Interval) for row in table.rows) for place in range(len(table.columns))]
    header: list[str] = []
    for column, is_spread in zip(table.columns, spread, strict=True):
        header += [column, f"{column} ±"] if is_spread else [column]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in table.rows:
            writer.writerow(
                [part for cell, has_spread in zip(row, spread, strict=True) for part in _parts(cell, has_spread)]
            )


def _parts(cell: Cell, has_spread: bool) -> list[str | int | float]:
    if isinstance(cell, Interval):
        return [cell.mean, cell.half_width]
    return [cell, ""] if has_spread else [cell]


def _to_json(value: object) -> object:
    """`value` as plain JSON: dataclasses as objects, arrays as lists, NaN and infinities as
    null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, np.generic):
        return _to_json(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
