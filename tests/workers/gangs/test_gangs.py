"""Evaluations that take two machines, alone and with a trainer of Ray Train, on a cluster of two nodes."""

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import (
    GetTimeoutError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.objectives.returned import WithMetrics
from bbkb.workers.executor import ExecutorError
from bbkb.workers.messages import FailureKind
from bbkb.workers.on_ray.crews import refuse_trainers
from bbkb.workers.on_ray.gangs import TrainerCrew, kind_of_trainers_error
from tests.processes import SOON, run_python
from tests.workers.on_ray.test_executor import actor_died

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


@pytest.mark.thorough
def test_gangs_take_turns_if_one_fits_and_sum_over_both_machines(course: dict[str, Any]) -> None:
    sums = course["sums"]
    assert sums["slots"] == 1
    assert [outcome["value"] for outcome in sums["outcomes"]] == [0.0, 3.0, 6.0]


@pytest.mark.thorough
def test_trials_of_the_same_shape_use_one_group_and_its_processes(course: dict[str, Any]) -> None:
    sums = course["sums"]
    assert sums["groups"] == ["bbkb sums worker 1"]
    assert len({outcome["metrics"]["pid"] for outcome in sums["outcomes"]}) == 1


@pytest.mark.thorough
def test_command_finds_the_other_machine_and_sums_over_both(course: dict[str, Any]) -> None:
    (outcome,) = course["command"]["outcomes"]
    assert (outcome["kind"], outcome["value"]) == ("trial_succeeded", 12.0)


@pytest.mark.thorough
@pytest.mark.slow
@with_torch
@pytest.mark.parametrize("part", ["gloo", "torchrun"])
def test_pytorch_connects_the_machines_of_a_function_and_of_a_command(further: dict[str, Any], part: str) -> None:
    (outcome,) = further[part]["outcomes"]
    assert (outcome["kind"], outcome["value"]) == ("trial_succeeded", 12.0)


@pytest.mark.thorough
def test_failure_of_one_machine_ends_the_others_and_names_it(course: dict[str, Any]) -> None:
    kind, message = only_failure(course["failure"])
    assert kind == "error"
    assert message.startswith("on machine 1 (")
    assert "RuntimeError: the second machine failed" in message
    assert course["failure"]["asked"], "machine 0 was asked to end before it was killed"


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.slow
def test_early_stop_ends_all_machines(further: dict[str, Any]) -> None:
    (outcome,) = further["stopped"]["outcomes"]
    assert (outcome["kind"], outcome["value"]) == ("trial_stopped", 1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("rank", ["0", "1"])
def test_killed_process_of_one_machine_is_a_lost_worker(course: dict[str, Any], rank: str) -> None:
    assert only_failure(course["killed_rank"][rank])[0] == "worker lost"


@pytest.mark.thorough
def test_running_gang_survives_its_campaigns_process(course: dict[str, Any]) -> None:
    part = course["adopted"]
    assert (part["held"], part["alive"]) == ([0], True)
    assert [outcome["value"] for outcome in part["outcomes"]] == [2.0]


@pytest.mark.thorough
@pytest.mark.slow
def test_session_ends_the_group_of_a_gang_that_died_without_a_session(further: dict[str, Any]) -> None:
    part = further["orphaned"]
    assert part["before"] == ["bbkb orphaned worker 1"]
    assert (part["held"], part["after"]) == ([], [])


def raised_from(cause: BaseException) -> BaseException:
    error = RuntimeError("the training failed")
    error.__cause__ = cause
    return error


def holding(**attributes: Any) -> RuntimeError:
    """An exception of a function, with attributes that Ray Train's have too."""
    error = RuntimeError("of the function")
    vars(error).update(attributes)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WorkerGroupError("x", {0: ValueError("x")}), FailureKind.ERROR),
        (WorkerGroupError("x", {0: ValueError("x"), 1: OutOfMemoryError("oom")}), FailureKind.OUT_OF_MEMORY),
        (WorkerGroupError("x", {0: actor_died("worker exit"), 1: NodeDiedError("gone")}), FailureKind.NODE_LOST),
        (ControllerError(actor_died("worker exit")), FailureKind.WORKER_LOST),
        (raised_from(WorkerGroupError("x", {0: WorkerCrashedError()})), FailureKind.WORKER_LOST),
        (OutOfMemoryError("oom"), FailureKind.OUT_OF_MEMORY),
        (WorkerGroupError("x", {0: RayTaskError("f", "trace", ValueError("x"))}), FailureKind.ERROR),
        (GetTimeoutError("the function's own wait"), FailureKind.ERROR),
    ],
)
def test_trainers_error_is_a_loss_if_ray_says_so_in_it(error: BaseException, kind: str) -> None:
    assert kind_of_trainers_error(error) == kind


def test_users_error_with_such_attributes_or_that_contains_itself_is_an_error() -> None:
    for failures in (None, [1], {0: "text"}, 3):
        error = holding(worker_failures=failures, controller_failure=failures)
        assert kind_of_trainers_error(error) == FailureKind.ERROR
    error = holding()
    vars(error)["controller_failure"] = raised_from(error)
    assert kind_of_trainers_error(error) == FailureKind.ERROR


CHECK = "bbkb.workers.on_ray.trainer_check"
VARIABLE = "RAY_TRAIN_CALLBACKS"


@pytest.mark.parametrize("others", ["", "own.Callback"])
def test_functions_are_checked_and_commands_get_no_variable_of_the_check(
    monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    monkeypatch.setenv(VARIABLE, others)
    for _ in range(2):
        refuse_trainers(PythonCallable("train:train"))
        assert os.environ[VARIABLE].removeprefix(",").split(",") == [*filter(None, [others]), f"{CHECK}.TrainerCheck"]
    refuse_trainers(WithMetrics(ShellCommand("true"), "value", ()))
    assert os.environ.get(VARIABLE, "") == others


@pytest.mark.parametrize("part", ["callbacks.placement_group_callback", "execution.callback", "execution.worker_group"])
def test_ray_without_the_inner_parts_is_rejected_with_the_version_that_has_them(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    pytest.importorskip("ray.train.v2")
    monkeypatch.delitem(sys.modules, CHECK, raising=False)
    monkeypatch.setitem(sys.modules, f"ray.train.v2._internal.{part}", None)
    with pytest.raises(
        ExecutorError, match=r"^workers\.ray_train needs the Ray Train of Ray 2\.60, got .*: pip install"
    ):
        TrainerCrew()


TRAINER_PARTS = (
    "trained_unasked",
    "trained_on_another_ray",
    "trained_too_long",
    "trained",
    *(["trained_by_torch"] if HAS_TORCH else []),
    "trained_by_more",
    "trained_until_killed",
    "trained_on_lost_node",
)


@pytest.fixture(scope="module")
def trainer_course(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_course(tmp_path_factory.mktemp("t"), *TRAINER_PARTS)


@pytest.mark.thorough
@pytest.mark.slow
def test_trainers_of_ray_train_take_turns_if_one_fits(trainer_course: dict[str, Any]) -> None:
    part = trainer_course["trained"]
    assert part["slots"] == 1
    assert [outcome["value"] for outcome in part["outcomes"]] == [3.0, 6.0]


@pytest.mark.thorough
@pytest.mark.slow
@with_torch
def test_trainer_of_pytorch_sums_over_its_workers(trainer_course: dict[str, Any]) -> None:
    assert [outcome["value"] for outcome in trainer_course["trained_by_torch"]["outcomes"]] == [3.0]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("trained_on_another_ray", "workers.ray_train needs the Ray Train of Ray 2.60, got 2."),
        ("trained_by_more", "workers.machines = 2 with {'CPU': 3.0} each, got 3 workers with {'CPU': 3}"),
        ("trained_unasked", "only from a function and with workers.ray_train"),
    ],
    ids=["another version of Ray", "more workers than there is room for", "without ray_train"],
)
def test_trainer_that_cannot_run_fails_with_the_requirement(
    trainer_course: dict[str, Any], part: str, text: str
) -> None:
    kind, message = only_failure(trainer_course[part])
    assert kind == "error"
    assert text in message


@pytest.mark.thorough
@pytest.mark.slow
def test_time_out_ends_a_trainer(trainer_course: dict[str, Any]) -> None:
    assert only_failure(trainer_course["trained_too_long"])[0] == "timeout"


@pytest.mark.thorough
@pytest.mark.slow
def test_killed_worker_of_a_trainer_is_a_lost_worker_and_not_an_error_of_the_function(
    trainer_course: dict[str, Any],
) -> None:
    assert only_failure(trainer_course["trained_until_killed"])[0] == "worker lost"


@pytest.mark.thorough
@pytest.mark.slow
def test_lost_node_of_a_trainers_worker_is_the_nodes_fault(trainer_course: dict[str, Any]) -> None:
    assert only_failure(trainer_course["trained_on_lost_node"])[0] == "node lost"
