"""The public module: what it exports, and the two ways to start the command."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bbkb
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.optimizer import Optimizer
from orchestrator.space_optimizer import SpaceOptimizer

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
    """What `bbkb` exports, the strategies, and the public methods that the exported classes define."""
    exported = [getattr(bbkb, name) for name in bbkb.__all__ if name != "EvaluationStopped"]  # users only catch it
    classes = [one for one in exported if isinstance(one, type)]
    for one in (*(one for one in exported if callable(one)), SpaceOptimizer, *STRATEGIES.values()):
        yield one.__qualname__, one
    for cls in (*classes, SpaceOptimizer):
        for name, method in vars(cls).items():
            plain = getattr(method, "__func__", method)
            if not name.startswith("_") and inspect.isfunction(plain):
                yield f"{cls.__qualname__}.{name}", plain


@pytest.mark.parametrize(("name", "function"), list(public_callables()))
def test_an_argument_section_names_every_parameter(name: str, function: Callable[..., Any]) -> None:
    constructor = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    parameters = [one for one in inspect.signature(constructor).parameters if one not in ("self", "cls")]
    documented = (inspect.getdoc(function) or "").partition("Args:\n")[2]
    assert [one for one in parameters if f"{one}:" not in documented] == []
