"""Named runs and resumes on the command line: one line that is safe to repeat, and what a resume refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

CAMPAIGN = """
name: sine
objective: {name: sine}
candidates: {size: 50}
strategy: {name: uniform}
budget: {evaluations: 8}
workers: {executor: inline, count: 2}
"""
ONE_LINE = ("run", "campaign.yaml", "--run", "2026-first", "--or-resume")


def bbkb(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "campaign.yaml").write_text(CAMPAIGN)
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def succeeded(folder: Path) -> int:
    return int(json.loads(bbkb(folder, "status", "runs/2026-first", "--json").stdout)["succeeded"])


def test_one_line_starts_a_run_and_goes_on_with_it(tmp_path: Path) -> None:
    done = bbkb(tmp_path, *ONE_LINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"run {tmp_path / 'runs' / '2026-first'}" in done.stdout
    again = bbkb(tmp_path, *ONE_LINE)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "is over: budget spent" in again.stdout
    more = bbkb(tmp_path, *ONE_LINE, "--set", "budget.evaluations=11")
    assert more.returncode == 0, more.stdout + more.stderr
    assert succeeded(tmp_path) == 11
    assert [run.name for run in (tmp_path / "runs").iterdir()] == ["2026-first"]


def test_a_name_that_is_in_use_is_refused_with_the_flag_that_resumes(tmp_path: Path) -> None:
    bbkb(tmp_path, *ONE_LINE)
    done = bbkb(tmp_path, "run", "campaign.yaml", "--set", "run=2026-first")
    assert done.returncode == 2
    assert "add --or-resume" in done.stderr


def test_or_resume_without_a_name_and_a_bad_name_are_users_mistakes(tmp_path: Path) -> None:
    done = bbkb(tmp_path, "run", "campaign.yaml", "--or-resume")
    assert done.returncode == 2
    assert "add --run NAME" in done.stderr
    done = bbkb(tmp_path, "run", "campaign.yaml", "--run", "../elsewhere")
    assert done.returncode == 2
    assert "run" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_budget_below_what_is_done_is_refused(tmp_path: Path) -> None:
    bbkb(tmp_path, *ONE_LINE)
    done = bbkb(tmp_path, "resume", "runs/2026-first", "--set", "budget.evaluations=5")
    assert done.returncode == 2
    assert "must be at least 8" in done.stderr
    assert succeeded(tmp_path) == 8


def test_generated_files_are_named_by_absolute_paths(tmp_path: Path) -> None:
    done = bbkb(tmp_path, *ONE_LINE)
    assert str(tmp_path / "runs" / "2026-first" / "report.html") in done.stdout
    assert (
        f"report {tmp_path / 'page.html'}"
        in bbkb(tmp_path, "report", "runs/2026-first", "--output", "page.html").stdout
    )


def test_a_failed_run_whose_budget_is_spent_is_failed_when_it_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def f(x):\n    raise OSError('no disk')\n")
    (tmp_path / "failing.yaml").write_text(
        "name: failing\nobjective: {callable: 'failing.py:f'}\nspace: {x: {low: 0, high: 1}}\ncandidates: {size: 20}\n"
        "budget: {evaluations: 4}\nworkers: {executor: inline, count: 1, retries: 0}\n"
    )
    assert bbkb(tmp_path, "run", "failing.yaml", "--run", "one").returncode == 1
    done = bbkb(tmp_path, "resume", "runs/one")
    assert done.returncode == 1
    assert "is over: none of 4 evaluations succeeded, and the budget is spent" in done.stdout


def test_an_address_without_the_executor_ray_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inline.yaml").write_text(
        "name: inline\nobjective: {name: branin}\ncandidates: {size: 20}\nbudget: {evaluations: 4}\n"
        "workers: {executor: inline}\n"
    )
    done = bbkb(tmp_path, "run", "inline.yaml", "--address", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--address is for workers.executor ray, got workers.executor inline" in done.stderr
    assert not (tmp_path / "runs").exists()
