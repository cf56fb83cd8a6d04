"""`bbkb.objectives.returned`: Converts the return value of a user's code to an evaluation, with strict
rules for numbers and clear messages.
"""

import warnings
from decimal import Decimal
from fractions import Fraction
from typing import NoReturn

import numpy as np
import pytest

from bbkb.objectives.objective import InvalidValueError
from bbkb.objectives.returned import as_evaluation


class Unprintable:
    def __repr__(self) -> NoReturn:
        raise RuntimeError("no")


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


PYTHONS = (2, 2.0, Fraction(4, 2), Decimal(2), Measurement(), Tensor())
NUMPYS = (np.float32(2), np.int64(2), np.array(2.0))


@pytest.mark.parametrize("number", [*PYTHONS, *NUMPYS], ids=lambda number: type(number).__name__)
def test_returned_number_of_any_type_is_a_value(number: object) -> None:
    evaluation = as_evaluation(number, "f")
    assert evaluation.value == 2.0
    assert type(evaluation.value) is float


def test_mapping_has_a_value_and_metrics() -> None:
    evaluation = as_evaluation({"value": 1, "loss": np.float32(0.5), "epochs": 3}, "f")
    assert (evaluation.value, dict(evaluation.metrics)) == (1.0, {"loss": 0.5, "epochs": 3.0})


def test_nan_and_infinity_are_passed_on_unchanged() -> None:
    assert np.isnan(as_evaluation(float("nan"), "f").value)
    assert as_evaluation(-np.inf, "f").value == -np.inf


@pytest.mark.parametrize(
    "returned",
    [None, "0.9", b"0.9", True, np.True_, 1j, np.complex64(1), [0.9], np.array([0.9]), (), object(), 10**1_000_000],
    ids=lambda returned: type(returned).__name__,
)
def test_returned_value_of_another_type_is_rejected_and_described(returned: object) -> None:
    with pytest.raises(InvalidValueError, match=f"f must return a number, got {type(returned).__name__} ") as caught:
        as_evaluation(returned, "f")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("returned", "remedy"),
    [
        (None, r"; is a return statement missing\?"),
        (True, r"; write float\(\.\.\.\) if it is meant as a number"),
        ("0.9", r"; write float\(\.\.\.\) if it is meant as a number"),
        (np.array([0.9, 0.8]), "; return one of its numbers, such as its mean"),
        ((0.9, {"seconds": 1}), "; write further numbers into one mapping: {'value': .*, 'seconds': .*}"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_rejected_value_is_named_with_the_remedy(returned: object, remedy: str) -> None:
    with pytest.raises(InvalidValueError, match=f"{remedy}$"):
        as_evaluation(returned, "f")


def test_tensor_with_a_gradient_is_a_number_without_a_warning() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert as_evaluation(torch.tensor(0.5, requires_grad=True), "f").value == 0.5


def test_object_with_a_broken_repr_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match="got Unprintable that cannot be shown"):
        as_evaluation(Unprintable(), "f")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"accuracy": 0.9},
            r"f must return a mapping with 'value', got keys \['accuracy'\]; call .* \[\{metric: accuracy, …\}\]",
        ),
        ({"value": "high"}, "f must return a number, got str 'high'"),
    ],
)
def test_wrong_mapping_is_rejected(returned: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        as_evaluation(returned, "f")


def test_invalid_metric_does_not_discard_the_value() -> None:
    folds = np.array([0.9, 0.97, 0.98])
    evaluation = as_evaluation({"value": 0.95, "folds": folds, "model": "x.pt", "loss": np.float32(0.5)}, "f")
    assert (evaluation.value, dict(evaluation.metrics)) == (0.95, {"loss": 0.5})
    assert evaluation.left_out == {"folds": "ndarray, not a number", "model": "str, not a number"}
