"""A user's folder may have packages with this project's names; each case runs in its own process,
as for a user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.running.coordinator.cluster import _runtime_env
from tests.processes import REPOSITORY, run_python
from tests.ray_limits import NEEDS_PATH_WITHOUT_SPACES

CAMPAIGN = """
name: hidden
objective: {callable: 'CALLABLE', direction: maximize}
space: {x: {low: 0.0, high: 1.0}}
candidates: {size: 30}
budget: {evaluations: 4}
workers: {executor: EXECUTOR, count: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with packages of the same names, each of which raises an error if it is imported by
    mistake."""
    for package in ("objectives", "workers", "orchestrator"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('the package of the user was imported')\n")
    (tmp_path / "objectives" / "mine.py").write_text(
        "from helper import square\n\ndef loss(x):\n    return square(x)\n"
    )
    (tmp_path / "objectives" / "helper.py").write_text("def square(x):\n    return x**2\n")
    return tmp_path


def bbkb(folder: Path, callable_: str, executor: str, python_path: str) -> subprocess.CompletedProcess[str]:
    text = CAMPAIGN.replace("CALLABLE", callable_).replace("EXECUTOR", executor)
    (folder / "campaign.yaml").write_text(text)
    return run_python("-m", "bbkb", "run", "campaign.yaml", cwd=folder, PYTHONPATH=python_path)


FOLDER_FIRST = f".{os.pathsep}{REPOSITORY}"


@pytest.mark.parametrize(
    ("executor", "python_path"),
    [
        pytest.param("inline", str(REPOSITORY), marks=pytest.mark.thorough),
        ("inline", FOLDER_FIRST),
        pytest.param("ray", FOLDER_FIRST, marks=[pytest.mark.thorough, NEEDS_PATH_WITHOUT_SPACES]),
    ],
)
def test_users_file_is_evaluated_beside_packages_with_our_names(folder: Path, executor: str, python_path: str) -> None:
    done = bbkb(folder, "objectives/mine.py:loss", executor, python_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4: 4 succeeded, 0 failed" in done.stdout


def test_ray_beside_such_packages_is_rejected_if_it_would_start_no_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "executable", "/home/a user/.venv/bin/python")
    with pytest.raises(UserError, match="the path of Python has a space, got /home/a user/"):
        _runtime_env()
    (folder / "nested").mkdir()
    monkeypatch.chdir(folder / "nested")
    assert _runtime_env() is None


@pytest.mark.thorough
def test_module_hidden_by_ours_is_rejected_with_the_spelling_that_works(folder: Path) -> None:
    done = bbkb(folder, "objectives.mine:loss", "inline", str(REPOSITORY))
    assert done.returncode == 2
    assert f"'objectives' in {folder} is hidden by another module of that name" in done.stderr
    assert f"name the file instead: {folder}/objectives/mine.py:loss" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_module_with_one_of_our_names_is_not_silently_ours(folder: Path) -> None:
    (folder / "objectives" / "tabular.py").write_text("def Abalone(x):\n    return x\n")
    done = bbkb(folder, "objectives.tabular:Abalone", "inline", str(REPOSITORY))
    assert done.returncode == 2
    assert f"name the file instead: {folder}/objectives/tabular.py:Abalone" in done.stderr


def test_program_that_imported_its_own_package_first_gets_a_clear_error(folder: Path) -> None:
    (folder / "workers" / "__init__.py").write_text("")
    done = run_python("-c", "import workers, bbkb", cwd=folder)
    assert "ImportError: bbkb has a package 'workers', and another one was imported before" in done.stderr
    assert "import bbkb first, or rename the other package" in done.stderr
