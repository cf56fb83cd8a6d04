"""A user's table, CSV or Parquet, as typed columns. Mistakes are reported with file, line and
column.

The first line names the columns. A column is numeric if all its cells are numbers, and text if none
of them is. Anything in between is a mistake, because a single misspelled number would otherwise
turn a scale into thousands of choices.
"""

import csv
import gzip
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.objective import ObjectiveError

MOST_ROWS = 10_000_000  # a small compressed file may contain billions
# cells that count as missing, if missing values are allowed
MISSING = frozenset(("", "?", "NA", "N/A", "NaN", "nan", "null"))

Needed = Callable[[Sequence[str]], Sequence[str]]
Column = NDArray[Any]  # numbers or text
Cells = tuple[list[int], Sequence[object]]  # of a column: the lines of its cells, and the cells


def read_columns(path: Path) -> dict[str, Column]:
    """Return columns (A,) of `path` in its order, as int64, float64 or text. The endings `.csv`,
    `.csv.gz` and `.parquet` are supported.

    Raises ObjectiveError for an unknown ending, an unreadable file, an empty table, a missing or
    repeated name, a line of the wrong length, an empty cell, a number that is not finite, and a
    mixed column.
    """
    return {name: as_typed(path, name, column) for name, column in read_cells(path).items()}


def read_cells(path: Path, needed: Needed = lambda names: names) -> dict[str, Cells]:
    """Return the cells of the columns, for `as_typed` or `as_typed_with_gaps`. `needed` selects
    columns from all names; the contents of the others do not matter."""
    if path.exists() and not path.is_file():
        raise ObjectiveError(f"{path} must be a regular file to be read as a table, got a folder or a device")
    if path.suffix == ".parquet":
        names, lines, cells = _read_parquet(path)
    elif path.name.endswith((".csv", ".csv.gz")):
        names, lines, cells = _read_csv(path)
    else:
        raise ObjectiveError(f"a table must end in .csv, .csv.gz or .parquet, got {str(path)!r}")
    _check_names(path, names)
    if not lines:
        raise ObjectiveError(f"{path}: a table must have at least one row below its header, got none")
    selected = set(needed(names))
    return {name: (lines, column) for name, column in zip(names, cells, strict=True) if name in selected}


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if not name:
            remedy = "name it, or remove it (pandas writes its index so: use to_csv(..., index=False))"
            raise ObjectiveError(
                f"{path}: every column must have a name, column {names.index(name) + 1} has none; {remedy}"
            )
        if count > 1:
            raise ObjectiveError(f"{path}: every column must have a different name, got {name!r} {count} times")


def _read_csv(path: Path) -> tuple[list[str], list[int], Sequence[Sequence[object]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:  # for a byte order mark
            reader = csv.reader(file, strict=True)
            names = next(reader, [])
            rows = [(reader.line_num, row) for row in islice(filter(None, reader), MOST_ROWS + 1)]
    except UnicodeDecodeError as error:
        got = f"byte 0x{error.object[error.start]:02x}"
        raise ObjectiveError(f"{path}: a table must be UTF-8 text, got {got}; save it as UTF-8") from error
    except (OSError, EOFError, csv.Error) as error:
        raise ObjectiveError(
            f"{path} cannot be read as a CSV table: {getattr(error, 'strerror', None) or error}"
        ) from error
    _check_size(path, len(rows))
    if len(names) == 1 and (separator := re.search("[;\t|]", names[0])):
        raise ObjectiveError(f"{path}:1: columns must be separated by commas, got {separator[0]!r}; convert the table")
    for line, row in rows:
        if len(row) != len(names):
            raise ObjectiveError(f"{path}:{line}: a row must have {len(names)} cells like the header, got {len(row)}")
    cells = [[row[column] for _, row in rows] for column in range(len(names))]
    return names, [line for line, _ in rows], cells


def _check_size(path: Path, rows: int) -> None:
    if rows > MOST_ROWS:
        raise ObjectiveError(f"{path}: a table must have at most {MOST_ROWS:,} rows, and has more")


def _read_parquet(path: Path) -> tuple[list[str], list[int], Sequence[Sequence[object]]]:
    try:
        from pyarrow import ArrowException, parquet  # an optional dependency
    except ImportError as error:
        raise ObjectiveError(
            f'{path}: Parquet needs pyarrow, which is not installed: pip install "pyarrow>=17", or give a CSV file'
        ) from error
    try:
        _check_size(path, parquet.read_metadata(path).num_rows)
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise ObjectiveError(f"{path} cannot be read as a Parquet table: {error}") from error
    return table.column_names, list(range(1, table.num_rows + 1)), [column.to_pylist() for column in table.columns]


def as_typed(path: Path, name: str, column: Cells) -> Column:
    """Return a column without gaps."""
    lines, cells = column
    for line, cell in zip(lines, cells, strict=True):
        if cell is None or cell == "":
            raise ObjectiveError(f"{path}:{line}: column {name!r} has an empty cell; fill it or remove the row")
    numbers = [_number(cell) for cell in cells]
    is_text = numbers[0] is None
    for line, cell, number in zip(lines, cells, numbers, strict=True):
        if (number is None) != is_text:
            raise ObjectiveError(
                f"{path}:{line}: column {name!r} must be all numbers or all text; "
                f"it begins with {cells[0]!r}, got {cell!r}"
            )
        if number is not None and not math.isfinite(number):
            raise ObjectiveError(f"{path}:{line}: column {name!r} must hold finite numbers, got {cell!r}")
    return np.array([str(cell) for cell in cells] if is_text else numbers)


def as_typed_with_gaps(path: Path, name: str, column: Cells) -> Column:
    """Return a column in which cells may be missing: NaN among numbers, None among texts (object
    array)."""
    lines, cells = column
    is_known = [cell is not None and cell not in MISSING and cell == cell for cell in cells]
    if not any(is_known):
        return np.full(len(cells), np.nan)
    known = as_typed(path, name, (list(compress(lines, is_known)), list(compress(cells, is_known))))
    is_number = known.dtype.kind in "if"
    filled: Column = np.full(len(cells), np.nan if is_number else None, float if is_number else object)
    filled[np.array(is_known)] = known
    return filled


def _number(cell: object) -> int | float | None:
    """Return the number in a cell; None for text (and for other types in a Parquet file)."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    if not isinstance(cell, str):
        return cell
    try:
        whole = int(cell)
        return whole if abs(whole) < 2**63 else float(cell)  # infinite above the largest float
    except ValueError:
        pass
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None


def encode(columns: Mapping[str, Column], most_choices: int = 64) -> NDArray[np.float64]:
    """Return features (A, d): numbers scaled to [0, 1] by their minimum and maximum, and text
    one-hot encoded and divided by √2 (like `Choice`).

    A column that never varies has no feature. Raises ObjectiveError if a text column has more than
    `most_choices` different values, or nothing varies.
    """
    blocks = [_encode_column(name, column, most_choices) for name, column in columns.items()]
    features = np.hstack(blocks) if blocks else np.empty((0, 0))
    if features.shape[1] == 0:
        named = ", ".join(list(columns)[:5]) or "none"
        more = f" and {len(columns) - 5} more" * (len(columns) > 5)
        raise ObjectiveError(f"a table must have a feature column that varies, got {named:.200}{more}")
    return features


def _encode_column(name: str, column: Column, most_choices: int) -> NDArray[np.float64]:
    if column.dtype.kind in "if":
        numbers = column.astype(np.float64)
        low = float(numbers.min())
        high = float(numbers.max())
        if low == high:
            return np.empty((len(column), 0))
        # halved, because the values may span the whole range of float64
        unit = 0.5 if math.isinf(high - low) else 1.0
        return ((numbers * unit - low * unit) / (high * unit - low * unit))[:, None]
    levels, index = np.unique(column, return_inverse=True)
    if len(levels) > most_choices:
        raise ObjectiveError(
            f"text column {name!r} must have at most {most_choices} different values, got {len(levels)}; "
            "remove the column from the table or code it as numbers"
        )
    one_hot = np.eye(len(levels)) / math.sqrt(2) if len(levels) > 1 else np.empty((1, 0))
    return one_hot[index]
