"""`bbkb.objectives.names`: The table of named objectives."""

import pytest

from bbkb.objectives.names import OBJECTIVES, find_objective
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.problems.synthetic import Branin
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import from_mapping
from tests.processes import run_python


def test_listed_name_and_a_reference_find_the_same_class() -> None:
    assert find_objective("branin") is find_objective("bbkb.objectives.problems.synthetic:Branin") is Branin


def test_misspelled_name_is_rejected_with_the_list_and_the_nearest_name() -> None:
    with pytest.raises(ObjectiveError, match=r"one of abalone, branin, .*got 'brannin'; did you mean 'branin'"):
        find_objective("brannin")


@pytest.mark.parametrize(
    ("reference", "lack"), [("math:sqrt", "load"), ("decimal:Decimal", "load"), ("math:pi", "load")]
)
def test_reference_to_something_else_is_rejected(reference: str, lack: str) -> None:
    with pytest.raises(ObjectiveError, match=f"must name a class with load.*{reference}.*lacks {lack}"):
        find_objective(reference)


@pytest.mark.parametrize(
    ("name", "option", "value", "rule"),
    [
        ("branin", "noise_std", -1.0, "must be >= 0"),
        ("branin", "seconds", float("inf"), "must be < inf"),
        ("cadata", "noise_std", float("nan"), "must be < inf"),
        ("mnist_cnn", "epochs", 0, "must be >= 1"),
        ("mnist_cnn", "train_size", 0, "must be >= 50"),
        ("mnist_cnn", "train_size", 120, "must be a multiple of 50"),
        ("mnist_cnn", "momentum", 1.0, "must be < 1"),
        ("mnist_logistic_regression", "validation_fraction", 0.0, "must be > 0"),
        ("nas_cell", "vertices", 8, "must be <= 7"),
        ("nas_cell", "stacks", 4, "must be <= 3"),
        ("nas_cell", "validation_size", 55, "must be a multiple of 10"),
        ("nas_cell", "learning_rate", 0.0, "must be > 0"),
    ],
)
def test_option_out_of_range_is_rejected(name: str, option: str, value: float, rule: str) -> None:
    objective = {"name": name, "options": {option: value}}
    with pytest.raises(ConfigError, match=rf"objective\.options\.{option} {rule}, got"):
        from_mapping({"name": "x", "objective": objective, "budget": {"evaluations": 1}})


def test_table_is_sorted() -> None:
    assert list(OBJECTIVES) == sorted(OBJECTIVES)


def test_objectives_reach_a_worker_without_the_slow_imports() -> None:
    script = (
        "import sys; from bbkb.objectives.names import OBJECTIVES, find_objective\n"
        "for name in OBJECTIVES: find_objective(name)\n"
        "print([m for m in ('sklearn', 'scipy', 'ConfigSpace', 'pydantic', 'ray', 'torch') if m in sys.modules])"
    )
    assert run_python("-c", script).stdout.strip() == "[]"
