"""`bbkb.objectives.reference`: references to Python objects, and the table of named objectives."""

import math
import sys
from pathlib import Path

import pytest

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.problems.synthetic import Branin
from bbkb.objectives.reference import OBJECTIVES, find_objective, import_reference
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import from_mapping
from tests.processes import run_python


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the additions to `sys.path`."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_reference_names_an_object_of_an_installed_module_or_on_the_search_path(tmp_path: Path) -> None:
    (tmp_path / "module_found_on_search_path.py").write_text("answer = 42")
    assert import_reference("math:sqrt") is math.sqrt
    assert import_reference("module_found_on_search_path:answer", [str(tmp_path)]) == 42


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("math.sqrt", "must be written package.module:attribute or path/to/file.py:attribute, got 'math.sqrt'"),
        ("train.py", "got 'train.py'; write 'train.py:name' with the name of its function"),
        ("math:", "must be written"),
        ("math:sqrt()", "must be written"),
        (":sqrt", "must be written"),
        ("no_such_package.module:f", "no module named 'no_such_package' is installed"),
        ("math:sqtr", "has no 'sqtr'; did you mean 'sqrt'"),
        ("functools:make_keys", "has no 'make_keys'$"),  # the similar name is private
    ],
)
def test_wrong_reference_is_rejected(reference: str, message: str) -> None:
    with pytest.raises(ObjectiveError, match=message):
        import_reference(reference)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tarin_of_hour.py:f", r"there is no file tarin_of_hour.py in {folder}; did you mean 'train_of_hour.py'"),
        ("trian_of_hour:f", r"no module named 'trian_of_hour' .*; did you mean 'train_of_hour'"),
        ("train_of_hour.f", r"got 'train_of_hour.f'; did you mean 'train_of_hour:f'"),
    ],
)
def test_misspelled_module_or_file_is_rejected_with_the_existing_one(
    tmp_path: Path, reference: str, message: str
) -> None:
    (tmp_path / "train_of_hour.py").write_text("def f(x):\n    return x\n")
    with pytest.raises(ObjectiveError, match=message.format(folder=tmp_path)):
        import_reference(reference, [str(tmp_path), str(tmp_path / ".")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import nobody_wrote_it",
            r"failed at .*/module_that_fails.py:1 with ModuleNotFoundError: .* 'nobody_wrote_it'",
        ),
        ("from . import data", r"with ImportError: .*; name a module with relative imports by its package"),
        ("import json\n1 / 0", r"failed at .*/module_that_fails.py:2 with ZeroDivisionError"),
        ("def (:", "failed with SyntaxError"),
        ("import sys; sys.exit(3)", r"ended the program with sys.exit\(3\): what it does as a script"),
    ],
)
def test_module_that_fails_on_import_differs_from_a_missing_one(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "module_that_fails.py").write_text(text)
    with pytest.raises(ObjectiveError, match=message):
        import_reference("module_that_fails:f", [str(tmp_path)])


@pytest.mark.parametrize("raising", ["1 / 0", "import json\njson.loads('{')"], ids=["here", "in the library"])
def test_line_that_failed_is_the_last_one_of_the_users_code(tmp_path: Path, raising: str) -> None:
    (tmp_path / "module_with_import.py").write_text("import module_imported_by_it")
    (tmp_path / "module_imported_by_it.py").write_text(f"import math\n\n{raising}")
    line = 3 + raising.count("\n")
    for reference in ("module_with_import:f", "module_with_import.py:f"):
        with pytest.raises(ObjectiveError, match=rf"failed at .*/module_imported_by_it\.py:{line} with "):
            import_reference(reference, [str(tmp_path)])


def test_line_of_an_installed_module_is_named_if_no_other_is(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "module_installed_and_failing.py").write_text("1 / 0")
    with pytest.raises(ObjectiveError, match=r"failed at .*/module_installed_and_failing\.py:1 with ZeroDivision"):
        import_reference("module_installed_and_failing:f", [str(folder)])


def test_file_that_was_interrupted_while_it_was_imported_is_imported_again(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        import_reference("slow.py:evaluate", [str(tmp_path)])
    file.write_text("def evaluate():\n    return 1.0\n")
    evaluate = import_reference("slow.py:evaluate", [str(tmp_path)])
    assert callable(evaluate)
    assert evaluate() == 1.0


def test_objective_is_found_by_its_listed_name_or_a_reference() -> None:
    assert find_objective("branin") is find_objective("bbkb.objectives.problems.synthetic:Branin") is Branin
    with pytest.raises(ObjectiveError, match=r"one of abalone, branin, .*got 'brannin'; did you mean 'branin'"):
        find_objective("brannin")
    assert list(OBJECTIVES) == sorted(OBJECTIVES)


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


def test_objectives_reach_a_worker_without_the_slow_imports() -> None:
    script = (
        "import sys; from bbkb.objectives.reference import OBJECTIVES, find_objective\n"
        "for name in OBJECTIVES: find_objective(name)\n"
        "print([m for m in ('sklearn', 'scipy', 'ConfigSpace', 'pydantic', 'ray', 'torch') if m in sys.modules])"
    )
    assert run_python("-c", script).stdout.strip() == "[]"
