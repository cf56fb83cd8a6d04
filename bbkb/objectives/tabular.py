"""Tables as objectives: an evaluation reads the value in an arm's row.

A user's table becomes candidates, or, with a target column, an objective. Rows that are equal in
every parameter are merged into one candidate, unless they are to be kept.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.objectives.keywords import did_you_mean
from bbkb.objectives.objective import Candidates, Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.table_file import encode, read_columns

Duplicates = Literal["merge", "keep"]  # of rows that are equal in every parameter
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


def table_candidates(path: Path, duplicates: Duplicates = "merge") -> Candidates:
    """Return the rows of a user's table as arms, with the columns as parameters. Among equal rows,
    only the first is an arm, unless `duplicates` are kept. Raises ObjectiveError."""
    columns = _read_users_table(path)
    remark = ""
    if duplicates == "merge":
        groups = group(columns)
        columns = groups.arms(columns)
        remark = groups.remark(path)
    return Candidates(_features(path, columns), columns, remark=remark)


def table_objective(path: Path, target: str, duplicates: Duplicates = "merge") -> Table:
    """Return a user's table with the column `target` as the value.

    All other columns are features. Unless `duplicates` are kept, rows with equal features are one
    arm, and each evaluation of the arm draws one of their values. Raises ObjectiveError if the
    column is missing or not numeric.
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
    if duplicates == "merge" and arms:
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
            f"({first}); {draws}to keep each row as a candidate of its own, set candidates.duplicates: keep"
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
