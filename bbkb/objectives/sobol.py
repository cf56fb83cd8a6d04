"""Scrambled Sobol sequences, the points of SciPy's `qmc.Sobol`, without the import of `scipy.stats`.

That import takes longer than the start of a campaign should. The direction numbers are those of
Joe and Kuo (2008), from a file of SciPy. The scrambling is Matoušek's (1998): a random lower
triangular matrix over the integers modulo 2 for each dimension, then a random shift.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BITS = 30
_PLACES = np.arange(_BITS - 1, -1, -1, dtype=np.uint32)  # the positions of the bits, the highest first


class Sobol:
    """A scrambled Sobol sequence in [0, 1)^d."""

    def __init__(self, dimensions: int, seed: int) -> None:
        directions = _directions(dimensions)
        rng = np.random.default_rng(seed)
        shift = rng.integers(2, size=(dimensions, _BITS), dtype=np.uint32)
        matrices = np.tril(rng.integers(2, size=(dimensions, _BITS, _BITS), dtype=np.uint32))
        matrices[:, range(_BITS), range(_BITS)] = 1
        bits = directions[:, :, None] >> _PLACES & 1
        # (d, direction, bit): the product of each matrix with the bits of each direction number
        scrambled = bits @ matrices.transpose(0, 2, 1) % 2
        self._directions = _number(scrambled.astype(np.uint32)).T
        self._next = _number(shift[:, ::-1])
        self._count = 0

    def random(self, count: int) -> NDArray[np.float64]:
        """Return the next `count` points (count, d)."""
        # point i + 1 differs from point i by the direction of the lowest zero bit of i
        before = np.arange(self._count, self._count + count)
        lowest_zero = np.bitwise_count(before ^ (before + 1)) - 1
        steps = np.vstack([self._next, self._directions[lowest_zero]])
        points = np.bitwise_xor.accumulate(steps, axis=0)
        self._next = points[-1]
        self._count += count
        return points[:-1] * 0.5**_BITS


def _number(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the numbers whose bits the last axis holds, the highest first."""
    numbers: NDArray[np.uint32] = (bits << _PLACES).sum(axis=-1, dtype=np.uint32)
    return numbers


def _directions(dimensions: int) -> NDArray[np.uint32]:
    """Return the direction numbers (d, bits) of the first dimensions.

    Raises ValueError if there are more dimensions than direction numbers.
    """
    package = find_spec("scipy")
    assert package is not None, "bbkb depends on SciPy"
    file = Path(str(package.origin)).parent / "stats" / "_sobol_direction_numbers.npz"
    with np.load(file) as table:
        polynomials = table["poly"][:dimensions].tolist()
        initial = table["vinit"][:dimensions].tolist()
    if len(polynomials) < dimensions:
        raise ValueError(f"a Sobol sequence has at most {len(polynomials)} dimensions, got {dimensions}")
    rows = [[1] * _BITS]
    for polynomial, row in zip(polynomials[1:], initial[1:], strict=True):
        rows.append(_recurrence(polynomial, row))
    return np.array(rows[:dimensions], dtype=np.uint32) << _PLACES


def _recurrence(polynomial: int, initial: list[int]) -> list[int]:
    """Return the direction numbers of one dimension, as integers (Bratley and Fox 1988)."""
    degree = polynomial.bit_length() - 1
    row = initial[:degree]
    while len(row) < _BITS:
        number = row[-degree]
        for back in range(1, degree + 1):
            if polynomial >> (degree - back) & 1:
                number ^= row[-back] << back
        row.append(number)
    return row
