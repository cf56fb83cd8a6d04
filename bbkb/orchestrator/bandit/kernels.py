"""Covariance functions k(x, x'), one frozen dataclass each.

Every entry of `cross` depends only on its two rows, bit for bit, and not on other rows of the call.
A column may therefore be cached or recomputed, completely or in blocks, without changing any pick.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from annotated_types import Gt
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import LEVEL
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.options import Like, Options, Tagged, excerpt

Lengthscale = float | tuple[float, ...]
_Length = Annotated[float, Gt(0)]
LengthscaleOption = Annotated[
    _Length | tuple[_Length, ...],
    Doc("The distance over which values are similar, > 0: one number, or one for each feature."),
]
VarianceOption = Annotated[float, Gt(0), Doc("The variance of the function, > 0.")]
BLOCK = 16_384  # the number of entries of a kernel matrix that are computed at a time
FEW = 8192  # the number of differences of features that are computed in one call


@runtime_checkable
class Kernel(Protocol):
    """A covariance function."""

    def cross(self, X: Floats, Y: Floats) -> Floats:
        """Return k(x, y) for all rows of X (n, d) and Y (p, d): (n, p)."""

    def diagonal(self, X: Floats) -> Floats:
        """Return k(x, x) for all rows of X (n, d): (n,)."""


@dataclass(frozen=True)
class _Scaled(Options):
    """The options of all kernels. Raises ValueError if an option is out of range."""

    SECTION: ClassVar[str] = "strategy.kernel"

    lengthscale: LengthscaleOption = 1.0
    variance: VarianceOption = 1.0

    def __post_init__(self) -> None:
        """Convert NumPy's numbers to floats and tuples; reject other values."""
        try:
            scales = np.asarray(self.lengthscale)
            if scales.dtype.kind not in "iufO" or any(isinstance(number, bool) for number in scales.flat):
                raise TypeError  # Booleans and numeric strings are not numbers here
            scales = scales.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            rule = "strategy.kernel.lengthscale must be a number, or one for each feature"
            raise ValueError(f"{rule}, got {excerpt(self.lengthscale)}") from None
        if scales.ndim > 1 or not scales.size or not ((scales > 0) & (scales < math.inf)).all():
            raise ValueError(f"strategy.kernel.lengthscale must be > 0 and finite, got {excerpt(self.lengthscale)}")
        object.__setattr__(self, "lengthscale", tuple(scales.tolist()) if scales.ndim else float(scales))
        super().__post_init__()


class _Stationary(_Scaled, ABC):
    """A kernel that is a function of the scaled distance of its two rows."""

    def cross(self, X: Floats, Y: Floats) -> Floats:
        """Return k(x, y) for all rows of X (n, d) and Y (p, d): (n, p)."""
        return _scale(self.variance, self._correlations(_squared_distances(X, Y, self.lengthscale)))

    def diagonal(self, X: Floats) -> Floats:
        """Return k(x, x) for all rows of X (n, d): (n,)."""
        return np.full(len(X), self.variance)

    @abstractmethod
    def _correlations(self, squares: Floats) -> Floats:
        """Return k / variance for scaled squared distances `squares` (n, p); may overwrite them."""


@dataclass(frozen=True)
class RBF(_Stationary):
    """Gaussian kernel, variance · exp(−r²/2) with r = ‖(x − x')/lengthscale‖."""

    name: Literal["rbf"] = "rbf"

    def _correlations(self, squares: Floats) -> Floats:
        correlations: Floats = np.exp(-0.5 * squares)
        return correlations


@dataclass(frozen=True)
class Matern32(_Stationary):
    """Matérn kernel of smoothness 3/2: variance · (1 + √3 r) exp(−√3 r), r as in `RBF`."""

    name: Literal["matern32"] = "matern32"

    def _correlations(self, squares: Floats) -> Floats:
        r = np.sqrt(3.0 * squares)
        correlations: Floats = (1.0 + r) * np.exp(-r)
        return correlations


@dataclass(frozen=True)
class Matern52(_Stationary):
    """Matérn kernel of smoothness 5/2: variance · (1 + √5 r + 5r²/3) exp(−√5 r), r as in `RBF`."""

    name: Literal["matern52"] = "matern52"

    def _correlations(self, squares: Floats) -> Floats:
        r = squares
        r *= 5.0
        np.sqrt(r, out=r)
        correlations = np.negative(r)
        np.exp(correlations, out=correlations)
        third = r * r
        third /= 3.0
        r += 1.0
        r += third
        correlations *= r  # (1 + r + r²/3) exp(−r), with few arrays of this size
        return correlations


@dataclass(frozen=True)
class Linear(_Scaled):
    """Linear kernel: variance · ⟨x/lengthscale, x'/lengthscale⟩."""

    name: Literal["linear"] = "linear"

    def cross(self, X: Floats, Y: Floats) -> Floats:
        """Return k(x, y) for all rows of X (n, d) and Y (p, d): (n, p)."""
        units = _level_units(X, self.lengthscale)
        X = X / _scales(X, self.lengthscale)
        Y = Y / _scales(Y, self.lengthscale)
        products = np.zeros((len(X), len(Y)))
        # not X @ Yᵀ, because BLAS rounds by position and shape (see the module)
        for column, (x, y) in enumerate(zip(X.T, Y.T, strict=True)):
            if column in units:
                products += 0.5 * units[column] * np.equal.outer(x, y)
            else:
                products += np.multiply.outer(x, y)
        return _scale(self.variance, products)

    def diagonal(self, X: Floats) -> Floats:
        """Return k(x, x) for all rows of X (n, d): (n,)."""
        total = np.zeros(len(X))
        units = _level_units(X, self.lengthscale)
        for column, x in enumerate((X / _scales(X, self.lengthscale)).T):  # the same order of additions as in `cross`
            total += 0.5 * units[column] if column in units else x * x
        return _scale(self.variance, total)


AnyKernel = RBF | Matern32 | Matern52 | Linear
KERNELS: Mapping[str, type[AnyKernel]] = {"rbf": RBF, "matern32": Matern32, "matern52": Matern52, "linear": Linear}
NAMED_KERNEL = Tagged("name", tuple(KERNELS.items()))
KernelOption = Annotated[
    AnyKernel, NAMED_KERNEL, Like(Kernel), Doc("k, the covariance function: rbf, matern32, matern52 or linear.")
]


def _scales(X: Floats, lengthscale: Lengthscale) -> float | Floats:
    """Return the lengthscale as a divisor of X (n, d). Raises ValueError if it does not fit d."""
    if not isinstance(lengthscale, tuple):
        return lengthscale
    if len(lengthscale) != X.shape[1]:
        raise ValueError(
            f"strategy.kernel.lengthscale must be one number or one for each of the {X.shape[1]} features, "
            f"got {len(lengthscale)} numbers"
        )
    return np.asarray(lengthscale)


def _level_units(X: Floats, lengthscale: Lengthscale) -> dict[int, float]:
    """Return the columns of X (n, d) whose features name values of a choice (see `LEVEL`), with the
    squared distance between two values."""
    columns = np.flatnonzero(X[0] <= LEVEL).tolist() if len(X) else []
    return {at: (lengthscale[at] if isinstance(lengthscale, tuple) else lengthscale) ** -2.0 for at in columns}


def _squared_distances(X: Floats, Y: Floats, lengthscale: Lengthscale) -> Floats:
    # differences instead of ‖x‖² + ‖y‖² − 2xy, which suffers from cancellation for near-duplicates,
    # as in dictionaries
    scales = _scales(X, lengthscale)
    units = _level_units(X, lengthscale)
    X = np.asfortranarray(X / scales)
    Y = np.asfortranarray(Y / scales)
    if 1 < len(X) * len(Y) <= FEW // max(1, X.shape[1]):  # the same sums in the same order, in few calls
        differences = X.T[:, :, None] - Y.T[:, None, :]
        for column, unit in units.items():
            differences[column] = math.sqrt(unit) * (differences[column] != 0.0)
        few: Floats = np.add.reduce(np.multiply(differences, differences, out=differences), axis=0)
        return few
    squares = np.zeros((len(X), len(Y)))
    rows = max(1, BLOCK // max(1, len(Y)))  # a block stays in the cache for all features
    for low in range(0, len(X), rows):
        block = squares[low : low + rows]
        difference = np.empty((len(X[low : low + rows]), len(Y)))
        for column, (x, y) in enumerate(zip(X[low : low + rows].T, Y.T, strict=True)):
            np.subtract(x[:, None], y, out=difference)
            if column in units:
                np.multiply(difference != 0.0, math.sqrt(units[column]), out=difference)
            block += np.multiply(difference, difference, out=difference)
    return squares


def _scale(variance: float, correlations: Floats) -> Floats:
    return correlations if variance == 1.0 else variance * correlations
