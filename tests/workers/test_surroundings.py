"""Tests of `bbkb.workers.surroundings`: the state of a process is restored after an evaluation."""

import gc
import io
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bbkb.workers.messages import FailureKind, Outcome, TrialFailed, TrialSucceeded
from bbkb.workers.surroundings import DAMAGED_AFTER, Streak, restore_surroundings


def read_surroundings() -> dict[str, Any]:
    umask = os.umask(0o022)
    os.umask(umask)
    return {
        "folder": os.getcwd(),
        "umask": umask,
        "environment": dict(os.environ),
        "handlers": [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)],
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "depth": sys.getrecursionlimit(),
        "collects": gc.isenabled(),
    }


def ignore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def change_environment() -> None:
    os.environ["PATH"] = "/nowhere"
    os.environ["ADDED"] = "1"
    del os.environ["HOME"]


def lower_limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def redirect() -> None:
    sys.stdout = io.StringIO()


DAMAGES: dict[str, Callable[[], Any]] = {
    "another folder": lambda: os.chdir("/"),
    "its folder removed": lambda: shutil.rmtree(os.getcwd()),
    "umask": lambda: os.umask(0o777),
    "signals": ignore_signals,
    "environment": change_environment,
    "limit": lower_limit,
    "streams": redirect,
    "recursion": lambda: sys.setrecursionlimit(5000),
    "collector": gc.disable,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_state_of_the_process_is_restored_after_an_evaluation(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", "/home/somebody")
    before = read_surroundings()
    with restore_surroundings():
        DAMAGES[damage]()
    assert read_surroundings() == before
    assert not list(Path.cwd().iterdir())


def outcome(kind: FailureKind | None) -> Outcome:
    if kind is None:
        return TrialSucceeded(trial=0, attempt=1, value=1.0, started=0.0, finished=1.0, worker="w")
    return TrialFailed(trial=0, attempt=1, failure=kind, message="why", started=0.0, finished=1.0, worker="w")


def test_worker_whose_last_evaluations_failed_on_different_arms_is_damaged() -> None:
    streak = Streak()
    damaged = [streak.is_damaged_after(arm, outcome(FailureKind.ERROR)) for arm in range(DAMAGED_AFTER)]
    assert damaged == [False] * (DAMAGED_AFTER - 1) + [True]


@pytest.mark.parametrize("kind", [None, FailureKind.INVALID_VALUE, FailureKind.TIMEOUT])
def test_streak_ignores_repeated_failures_of_one_arm_and_ends_with_a_success(kind: FailureKind | None) -> None:
    streak = Streak()
    assert not any(streak.is_damaged_after(7, outcome(FailureKind.ERROR)) for _ in range(20))
    for arm in range(20):
        assert not streak.is_damaged_after(arm, outcome(FailureKind.ERROR if arm % DAMAGED_AFTER else kind))
