"""Tables as objectives: an evaluation reads the value in an arm's row.

A user's table becomes candidates, or, with a target column, an objective. Rows that are equal in
every parameter are merged into one candidate.

A file is CSV or Parquet. The first line names the columns. A column is numeric if all its cells are
numbers, and text if none of them is. Anything in between is a mistake, reported with file, line and
column, because a single misspelled number would otherwise turn a scale into thousands of choices.
"""

import csv
import gzip
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import Candidates, Evaluation, ObjectiveError, Parameters, Report

_MOST_CHOICES = 64  # the largest number of different values of a text column
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
    for name, count in Counter(names).items():
        if not name:
            remedy = "name it, or remove it (pandas writes its index so: use to_csv(..., index=False))"
            raise ObjectiveError(
                f"{path}: every column must have a name, column {names.index(name) + 1} has none; {remedy}"
            )
        if count > 1:
            raise ObjectiveError(f"{path}: every column must have a different name, got {name!r} {count} times")
    if not lines:
        raise ObjectiveError(f"{path}: a table must have at least one row below its header, got none")
    selected = set(needed(names))
    return {name: (lines, column) for name, column in zip(names, cells, strict=True) if name in selected}


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


def encode(columns: Mapping[str, Column]) -> NDArray[np.float64]:
    """Return features (A, d): numbers scaled to [0, 1] by their minimum and maximum, and text
    one-hot encoded and divided by √2 (like `Choice`).

    A column that never varies has no feature. Raises ObjectiveError if a text column has more than
    64 different values, or nothing varies.
    """
    blocks = []
    for name, column in columns.items():
        if column.dtype.kind in "if":
            numbers = column.astype(np.float64)
            low, high = float(numbers.min()), float(numbers.max())
            if low != high:
                # halved, because the values may span the whole range of float64
                unit = 0.5 if math.isinf(high - low) else 1.0
                blocks.append(((numbers * unit - low * unit) / (high * unit - low * unit))[:, None])
            continue
        levels, index = np.unique(column, return_inverse=True)
        if len(levels) > _MOST_CHOICES:
            raise ObjectiveError(
                f"text column {name!r} must have at most {_MOST_CHOICES} different values, got {len(levels)}; "
                "remove the column from the table or code it as numbers"
            )
        if len(levels) > 1:
            blocks.append((np.eye(len(levels)) / math.sqrt(2))[index])
    if not blocks:
        named = ", ".join(list(columns)[:5]) or "none"
        more = f" and {len(columns) - 5} more" * (len(columns) > 5)
        raise ObjectiveError(f"a table must have a feature column that varies, got {named:.200}{more}")
    return np.hstack(blocks)


ROW = "row"  # the parameter with the index of an arm's row
NoiseOption = Annotated[
    float,
    Ge(0),
    Lt(math.inf),
    Doc("The standard deviation of the noise that is added to a reward, ≥ 0."),
]


@dataclass(frozen=True)
class Table:
    """A finite table of known rewards.

    Raises ObjectiveError if shapes differ, a row has no finite target or a column is called `row`.
    """

    features: NDArray[np.float64]  # (A, d), the arms
    columns: Mapping[str, NDArray[np.generic]]  # the arms' values for display, (A,) each
    # (A,), or (A, repeats) for repeated evaluations, one of which the seed selects (NaN if missing)
    target: NDArray[np.float64]
    noise_std: float = 0.0  # of the Gaussian noise, which is drawn with the seed
    seconds: NDArray[np.float64] | None = None  # (A,), the recorded duration of each evaluation
    description: str = "a table"  # for display
    parameter_of: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))  # see `Candidates`
    remark: str = ""  # a note on how the table was read, for display

    def __post_init__(self) -> None:
        if ROW in self.columns:
            raise ObjectiveError(f"a table's column must not be called {ROW!r}, which numbers the rows; rename it")
        arms = len(self.candidates())  # also checks features and columns
        target = np.array(self.target, dtype=np.float64).reshape(len(self.target), -1)
        if len(target) != arms:
            raise ObjectiveError(f"a table's target must have {arms} rows like its features, got {len(target)}")
        if self.seconds is not None and np.shape(self.seconds) != (arms,):
            raise ObjectiveError(f"a table's seconds must be ({arms},), got shape {np.shape(self.seconds)}")
        is_known = np.isfinite(target)
        if not is_known.any(axis=1).all():
            row = int(np.argmin(is_known.any(axis=1)))
            raise ObjectiveError(f"every row of a table must have a finite target, row {row} has none")
        target[~is_known] = np.nan
        target.flags.writeable = False
        object.__setattr__(self, "target", target)

    def candidates(self) -> Candidates:
        """Return the table's rows in order. `row` identifies them; the other columns are for
        display."""
        columns = {ROW: np.arange(len(self.features)), **self.columns}
        return Candidates(self.features, columns, self.parameter_of, remark=self.remark)

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return the target of row `parameters["row"]` plus noise, with the metrics `noise_free`
        (mean over repeats) and `seconds`.

        Raises ValueError if the row does not exist.
        """
        row = parameters.get(ROW)
        if not isinstance(row, int) or not 0 <= row < len(self.target):
            raise ValueError(f"parameter {ROW!r} must be an integer from 0 to {len(self.target) - 1}, got {row!r}")
        rng = np.random.default_rng(seed)
        recorded = recorded_evaluation(self.target[row], rng)
        metrics = dict(recorded.metrics)
        if self.seconds is not None:
            metrics["seconds"] = float(self.seconds[row])
        return Evaluation(recorded.value + self.noise_std * float(rng.standard_normal()), metrics)

    def optimum(self, maximize: bool) -> float:
        """Return the largest (or smallest) mean over repeats in the table."""
        return best_mean(self.target, maximize)


def best_mean(target: NDArray[np.float64], maximize: bool) -> float:
    """Return the largest (or smallest) mean of the rows of `target` (A, repeats)."""
    means = np.nanmean(target, axis=1)
    return float(means.max() if maximize else means.min())


def recorded_evaluation(repeats: NDArray[np.float64], rng: np.random.Generator) -> Evaluation:
    """Return one of the `repeats` (n,) that are not NaN, with their mean as the metric
    `noise_free`."""
    recorded = repeats[~np.isnan(repeats)]
    return Evaluation(float(rng.choice(recorded)), {"noise_free": float(recorded.mean())})


def _read_users_table(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        return read_columns(path)
    except ObjectiveError as error:
        raise ObjectiveError(f"candidates.table: {error}") from error


def _features(path: Path, columns: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float64]:
    try:
        return encode(columns)
    except ObjectiveError as error:
        raise ObjectiveError(f"candidates.table: {path}: {error}") from error


def table_candidates(path: Path) -> Candidates:
    """Return the rows of a user's table as arms, with the columns as parameters. Among equal rows,
    only the first is an arm. Raises ObjectiveError."""
    columns = _read_users_table(path)
    groups = group(columns)
    columns = groups.arms(columns)
    return Candidates(_features(path, columns), columns, remark=groups.remark(path))


def table_objective(path: Path, target: str) -> Table:
    """Return a user's table with the column `target` as the value.

    All other columns are features. Rows with equal features are one arm, and each evaluation of the
    arm draws one of their values. Raises ObjectiveError if the column is missing or not numeric.
    """
    columns = _read_users_table(path)
    if target not in columns:
        raise ObjectiveError(
            f"candidates.target must be a column of {path} ({', '.join(columns)}), "
            f"got {target!r}{did_you_mean(target, columns)}"
        )
    if columns[target].dtype.kind not in "if":
        raise ObjectiveError(f"candidates.target: column {target!r} of {path} must be numbers, got text")
    values = columns.pop(target).astype(np.float64)
    arms: Mapping[str, NDArray[np.generic]] = columns
    remark = ""
    if arms:
        groups = group(arms)
        arms = groups.arms(arms)
        values = groups.repeats(values)
        remark = groups.remark(path, has_values=True)
    description = f"{target} of {path}"
    return Table(_features(path, arms), arms, target=values, description=description, remark=remark)


@dataclass(frozen=True)
class Groups:
    """Rows of a table, grouped by their parameters."""

    first: NDArray[np.intp]  # (A,), the first row of each group, in the table's order
    of: NDArray[np.intp]  # (rows,), the group of each row

    @property
    def repeated(self) -> int:
        """The rows that repeat an earlier one."""
        return len(self.of) - len(self.first)

    def arms(self, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Return the `columns` (rows,) of the first row of each group, (A,)."""
        return {name: column[self.first] for name, column in columns.items()}

    def remark(self, table: object, has_values: bool = False) -> str:
        """Return a remark about the merged rows; empty if there are none. `has_values`: whether an
        evaluation draws one of their values."""
        if not self.repeated:
            return ""
        draws = "an evaluation draws one of the values of these rows; " if has_values else ""
        again = next(row for row, group in enumerate(self.of) if self.first[group] != row)
        first = f"the first: row {again + 1} repeats row {self.first[self.of[again]] + 1}"
        return (
            f"{self.repeated} rows of {table} repeat the parameters of an earlier row and are one candidate with it "
            f"({first}); {draws}to keep each row as a candidate of its own, add a column that numbers the rows"
        )

    def repeats(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the `values` (rows,) as (A, most in a group), with NaN for missing ones."""
        order = np.argsort(self.of, kind="stable")
        counts = np.bincount(self.of, minlength=len(self.first))
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        table = np.full((len(self.first), int(counts.max())), np.nan)
        table[self.of[order], place] = values[order]
        return table


def group(columns: Mapping[str, NDArray[np.generic]]) -> Groups:
    """Group the rows by `columns`, each (rows,); there must be at least one column."""
    codes = np.column_stack([np.unique(column, return_inverse=True)[1] for column in columns.values()])
    _, first, of = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Groups(first[order], rank[of.reshape(-1)])
