"""The public module: what it exports, and the two ways to start the command."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bbkb
from objectives import objective
from objectives.names import KnowsParameters, ObjectiveOptions, ReadsFiles, find_objective
from orchestrator.api.result import TrialResult
from orchestrator.api.submitted import Submitted
from orchestrator.ask_tell.candidates import Optimizer
from orchestrator.ask_tell.space import SpaceOptimizer
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.running import launch
from tests.argument_sections import is_protocol, missing_arguments

REPOSITORY = Path(__file__).parents[1]


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


def test_the_module_exports_what_it_names() -> None:
    assert all(hasattr(bbkb, name) for name in bbkb.__all__)
    assert bbkb.Optimizer is Optimizer


@pytest.mark.parametrize("module", ["bbkb", "orchestrator"])
def test_a_module_starts_the_command_and_prints_the_version(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, sys.executable, "-m", module, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"bbkb {bbkb.__version__}\n", "")


def test_a_script_that_imports_the_module_loads_neither_ray_nor_the_command_line(tmp_path: Path) -> None:
    code = "import sys, bbkb; print([name for name in ('ray', 'typer', 'sqlalchemy') if name in sys.modules])"
    assert run(tmp_path, sys.executable, "-c", code).stdout == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_for_a_shell_can_be_printed_from_any_shell(tmp_path: Path, shell: str) -> None:
    done = run(tmp_path, sys.executable, "-m", "bbkb", _BBKB_COMPLETE=f"source_{shell}")
    assert done.returncode == 0, done.stderr
    assert "complet" in done.stdout


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """What `bbkb` exports, the strategies, the protocols of objectives, what starts a campaign; of classes the public
    methods too."""
    exported = [getattr(bbkb, name) for name in bbkb.__all__ if name != "EvaluationStopped"]  # users only catch it
    faces: list[Callable[..., Any]] = [
        *public_names(objective),
        ObjectiveOptions,
        ReadsFiles,
        KnowsParameters,
        find_objective,
    ]
    faces += [launch.launch, launch.watch, launch.Remote, Submitted, TrialResult, SpaceOptimizer]
    for one in (*(one for one in exported if callable(one)), *faces, *STRATEGIES.values()):
        yield one.__qualname__, one
    for cls in (*exported, *faces):
        for name, method in vars(cls).items() if isinstance(cls, type) else ():
            plain = getattr(method, "__func__", method)
            is_public = not name.startswith("_") or (name == "__call__" and is_protocol(cls))
            if is_public and inspect.isfunction(plain):
                yield f"{cls.__qualname__}.{name}", plain


def public_names(module: ModuleType) -> list[Callable[..., Any]]:
    """The classes and functions of a module that users may use, but for those that they only catch."""
    own = [one for name, one in vars(module).items() if not name.startswith("_")]
    own = [one for one in own if inspect.isfunction(one) or isinstance(one, type)]
    return [one for one in own if one.__module__ == module.__name__ and not is_error(one)]


def is_error(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, BaseException)


@pytest.mark.parametrize(("name", "function"), list(public_callables()))
def test_an_argument_section_names_every_parameter(name: str, function: Callable[..., Any]) -> None:
    assert missing_arguments(function) == []
