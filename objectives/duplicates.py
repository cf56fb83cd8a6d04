"""Rows of a user's table that are equal in every parameter. They are merged into one candidate,
unless they are to be kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Duplicates = Literal["merge", "keep"]


@dataclass(frozen=True)
class Groups:
    """Rows of a table, grouped by their parameters."""

    first: NDArray[np.intp]  # (A,), the first row of each group, in the table's order
    of: NDArray[np.intp]  # (rows,), the group of each row

    @property
    def repeated(self) -> int:
        """The rows that repeat an earlier one."""
        return len(self.of) - len(self.first)

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
