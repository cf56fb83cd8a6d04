"""Tests of workers/gangs/ranks.py and groups.py: evaluations that take two machines, on a cluster
of two nodes."""

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.processes import SOON, run_python

pytestmark = pytest.mark.thorough
HAS_TORCH = find_spec("torch") is not None
with_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch, which adds up over machines here, is missing")
COURSE = Path(__file__).with_name("gang_course.py")
# a node starts slowly on a busy machine
RAY: dict[str, Any] = {**SOON, "RAY_raylet_start_wait_time_s": "120"}

PARTS = ("sums", "command", "failure", "killed_rank", "adopted")
FURTHER_PARTS = (  # minutes on two cores: left to `make test-slow`
    *(["gloo", "torchrun"] if HAS_TORCH else []),
    "stubborn",
    "timed_out",
    "stopped",
    "killed_command",
    "orphaned",
    "lost_node",
)


def run_course(folder: Path, *parts: str) -> dict[str, Any]:
    """The results of `gang_course.py`. It waits after each part until its processes and placement
    groups are gone."""
    with tempfile.TemporaryDirectory(prefix="bb", dir="/tmp", ignore_cleanup_errors=True) as short:
        arguments = ("-W", "ignore::ResourceWarning", str(COURSE), str(folder), *parts)
        done = run_python(*arguments, seconds=560, RAY_TMPDIR=short, **RAY)
    assert done.returncode == 0, done.stdout + done.stderr
    answers: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            answers.update(json.loads(line))
    return answers


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_course(tmp_path_factory.mktemp("gangs"), *PARTS)


@pytest.fixture(scope="module")
def further(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_course(tmp_path_factory.mktemp("gangs"), *FURTHER_PARTS)


def only_failure(part: dict[str, Any]) -> tuple[str, str]:
    """Return the kind and the message of the only outcome, which is a failure."""
    (outcome,) = part["outcomes"]
    assert outcome["kind"] == "trial_failed"
    return outcome["failure"], outcome["message"]


def test_gangs_take_turns_if_one_fits_and_sum_over_both_machines(course: dict[str, Any]) -> None:
    sums = course["sums"]
    assert sums["slots"] == 1
    assert [outcome["value"] for outcome in sums["outcomes"]] == [0.0, 3.0, 6.0]


def test_trials_of_the_same_shape_use_one_group_and_its_processes(course: dict[str, Any]) -> None:
    sums = course["sums"]
    assert sums["groups"] == ["bbkb sums worker 1"]
    assert len({outcome["metrics"]["pid"] for outcome in sums["outcomes"]}) == 1


def test_command_finds_the_other_machine_and_sums_over_both(course: dict[str, Any]) -> None:
    (outcome,) = course["command"]["outcomes"]
    assert (outcome["kind"], outcome["value"]) == ("trial_succeeded", 12.0)


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize("part", ["gloo", "torchrun"])
def test_pytorch_connects_the_machines_of_a_function_and_of_a_command(further: dict[str, Any], part: str) -> None:
    (outcome,) = further[part]["outcomes"]
    assert (outcome["kind"], outcome["value"]) == ("trial_succeeded", 12.0)


def test_failure_of_one_machine_ends_the_others_and_names_it(course: dict[str, Any]) -> None:
    kind, message = only_failure(course["failure"])
    assert kind == "error"
    assert message.startswith("on machine 1 (")
    assert "RuntimeError: the second machine failed" in message
    assert course["failure"]["asked"], "machine 0 was asked to end before it was killed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "kind", "texts"),
    [
        ("stubborn", "error", ["RuntimeError: the second machine failed"]),  # it ignores SIGTERM
        ("timed_out", "timeout", ["no result within timeout_seconds = 2"]),
        ("killed_command", "error", ["on machine 1", "was killed by SIGKILL"]),
        ("lost_node", "node lost", []),
    ],
)
def test_end_of_one_machine_ends_all_and_its_cause_is_kept(
    further: dict[str, Any], part: str, kind: str, texts: list[str]
) -> None:
    failure = only_failure(further[part])
    assert failure[0] == kind
    assert [text for text in texts if text not in failure[1]] == []


@pytest.mark.slow
def test_early_stop_ends_all_machines(further: dict[str, Any]) -> None:
    (outcome,) = further["stopped"]["outcomes"]
    assert (outcome["kind"], outcome["value"]) == ("trial_stopped", 1.0)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_killed_process_of_one_machine_is_a_lost_worker(course: dict[str, Any], rank: str) -> None:
    assert only_failure(course["killed_rank"][rank])[0] == "worker lost"


def test_running_gang_survives_its_campaigns_process(course: dict[str, Any]) -> None:
    part = course["adopted"]
    assert (part["held"], part["alive"]) == ([0], True)
    assert [outcome["value"] for outcome in part["outcomes"]] == [2.0]


@pytest.mark.slow
def test_session_ends_the_group_of_a_gang_that_died_without_a_session(further: dict[str, Any]) -> None:
    part = further["orphaned"]
    assert part["before"] == ["bbkb orphaned worker 1"]
    assert (part["held"], part["after"]) == ([], [])
