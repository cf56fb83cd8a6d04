"""Functions that are pickled by value: when two of them count as the same."""

import functools
from collections.abc import Callable

import cloudpickle
import pytest

from objectives.pickled import has_equal_code


def scaled(factor: float) -> Callable[[float], float]:
    def objective(x: float) -> float:
        return sum(factor * x for _ in range(3)) + (x in {1, 2, 3})

    return objective


def compiled(text: str) -> Callable[[float], float]:
    found: dict[str, Callable[[float], float]] = {}
    exec(text, found)  # as a script is compiled again when it runs again
    return found["f"]


class Squared:
    def __call__(self, x: float) -> float:
        return x * x


def test_a_function_equals_its_copy_out_of_a_pickle_and_itself_at_another_place() -> None:
    for function in (scaled(2.0), functools.partial(scaled(2.0)), Squared(), abs):
        assert has_equal_code(function, cloudpickle.loads(cloudpickle.dumps(function)))
    assert has_equal_code(compiled("def f(x): return x + 1"), compiled("import math\n\n\ndef f(x):\n    return x + 1"))


@pytest.mark.parametrize(
    "changed",
    [
        "def f(x): return x + 2",
        "def f(x): return x + 1.0",
        "def f(x): return x - 1",
        "def f(x): return g(x) + 1",
        "def f(x): return [x + 1 for y in x]",
        "def f(y): return y + 1",
    ],
)
def test_a_function_with_other_instructions_constants_or_names_is_another_one(changed: str) -> None:
    assert not has_equal_code(compiled("def f(x): return x + 1"), compiled(changed))


def test_a_function_inside_a_function_is_compared_too() -> None:
    one, other = (f"def f(x):\n    def g(y):\n        return y + {number}\n    return g(x)\n" for number in (1, 2))
    assert not has_equal_code(compiled(one), compiled(other))
