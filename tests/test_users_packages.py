"""A user's folder may have modules and packages named like folders of this project; each case runs in its own process,
as for a user."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.processes import REPOSITORY, run_python

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


def bbkb(folder: Path, callable_: str, executor: str, python_path: str) -> subprocess.CompletedProcess[str]:
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
    done = bbkb(folder, callable_, executor, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4  4 succeeded" in done.stdout


@pytest.mark.parametrize(
    ("first", "executor"),
    [
        ("bbkb", "inline"),
        ("workers", "inline"),
        pytest.param("workers", "ray", marks=pytest.mark.thorough),
    ],
)
def test_script_imports_its_own_modules_before_and_after_ours(folder: Path, first: str, executor: str) -> None:
    (folder / "script.py").write_text(SCRIPT.replace("FIRST", first).replace("EXECUTOR", executor))
    done = run_python("script.py", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished 4" in done.stdout
