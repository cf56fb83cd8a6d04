"""`bbkb.objectives.external`: The user's own objectives: any importable function, any shell command."""

import functools
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bbkb.objectives.external import PythonCallable, check_signature
from bbkb.objectives.objective import InvalidValueError, ObjectiveError, Report

MODULE = """
def plain(x, scale=1):
    return x * scale

def seeded(x, seed):
    return {"value": x + seed, "seed": seed}

def reporting(x, report):
    report(x / 2, step=4)
    return x

def anything(**parameters):
    return len(parameters)

def picky(x, /, y):
    return x

def worded(x):
    return "high"

def failing(x):
    raise ZeroDivisionError("of the user's own")

def required(learning_rate):
    return learning_rate

def required_and_more(learning_rate, **more):
    return learning_rate

constant = 3
"""


Named = Callable[[str], PythonCallable]


@pytest.fixture
def callable_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Named:
    """Builds a PythonCallable of a function in MODULE, found by its search path only."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "users_module", raising=False)
    (tmp_path / "users_module.py").write_text(MODULE)
    return lambda name: PythonCallable(f"users_module:{name}", (str(tmp_path),))


@pytest.mark.parametrize(
    ("name", "parameters", "value"),
    [
        ("plain", {"x": 3, "scale": 2}, 6),
        ("seeded", {"x": 1}, 42),
        ("seeded", {"x": 1, "seed": 5}, 6),  # a parameter called seed is the parameter
        ("anything", {"a": 1, "b": 2}, 2),  # variadic keywords receive only the parameters
    ],
)
def test_parameters_are_keywords_and_the_seed_is_passed_if_the_signature_names_it(
    callable_named: Named, silent: Report, name: str, parameters: dict[str, int], value: int
) -> None:
    assert callable_named(name).evaluate(parameters, 41, silent).value == value


def test_report_is_passed_and_a_returned_mapping_has_metrics(callable_named: Named, silent: Report) -> None:
    assert dict(callable_named("seeded").evaluate({"x": 1}, 41, silent).metrics) == {"seed": 41}
    reports: list[Any] = []
    callable_named("reporting").evaluate({"x": 1}, 0, lambda value, step=None, **_: reports.append((value, step)))
    assert reports == [(0.5, 4)]


def test_exception_of_the_function_passes_through(callable_named: Named, silent: Report) -> None:
    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        callable_named("failing").evaluate({"x": 1}, 0, silent)
    with pytest.raises(InvalidValueError, match="users_module:worded must return a number, got str 'high'"):
        callable_named("worded").evaluate({"x": 1}, 0, silent)


def test_external_evaluates_the_same_after_pickling(callable_named: Named, silent: Report) -> None:
    objective = callable_named("plain")
    assert pickle.loads(pickle.dumps(objective)).evaluate({"x": 3}, 0, silent) == objective.evaluate(
        {"x": 3}, 0, silent
    )


def test_preparing_imports_the_module_and_raises_its_errors(callable_named: Named, tmp_path: Path) -> None:
    callable_named("plain").prepare()
    assert "users_module" in sys.modules
    (tmp_path / "broken_module.py").write_text("1 / 0")
    with pytest.raises(ObjectiveError, match="division by zero"):
        PythonCallable("broken_module:plain", (str(tmp_path),)).prepare()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("plain", ["x"]), ("plain", ["x", "scale"]), ("seeded", ["x"]), ("reporting", ["x"]), ("anything", ["a", "b"])],
)
def test_function_that_fits_the_space_passes_the_check(
    callable_named: Named, silent: Report, name: str, parameters: list[str]
) -> None:
    objective = callable_named(name)
    objective.check(parameters)
    objective.evaluate(dict.fromkeys(parameters, 1), 0, silent)  # and the check was right


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("plain", ["x", "scael"], "must accept parameter 'scael' of the space, .* x, scale; did you mean 'scale'"),
        ("plain", [], "needs 'x'; add it to the space or give it a default"),
        ("picky", ["x", "y"], r"must accept parameter 'x' .*; add it, or \*\*parameters"),
        ("plian", ["x"], "has no 'plian'; did you mean 'plain'"),
        ("plain", ["y", "sacle", "x"], "must accept parameter 'sacle'"),
        ("seeded", ["seed", "xx"], "must accept parameter 'xx'"),
        ("required", ["lerning_rate"], "must accept parameter 'lerning_rate'.*did you mean 'learning_rate'"),
        ("required_and_more", ["lerning_rate"], "needs 'learning_rate'; .*; did you mean 'lerning_rate'"),
        ("constant", ["x"], "must name a function, 'users_module:constant' is int"),
    ],
)
def test_function_that_does_not_fit_is_rejected_early(
    callable_named: Named, name: str, parameters: list[str], message: str
) -> None:
    with pytest.raises(ObjectiveError, match=message):
        callable_named(name).check(parameters)


async def _returns_a_coroutine(x: float) -> float:
    return x


def _yields(x: float) -> Iterator[float]:
    yield x


class _AsynchronousCall:
    async def __call__(self, x: float) -> float:
        return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_returns_a_coroutine, r"f must be an ordinary function, not an async one; .* asyncio\.run"),
        (functools.partial(_returns_a_coroutine), "must be an ordinary function"),
        (_AsynchronousCall(), "must be an ordinary function"),
        (_AsynchronousCall().__call__, "must be an ordinary function"),
        (dict, "f must be a function, not a class"),
        (_yields, r"must return its value, it has a yield; .* report\(value, step\)"),
    ],
)
def test_function_that_returns_no_value_when_called_is_rejected_early(
    function: Callable[..., object], message: str
) -> None:
    with pytest.raises(ObjectiveError, match=message):
        check_signature(function, ["x"], "f")


def test_builtin_without_a_signature_is_accepted() -> None:
    PythonCallable("builtins:max").check(["x"])
