"""The public module: its exports, the two ways to start the command, beside a user's modules named like ours."""

import builtins
import inspect
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, assert_type

import pytest

import bbkb
from bbkb.objectives import objective
from bbkb.objectives.reference import KnowsParameters, ObjectiveOptions, ReadsFiles, find_objective
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Pick
from bbkb.orchestrator.running import launch
from tests.argument_sections import is_protocol, missing_arguments
from tests.processes import REPOSITORY, run_python

MODULES = ("adapters", "integrations", "settings", "strategy", "types")


def test_module_exports_and_completes_its_names_only() -> None:
    assert all(hasattr(bbkb, name) for name in bbkb.__all__)
    assert dir(bbkb) == sorted(bbkb.__all__)


def test_error_named_by_a_docstring_is_exported_and_is_a_bbkb_error() -> None:
    errors = [name for name in bbkb.__all__ if name.endswith("Error")]
    assert all(issubclass(getattr(bbkb, name), bbkb.BbkbError) for name in errors)
    documented = "\n".join(inspect.getdoc(function) or "" for _, function in public_callables())
    named = set(re.findall(r"\b[A-Z][A-Za-z]+Error\b", documented)) - set(dir(builtins))
    assert named <= set(bbkb.__all__)
    assert {"RunError", "ConfigError", "ObjectiveError", "StoreError"} <= named


def test_type_checker_knows_the_members_of_each_optimizer(tmp_path: Path) -> None:
    """mypy checks `assert_type` with the rest of the tests; when they run, it returns its
    argument."""
    search = assert_type(bbkb.Optimizer({"x": bbkb.Range(0.0, 1.0)}, "minimize"), bbkb.Optimizer)
    search.save(tmp_path / "space.json")
    assert_type(bbkb.Optimizer.load(tmp_path / "space.json"), bbkb.Optimizer)
    assert_type(search.metrics, tuple[str, ...])
    rows = assert_type(bbkb.CandidateOptimizer([[0.0], [1.0]]), bbkb.CandidateOptimizer)
    rows.save(tmp_path / "array.json")
    assert_type(bbkb.CandidateOptimizer.load(tmp_path / "array.json"), bbkb.CandidateOptimizer)
    rows.tell([0], [0.5])
    assert_type(rows.best, bbkb.TrialResult)
    assert_type(bbkb.strategy.Pick(0), Pick)


def test_modules_of_bbkb_are_imported_in_both_forms_and_without_other_libraries(tmp_path: Path) -> None:
    others = ("ray", "typer", "sqlalchemy", "keras", "lightgbm", "lightning", "torch", "transformers", "xgboost")
    code = (
        f"import sys, bbkb; print([name for name in {others} if name in sys.modules]); "
        "from bbkb import integrations; from bbkb.integrations import trial; "
        f"print([name for name in {others[3:]} if name in sys.modules]); "
        "import bbkb.strategy; from bbkb.strategy import Pick; from bbkb import strategy; print(strategy.Pick is Pick)"
    )
    assert run_python("-c", code, cwd=tmp_path).stdout == "[]\n[]\nTrue\n"
    assert set(dir(bbkb.adapters)) == {"BBKBSampler", "BBKBSearch"}
    assert all(hasattr(bbkb.strategy, name) for name in bbkb.strategy.__all__)


def test_module_starts_the_command_and_prints_the_version(tmp_path: Path) -> None:
    done = run_python("-m", "bbkb", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bbkb {bbkb.__version__}\n", "")


@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("zsh", "fish"))]
)
def test_completion_for_a_shell_can_be_printed_from_any_shell(tmp_path: Path, shell: str) -> None:
    done = run_python("-m", "bbkb", cwd=tmp_path, _BBKB_COMPLETE=f"source_{shell}")
    assert done.returncode == 0, done.stderr
    assert "complet" in done.stdout


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The exports of `bbkb`, the strategies, the protocols of objectives, functions that start a
    campaign; of classes the public methods too."""
    exported = [
        getattr(bbkb, name) for name in bbkb.__all__ if not is_error(getattr(bbkb, name)) and name not in MODULES
    ]
    faces: list[Callable[..., Any]] = [*public_classes(objective), find_objective, launch.launch, launch.watch]
    faces += [ObjectiveOptions, ReadsFiles, KnowsParameters]
    for exported_object in (
        *(exported_object for exported_object in exported if callable(exported_object)),
        *faces,
        *STRATEGIES.values(),
        bbkb.adapters.BBKBSampler,
        bbkb.adapters.BBKBSearch,
    ):
        yield exported_object.__qualname__, exported_object
    for cls in (*exported, *faces):
        for name, method in vars(cls).items() if isinstance(cls, type) else ():
            plain = getattr(method, "__func__", method)
            is_public = not name.startswith("_") or (name == "__call__" and is_protocol(cls))
            if is_public and inspect.isfunction(plain):
                yield f"{cls.__qualname__}.{name}", plain


def public_classes(module: ModuleType) -> list[Callable[..., Any]]:
    """The classes of a module that users may use, but for those that they only catch."""
    named = [item for name, item in vars(module).items() if not name.startswith("_") and isinstance(item, type)]
    return [item for item in named if item.__module__ == module.__name__ and not is_error(item)]


def is_error(item: object) -> bool:
    return isinstance(item, type) and issubclass(item, BaseException)


@pytest.mark.parametrize(("name", "function"), list(public_callables()))
def test_argument_section_names_every_parameter(name: str, function: Callable[..., Any]) -> None:
    assert missing_arguments(function) == []


# a script with an object that Python frees when it ends
FREED = """
import os
import bbkb

class Freed:
    def __del__(self, write=os.write):
        write(1, b"freed")

freed = Freed()
"""


def test_command_ends_with_its_code_after_exit_handlers_and_before_modules_are_freed(tmp_path: Path) -> None:
    mine = "import atexit\n\natexit.register(print, 'called at the exit')\n\ndef evaluate(x):\n    return x\n"
    (tmp_path / "mine.py").write_text(mine)
    campaign = "name: c\nobjective: {callable: mine.py:evaluate, direction: maximize}\nspace: {x: {low: 0, high: 1}}\n"
    for budget, code in (("5", 0), ("-5", 2)):
        (tmp_path / "campaign.yaml").write_text(f"{campaign}budget: {{evaluations: {budget}}}\n")
        done = run_python("-c", f"{FREED}bbkb._run_process()", "validate", "campaign.yaml", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert done.stdout.endswith("called at the exit\n") == (code == 0)
        assert "freed" not in done.stdout
    assert run_python("-c", FREED).stdout == "freed"


def test_main_leaves_the_end_of_the_process_to_the_script_that_calls_it() -> None:
    script = "import bbkb\n\ntry:\n    bbkb.main()\nexcept SystemExit:\n    raise SystemExit(3)"
    assert run_python("-c", script, "--version").returncode == 3


CAMPAIGN = """
name: own
objective: {callable: 'CALLABLE', direction: maximize}
space: {x: {low: 0.0, high: 1.0}}
candidates: {size: 30}
budget: {evaluations: 4}
workers: {executor: EXECUTOR, count: 2}
"""
SCRIPT = """
import FIRST
from objectives import loss
from workers.helper import square

import bbkb

if __name__ == "__main__":
    result = bbkb.tune(loss, {"x": bbkb.Range(0.0, 1.0)}, evaluations=4, executor="EXECUTOR", direction="minimize",
                       progress=False, settings={"workers": {"count": 2}})
    assert result.best.value == square(result.best.parameters["x"])
    print("finished", len(result.trials))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a module `objectives` and packages `workers` and `orchestrator`."""
    (tmp_path / "objectives.py").write_text("from workers.helper import square\n\ndef loss(x):\n    return square(x)\n")
    for package in ("workers", "orchestrator"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "workers" / "helper.py").write_text("def square(x):\n    return x**2\n")
    return tmp_path


def run_campaign(folder: Path, callable_: str, executor: str, python_path: str) -> subprocess.CompletedProcess[str]:
    text = CAMPAIGN.replace("CALLABLE", callable_).replace("EXECUTOR", executor)
    (folder / "campaign.yaml").write_text(text)
    return run_python("-m", "bbkb", "run", "campaign.yaml", cwd=folder, PYTHONPATH=python_path)


@pytest.mark.parametrize(
    ("callable_", "executor", "path"),
    [
        ("objectives:loss", "inline", str(REPOSITORY)),
        pytest.param("objectives.py:loss", "inline", f".{os.pathsep}{REPOSITORY}", marks=pytest.mark.thorough),
        pytest.param("workers.helper:square", "ray", str(REPOSITORY), marks=pytest.mark.thorough),
    ],
)
def test_campaign_evaluates_a_users_module_named_like_a_folder_of_ours(
    folder: Path, callable_: str, executor: str, path: str
) -> None:
    done = run_campaign(folder, callable_, executor, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4  4 succeeded" in done.stdout


@pytest.mark.parametrize(
    ("first", "executor"),
    [
        ("bbkb", "inline"),
        pytest.param("workers", "inline", marks=pytest.mark.thorough),
        pytest.param("workers", "ray", marks=pytest.mark.thorough),
    ],
)
def test_script_imports_its_own_modules_before_and_after_ours(folder: Path, first: str, executor: str) -> None:
    (folder / "script.py").write_text(SCRIPT.replace("FIRST", first).replace("EXECUTOR", executor))
    done = run_python("script.py", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished 4" in done.stdout
