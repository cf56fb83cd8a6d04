"""The candidates of a bandit: their features, and the parameters behind the features."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only, same
from bbkb.orchestrator.bandit.goals import SINGLE, Goals
from bbkb.orchestrator.bandit.options import excerpt

_UNIFORM = math.sqrt(12.0)  # width / standard deviation of a uniform distribution
# the ratio between the distance of two choices and the height of a one-hot column
_CHOICE = math.sqrt(2.0)
# A feature ≤ LEVEL is the name of a value of a choice with many values: two arms differ in it by 1,
# or not at all. The features of objectives have the same constant.
LEVEL = -(2.0**60)


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """The properties of the candidates, besides their features, that a strategy may use.

    Raises:
        ValueError: if the parts do not fit together.
    """

    # (d,), the parameter, 0 … p − 1, of each feature; the one-hot columns of a choice share one
    parameters: Indices
    # (p,), the largest distance between two values of each parameter, in units of its features; > 0
    extents: Floats
    # whether an arm may be pulled again for a better estimate
    repeats: bool = True
    # whether all pulls of an arm have the same reward, as the user declares; None: unknown, so that an arm may be
    # pulled again to find it out
    is_deterministic: bool | None = None
    # whether the arms follow a low-discrepancy sequence, so that the first ones cover the space
    is_sequence: bool = False
    # whether `Arms.log_prior` only prefers the center of a space, because the user expects nothing
    prefers_center: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", read_only(self.parameters, np.intp))
        object.__setattr__(self, "extents", read_only(self.extents, np.float64))
        named = np.unique(self.parameters)
        if not np.array_equal(named, np.arange(len(self.extents))):
            raise ValueError(
                f"parameters must be the indices 0 … {len(self.extents) - 1}, each at least once, got {named.tolist()}"
            )
        if not (np.isfinite(self.extents) & (self.extents > 0)).all():
            raise ValueError(f"extents must be > 0 and finite, got {self.extents.tolist()}")

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    @property
    def parameter_count(self) -> int:
        """The number of parameters, p."""
        return len(self.extents)


@dataclass(frozen=True, eq=False)
class Arms:
    """The finite set of arms from which a strategy chooses."""

    features: Floats  # (A, d)
    layout: Layout  # parameters and extents of the features, and whether arms may be repeated
    goals: Goals = SINGLE  # the numbers of objectives and constraints of a pull's rewards
    # (A,), the expected quality of each arm relative to the best, at most 0; None if there is no
    # expectation
    log_prior: Floats | None = None

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def __len__(self) -> int:
        return len(self.features)

    def with_goals(self, goals: Goals) -> "Arms":
        """Return these arms with `goals`."""
        return replace(self, goals=goals)

    @staticmethod
    def of(
        features: ArrayLike,
        parameters: ArrayLike | None = None,
        *,
        repeats: bool = True,
        is_deterministic: bool | None = None,
        is_sequence: bool = False,
        log_prior: Floats | None = None,
        prefers_center: bool = False,
    ) -> "Arms":
        """Return arms with `features` (A, d), finite; every feature is a separate parameter unless
        `parameters` (d,) is given. Raises ValueError if `features` is empty, not finite or not
        2-D."""
        rows = check_features(features)
        numbers = np.arange(rows.shape[1]) if parameters is None else np.asarray(parameters, np.intp)
        if numbers.shape != (rows.shape[1],):
            raise ValueError(f"parameters must be one number a feature, {rows.shape[1]}, got shape {numbers.shape}")
        extents = feature_extents(rows, numbers)
        layout = Layout(
            parameters=numbers,
            extents=extents,
            repeats=repeats and not is_deterministic,
            is_deterministic=is_deterministic,
            is_sequence=is_sequence,
            prefers_center=prefers_center,
        )
        return Arms(rows, layout, log_prior=None if log_prior is None else read_only(log_prior, np.float64))


def as_arms(arms: Arms | ArrayLike) -> Arms:
    """Return `arms`, or an (A, d) array as arms that may repeat. Raises ValueError if the array is
    empty, not finite or not 2-D."""
    return arms if isinstance(arms, Arms) else Arms.of(arms)


def check_features(features: ArrayLike) -> Floats:
    """Return `features` (A, d) as a read-only float array. Raises ValueError if they are not
    numeric, empty, not finite or not 2-D."""
    try:
        checked: Floats = read_only(features, np.float64)
    except (TypeError, ValueError, OverflowError):
        rule = "candidates must be an (A, d) array of numbers, a row for each candidate"
        remedy = "for a search space give space={…}"
        if hasattr(features, "columns"):  # a DataFrame
            remedy = "pandas.get_dummies(…, dtype=float) turns its texts into numbers"
        raise ValueError(f"{rule}, got {excerpt(features)}; {remedy}") from None
    if checked.ndim != 2 or 0 in checked.shape:
        raise ValueError(f"candidates must be an (A, d) array with A, d >= 1, got shape {checked.shape}")
    if not np.isfinite(checked).all():
        row = int(np.flatnonzero(~np.isfinite(checked).all(axis=1))[0])
        raise ValueError(f"candidates must be finite, row {row} is {checked[row].tolist()}")
    return checked


def feature_extents(features: Floats, parameters: Indices) -> Floats:
    """Return the extent (p,) of each parameter of `features` (A, d); 1 for a parameter that does
    not vary.

    The extent of a single feature is the smaller of its range and of the range of a uniform
    distribution with its standard deviation, so that a single outlier has no effect. The extent of
    several one-hot features is the distance between two choices.
    """
    ranges = features.max(axis=0) - features.min(axis=0)
    extents = np.ones(int(parameters.max()) + 1)
    for parameter in range(len(extents)):
        columns = np.flatnonzero(parameters == parameter)
        if len(columns) == 1:
            column = int(columns[0])
            if features[0, column] <= LEVEL:
                continue
            extent = min(float(ranges[column]), _UNIFORM * float(features[:, column].std()))
        else:
            extent = _CHOICE * float(ranges[columns].max(initial=0.0))
        if extent > 0:
            extents[parameter] = extent
    return extents


def as_one_hot(features: Floats, parameters: Indices) -> tuple[Floats, Indices]:
    """Return `features` (n, d) with one-hot columns for the values that a feature ≤ `LEVEL` names,
    and the parameters of all columns. For few arms: a value of each arm may need a column."""
    if not (features[0] <= LEVEL).any():
        return features, parameters
    blocks = []
    for column in features.T:
        named = np.unique(column) if column[0] <= LEVEL else None
        blocks.append(column[:, None] if named is None else (column[:, None] == named) / _CHOICE)
    widths = [block.shape[1] for block in blocks]
    return np.hstack(blocks), np.repeat(parameters, widths)
