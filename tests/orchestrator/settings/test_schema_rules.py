"""What the JSON Schema refuses is what loading refuses, but for what a schema cannot say, which is listed here."""

import copy
from typing import Any

import jsonschema
import pytest

from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.errors import ConfigError
from orchestrator.settings.model import from_mapping
from orchestrator.settings.schema import schema

VALIDATOR = jsonschema.Draft202012Validator(schema())
BASE: dict[str, Any] = {
    "name": "a",
    "objective": {"command": "echo {x}"},
    "space": {"x": {"low": 0.0, "high": 1.0}, "m": {"choices": ["a", "b"]}},
    "budget": {"evaluations": 10},
}
Change = tuple[tuple[str, ...], Any]  # a key and its value; None takes it away

REFUSED: list[Change] = [
    (("candidates", "size"), 100000000000),
    (("candidates", "size"), 0),
    (("workers", "count"), 1000000),
    (("workers", "count"), 0),
    (("workers", "cpus"), 0),
    (("workers", "gpus"), -1),
    (("workers", "retry_memory_factor"), 2.0),
    (("workers", "timeout_factor"), 1.0),
    (("workers", "retries"), -1),
    (("workers", "executor"), "dask"),
    (("candidates", "target"), "y"),
    (("candidates", "sampler"), "x"),
    (("candidates", "table"), "t.csv"),
    (("computing", "shards"), 0),
    (("objective", "name"), "branin"),
    (("objective", "callable"), "a:b"),
    (("strategy",), {"name": "bbkb", "lambda_": 1}),
    (("strategy",), {"name": "bkbb"}),
    (("strategy",), {"name": "bbkb", "mode": "x"}),
    (("strategy",), {"name": "uniform", "mode": "batch"}),
    (("strategy",), {"name": "bbkb", "regularization": -1.0}),
    (("strategy",), {"name": "bbkb", "ratio_threshold": 0.5}),
    (("strategy",), {"name": "bbkb", "delta": 2.0}),
    (("strategy",), {"name": "bbkb", "warm_start": {"name": "random", "size": 0}}),
    (("strategy",), {"name": "bbkb", "kernel": {"name": "rbf", "lengthscale": -1.0}}),
    (("strategy",), {"name": "bbkb", "kernel": {"name": "rbb"}}),
    (("strategy",), {"name": "epsilon_greedy", "epsilon": 2.0}),
    (("strategy",), {"name": "async_ts", "features": 0}),
    (("strategy",), {"name": "regularized_evolution", "population": 0}),
    (("model",), {"outputs": "x"}),
    (("model",), {"width": -1.0}),
    (("model",), {"kernel": {"name": "x"}}),
    (("space", "x"), {"low": 0.0, "high": 1.0, "log": True}),
    (("space", "x"), {"low": 0.5, "high": 1.0, "integer": True}),
    (("space", "x"), {"low": 0.0}),
    (("space", "x"), {"choices": []}),
    (("space", "x"), {"choices": ["a", "a"]}),
    (("space", "x"), {"ordered": []}),
    (("space", "x"), {"low": 0.0, "high": 1.0, "step": -1.0}),
    (("space", "x"), {"choices": ["a", "b"], "weights": [-1, 2]}),
    (("space", "x"), {"low": 0.0, "high": 1.0, "choices": [1]}),
    (("space", "x"), {"constant": [1]}),
    (("space", "x"), 3),
    (("space", "x"), {}),
    (("space",), {}),
    (("space",), "space.txt"),
    (("space", "9x"), {"low": 0, "high": 1}),
    (("forbid",), {"m": "a"}),
    (("forbid",), [{}]),
    (("forbid",), [{"m": {"over": 1}}]),
    (("forbid",), [3]),
    (("enqueue",), [{}]),
    (("enqueue",), 3),
    (("enqueue",), [{"x": [1]}]),
    (("name",), ""),
    (("name",), "a b"),
    (("name",), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    (("name",), 3),
    (("name",), None),
    (("budget",), None),
    (("budget", "evaluations"), 0),
    (("budget", "evaluations"), 1.5),
    (("budget", "hours"), 0),
    (("seed",), -1),
    (("seed",), 1.5),
    (("store",), "mysql://x"),
    (("store",), "x"),
    (("early_stopping",), {"rule": "asha", "reduction": 1.0}),
    (("early_stopping",), {"rule": "x"}),
    (("early_stopping",), {"rule": "median", "reduction": 2.0}),
    (("early_stopping",), {}),
    (("log", "level"), "loud"),
    (("log", "format"), "xml"),
    (("tags",), ["a b"]),
    (("tags",), "a"),
    (("run",), "a b"),
    (("nonsense",), 1),
    (("workers", "cont"), 1),
    (("objective",), {"command": "echo", "direction": "up"}),
    (("objective",), {}),
    (("objective",), None),
    (("objective",), {"name": "branin", "options": {"q": 1}}),
    (("objective",), {"name": "branni"}),
    (("workers", "gpus_from"), {}),
    (("workers", "gpus_from"), {"parameter": 3}),
    (("existing_data",), 3),
    (("existing_data",), {"optuna": "x", "metric": "y"}),
    (("existing_data",), {"results": []}),
    (("existing_data",), {"results": [{"value": 1}]}),
    (("existing_data",), {"foo": 1}),
    (("workers", "simulation"), {"sigma": -1.0}),
    (("workers", "simulation"), {"failure_rate": 1.0}),
    (("data", "folder"), 3),
    (("notify",), {}),
    (("notify",), {"webhook": "ftp://x"}),
    (("computing", "threads"), 0),
    (("strategy",), {"name": "bbkb", "preset": "x"}),
]
BEYOND_A_SCHEMA: list[Change] = [
    (("strategy",), {"name": "bbkb", "warm_start": {"name": "data", "path": ""}}),
    (("space", "x"), {"low": 1.0, "high": 0.0}),
    (("space", "x"), {"low": 0, "high": 1, "step": 0.3}),
    (("space", "x"), {"choices": ["a"], "weights": [1, 2]}),
    (("forbid",), [{"q": 1}]),
    (("enqueue",), [{"x": 0.5}]),
    (("enqueue",), [{"x": 0.5, "m": "c"}]),
    (("objective",), {"command": "echo '{x}'"}),
    (("objective",), {"command": "echo {q}"}),
    (("strategy",), {"name": "optuna", "sampler": "XSampler"}),
]

# options whose rule involves another option
DEPENDENT = {
    ("igp_ucb", "final_points"),
    *(("gp_threds", option) for option in ("low", "high", "walk_error")),
    *((f"compressed_{acquisition}", "epsilon") for acquisition in ("ucb", "ei", "mpi")),  # its test may be relative
}


def change_base(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(BASE)
    section = tree
    for key in path[:-1]:
        section = section.setdefault(key, {})
    if value is None:
        section.pop(path[-1], None)
    else:
        section[path[-1]] = value
    return tree


def is_loadable(tree: dict[str, Any]) -> bool:
    try:
        from_mapping(tree)
    except ConfigError:
        return False
    return True


def test_the_file_that_is_changed_is_right() -> None:
    assert is_loadable(BASE)
    assert VALIDATOR.is_valid(BASE)


@pytest.mark.parametrize(("path", "value"), REFUSED, ids=str)
def test_what_loading_refuses_the_schema_refuses(path: tuple[str, ...], value: Any) -> None:
    assert not is_loadable(change_base(path, value))
    assert not VALIDATOR.is_valid(change_base(path, value))


@pytest.mark.parametrize(("path", "value"), BEYOND_A_SCHEMA, ids=str)
def test_what_a_schema_cannot_say_loading_refuses(path: tuple[str, ...], value: Any) -> None:
    assert not is_loadable(change_base(path, value))
    assert VALIDATOR.is_valid(change_base(path, value))


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "optuna"])
def test_every_number_of_a_strategy_has_the_bounds_that_its_class_checks(name: str) -> None:
    (definition,) = [
        one for one in schema()["$defs"].values() if one.get("properties", {}).get("name", {}).get("const") == name
    ]
    too_strict, too_lenient = [], set()
    for option, field in definition["properties"].items():
        kinds = {part.get("type") for part in (field, *field.get("anyOf", []))}
        for number in (-1, 0, 1, 2) if "integer" in kinds else (-1.0, 0.0, 0.5, 1.0, 1.5) if "number" in kinds else ():
            tree = change_base(("strategy",), {"name": name, option: number})
            is_right, is_valid = is_loadable(tree), VALIDATOR.is_valid(tree)
            too_strict += [(option, number)] if is_right and not is_valid else []
            too_lenient |= {(name, option)} if is_valid and not is_right else set()
    assert too_strict == []
    assert too_lenient <= DEPENDENT
