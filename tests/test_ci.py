"""`.ci/run`: the repeated tests and its last lines. Its programs, `make` too, are stand-ins."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"
MAKE = """#!/usr/bin/env bash
case $1 in
  check) [ -z "$FAILED" ] || { mkdir -p .pytest_cache/v/cache; echo "$FAILED" > .pytest_cache/v/cache/lastfailed; }
         echo "7 passed, 9 deselected in 8.00s"; exit "$CHECK" ;;
  recheck) exit "$RECHECK" ;;
esac
"""


def run_ci(folder: Path, failed: list[str], check: int, recheck: int = 0) -> tuple[int, list[str]]:
    """Run the script with a `make` whose tests fail as specified; return its exit status and the
    lines of its output."""
    programs = folder / "programs"
    for place in (folder / ".ci", folder / ".venv" / "bin", programs):
        place.mkdir(parents=True)
    (folder / ".ci" / "run").write_text(SCRIPT.read_text())
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    for name in ("make", "postgres", "chromium", "promtool"):
        (programs / name).write_text(MAKE if name == "make" else "#!/bin/sh\n")
        (programs / name).chmod(0o755)
    names = "{" + ", ".join(f'"{name}": true' for name in failed) + "}" if failed else ""
    variables = {"PATH": f"{programs}:/usr/bin:/bin", "FAILED": names, "CHECK": str(check), "RECHECK": str(recheck)}
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"], env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_ci_ends_with_the_number_of_passed_tests(tmp_path: Path) -> None:
    code, lines = run_ci(tmp_path, [], check=0)
    assert code == 0
    assert lines[-2:] == ["Tests that failed beside other tests: 0", "7 passed, 0 failed"]


def test_ci_names_two_tests_that_failed_and_passed_alone(tmp_path: Path) -> None:
    code, lines = run_ci(tmp_path, ["tests/a.py::test_a[x y]", "tests/b.py::test_b"], check=1)
    assert code == 0
    assert lines[-5:] == [
        "Tests that failed beside other tests: 2",
        "  tests/a.py::test_a[x y]",
        "  tests/b.py::test_b",
        "They passed alone.",
        "9 passed, 0 failed",
    ]


def test_ci_fails_when_three_tests_failed_although_they_would_pass_alone(tmp_path: Path) -> None:
    code, lines = run_ci(tmp_path, ["tests/a.py::test_a", "tests/b.py::test_b", "tests/b.py::test_c"], check=1)
    assert code == 1
    assert lines[-1] == "7 passed, 3 failed"


@pytest.mark.parametrize(("failed", "recheck"), [(["tests/a.py::test_a"], 1), ([], 0)], ids=["fails alone", "no test"])
def test_ci_fails_when_a_test_fails_twice_or_another_check_failed(
    tmp_path: Path, failed: list[str], recheck: int
) -> None:
    code, _ = run_ci(tmp_path, failed, check=1, recheck=recheck)
    assert code != 0
