"""Tests of the conversion of objectives' numbers, and of its error messages."""

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from objectives.objective import InvalidValueError
from workers.results import finite, finite_or_not


class Measurement:
    """An object that Python's `float` accepts, as a tensor without dimensions is."""

    def __float__(self) -> float:
        return 2.0


class Tensor:
    """A tensor without dimensions that has a gradient: `float` of it warns, `float` of `detach()`
    does not."""

    ndim = 0

    def __init__(self, has_gradient: bool = True) -> None:
        self._has_gradient = has_gradient

    def detach(self) -> "Tensor":
        return Tensor(has_gradient=False)

    def __float__(self) -> float:
        if self._has_gradient:
            warnings.warn("converting a tensor with a gradient", UserWarning, stacklevel=2)
        return 2.0


@pytest.mark.parametrize(
    "number",
    [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), Fraction(4, 2), Decimal(2), Measurement(), Tensor()],
    ids=lambda number: type(number).__name__,
)
def test_number_is_anything_that_float_accepts(number: object) -> None:
    assert finite("a value", number) == 2.0
    assert type(finite_or_not("a value", number)) is float


def test_torch_tensors_without_dimensions_are_numbers() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert finite("a value", torch.tensor(0.5, requires_grad=True)) == 0.5
    with pytest.raises(InvalidValueError, match="give one of its numbers, such as its mean"):
        finite("a value", torch.tensor([0.5, 0.25]))


def test_number_that_is_not_finite_is_kept_only_if_allowed() -> None:
    assert math.isnan(finite_or_not("a value", Decimal("nan")))
    with pytest.raises(InvalidValueError, match="a value must be a finite number, got nan"):
        finite("a value", Decimal("nan"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0.5", r"got '0\.5' \(str\); write float\(\.\.\.\)"),
        (True, r"got True \(bool\); write float\(\.\.\.\)"),
        (np.array([0.5]), r"got array\(\[0\.5\]\) \(ndarray\); give one of its numbers"),
        (None, r"got None \(NoneType\)$"),
        (1j, r"got 1j \(complex\)$"),
        (10**1_000_000, r"got an int of 3321929 bits$"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_rejection_shows_the_value_and_the_remedy(value: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        finite_or_not("a value", value)
