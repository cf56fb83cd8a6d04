"""Runs that are resumed from Python: after a kill, after an interrupt, with a larger budget; and
rejected resumes."""

import importlib
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from bbkb import Result, TrialResult, load, tune
from bbkb.objectives.errors import ObjectiveError
from bbkb.objectives.parameters import Range
from bbkb.orchestrator.api.campaign import Campaign, Space
from bbkb.orchestrator.errors import HeldError, RunError, UserError
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.lease import take
from bbkb.orchestrator.store.runs import open_run
from bbkb.orchestrator.yaml_file import read
from tests.orchestrator.runs import history_of

SPACE: Space = {"x": Range(0.0, 1.0)}


@pytest.fixture
def inline(tmp_path: Path) -> dict[str, Any]:
    """Settings of a campaign in this process, whose run has a name."""
    return {
        "workers": {"executor": "inline"},
        "runs": str(tmp_path / "runs"),
        "strategy": {"name": "uniform"},
        "candidates": {"size": 50},
        "run": "first",
    }


def objective(x: float) -> float:
    return -x


def tune_small(settings: dict[str, Any], evaluations: int = 5, **arguments: Any) -> Result:
    arguments = {"objective": objective, "space": SPACE, "direction": "maximize", **arguments}
    return tune(evaluations=evaluations, workers=1, progress=False, settings=settings, **arguments)


SCRIPT = """
    import os, signal
    from pathlib import Path
    from bbkb import Range, tune

    def train(x):
        with open("calls", "a") as calls:
            print(x, file=calls)
        if Path("calls").read_text().count("\\n") == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return {1, 2, 3}.__len__() - x

    if __name__ == "__main__":
        result = tune(train, {"x": Range(0.0, 1.0)}, direction="maximize", evaluations=6, progress=False, resume=True,
                      settings={"run": "first", "workers": {"executor": "inline"}, "strategy": {"name": "uniform"}})
"""


def test_killed_script_resumes_when_run_again_and_evaluates_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    killed = subprocess.run([sys.executable, script], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    finished = [row for row in load(tmp_path / "runs" / "first").rows() if row["status"] == "succeeded"]
    assert len(finished) == 3
    monkeypatch.chdir(tmp_path)
    result = runpy.run_path(str(script), run_name="__main__")["result"]
    assert result.outcome == "finished"
    assert result.rows()[:3] == finished
    calls = (tmp_path / "calls").read_text().split()
    assert len(calls) == 7  # the fourth trial has a second attempt
    assert calls.count(calls[3]) == 2


def test_interrupted_run_continues_and_calls_back_for_new_results_only(inline: dict[str, Any]) -> None:
    def interrupted(x: float) -> float:
        if not delivered:
            signal.raise_signal(signal.SIGINT)
        return x

    delivered: list[TrialResult] = []
    with pytest.raises(KeyboardInterrupt):
        tune_small(inline, objective=interrupted)
    first = load(Path(inline["runs"]) / "first")
    assert first.outcome == "interrupted"
    before = len([row for row in first.rows() if row["status"] == "succeeded"])
    delivered = [TrialResult(trial=None, parameters={}, value=None, status="")]
    again = tune_small(inline, objective=interrupted, resume=first.folder, on_result=delivered.append)
    assert again.folder == first.folder
    assert (again.outcome, len(again)) == ("finished", 5)
    assert [one.trial for one in delivered[1:]] == list(range(before, 5))


def test_finished_run_returns_its_result_and_resumes_with_a_larger_budget(inline: dict[str, Any]) -> None:
    first = tune_small(inline)
    same = tune_small(inline, resume=True)
    assert same.rows() == first.rows()
    assert len(history_of(same).sessions) == 1
    continued = tune_small(inline, evaluations=7, resume=str(first.folder))
    assert continued.rows()[:5] == first.rows()
    assert len(continued) == 7
    with pytest.raises(RunError, match=r"budget\.evaluations must be at least 7.* got 6"):
        tune_small(inline, evaluations=6, resume=True)


def test_renamed_folder_is_resumed_without_renaming_the_run(inline: dict[str, Any]) -> None:
    first = tune_small({**inline, "run": None})
    moved = first.folder.parent / "moved"
    shutil.move(first.folder, moved)
    assert len(tune_small({**inline, "run": None}, evaluations=6, resume=moved)) == 6
    assert sorted(path.name for path in moved.parent.iterdir()) == ["moved"]


def test_changed_space_function_direction_or_seed_is_rejected_and_named(inline: dict[str, Any]) -> None:
    first = tune_small(inline)
    command = {"objective": {"command": "echo {x}", "direction": "maximize"}, "name": "objective"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"space": {"x": Range(0.0, 2.0)}}, "space.x.high: 1.0 became 2.0"),
        ({"objective": lambda x: x}, "name: 'objective' became 'lambda'"),
        (command, "objective.command: None became 'echo {x}'"),
        ({"direction": "minimize"}, "objective.direction: 'maximize' became 'minimize'"),
        ({"settings": {**inline, "seed": 1}}, "seed: 0 became 1"),
    ]
    for changed, difference in cases:
        with pytest.raises(RunError, match=re.escape(difference)):
            tune_small(**{"settings": inline, "evaluations": 6, "resume": True, **changed})
    assert load(first.folder).rows() == first.rows()
    space = {name: Range(0, 1) for name in "xyz"}
    with pytest.raises(RunError) as refused:
        tune_small(inline, resume=True, space=space, objective=command["objective"])
    lines = str(refused.value).splitlines()
    assert (len(lines), lines[11].endswith(" more")) == (13, True)
    assert "None became None" not in str(refused.value)


def test_resume_keeps_the_order_of_the_parameters(inline: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"evaluations": 4, "direction": "minimize", "progress": False, "settings": inline}
    space = {"x": Range(0, 1), "y": Range(0, 2)}
    swapped = {"y": space["y"], "x": space["x"]}
    first = tune(lambda x, y: x + y, space, **arguments)
    again = tune(lambda x, y: x + y, swapped, resume=first.folder, **{**arguments, "evaluations": 6})
    whole = tune(lambda x, y: x + y, space, **{**arguments, "evaluations": 6, "settings": {**inline, "run": "whole"}})
    assert [trial.parameters for trial in again.trials] == [trial.parameters for trial in whole.trials]


def one(number: int) -> Callable[[float], float]:
    text = f"def objective(x):\n    return {number} - x\n"
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return cast(Callable[[float], float], namespace["objective"])


def test_function_of_the_same_name_whose_code_changed_is_used_with_a_warning(inline: dict[str, Any]) -> None:
    first = tune_small(inline, objective=one(1))
    with pytest.warns(UserWarning, match="its code has changed"):
        continued = tune_small(inline, evaluations=6, resume=True, objective=one(5))
    values = [row["value"] for row in continued.rows()]
    assert values[:5] == [row["value"] for row in first.rows()]
    assert values[5] > 3


def test_folder_without_a_run_and_a_name_in_use_are_rejected(inline: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        tune_small(inline, resume=tmp_path)
    with pytest.raises(UserError, match=r"resume=True must know which run .* give run=NAME"):
        tune_small({**inline, "run": None}, resume=True)
    with pytest.raises(ValueError, match="resume must be the path of a run's folder, True or False, got None"):
        tune_small(inline, resume=None)
    tune_small(inline, resume=True)  # there is no such run, so a new one begins
    with pytest.raises(RunError, match=r"`run` must name a new run, got 'first'.*resume=True"):
        tune_small(inline)


def test_run_of_another_living_process_is_rejected(inline: dict[str, Any]) -> None:
    run = open_run(tune_small(inline).folder)
    with run.store() as store:
        take(store, run.name)
        with pytest.raises(HeldError, match="only one process can run campaign"):
            Campaign(objective, SPACE, direction="maximize", evaluations=6, settings=inline).run(
                progress=False, resume=True
            )


def test_function_that_cannot_be_imported_is_passed_again(inline: dict[str, Any]) -> None:
    seen: list[float] = []

    def remember(x: float) -> float:
        seen.append(x)
        return x

    result = tune_small(inline, objective=remember)
    with pytest.raises(ObjectiveError, match=r"cannot be imported here: pass it again"):
        build(from_mapping(read(result.folder / "campaign.yaml").tree))
    tune_small({**inline, "run": None}, 7, objective=remember, resume=result.folder)
    assert len(seen) == 7


def test_function_of_a_module_is_imported_for_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: dict[str, Any]
) -> None:
    (tmp_path / "module_of_a_resume.py").write_text("def loss(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = tune_small(inline, objective=importlib.import_module("module_of_a_resume").loss)
    del sys.modules["module_of_a_resume"]
    objective = build(from_mapping(read(result.folder / "campaign.yaml").tree)).objective
    assert objective.evaluate({"x": 2.0}, 0, lambda *_, **__: None).value == 2.0


CRASHING = """
    import os
    from bbkb import Range, tune

    def f(x):
        if x == 0.5:
            os._exit(3)
        return x

    common = {"space": {"x": Range(0.0, 1.0, step=0.5)}, "direction": "minimize", "executor": "inline"}
    tune(lambda x: x, evaluations=1, run="imports", progress=False, **common)
    for _ in range(4):  # each fork stands for a start of the script
        child = os.fork()
        if child == 0:
            tune(f, evaluations=5, run="one", resume=True, progress=False, **common,
                 settings={"enqueue": [{"x": 0.0}, {"x": 0.5}, {"x": 1.0}]})
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_trial_that_ends_the_process_fails_after_three_attempts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(CRASHING))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["3", "3", "3", "0"]
    rows = load(tmp_path / "runs" / "one").rows()
    assert [row["attempts"] for row in rows if row["status"] == "failed"] == [3]
    assert sum(row["status"] == "succeeded" for row in rows) == 4


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_sigterm_ends_a_process_that_an_inline_objective_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def objective(x: float) -> float:
        child = os.fork()
        if child == 0:
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # Python may not call a handler beside a lock
                time.sleep(10)
            os._exit(1)
        os.kill(child, signal.SIGTERM)
        return os.waitpid(child, 0)[1]

    result = tune(objective, SPACE, evaluations=3, direction="minimize", executor="inline", progress=False)
    assert [trial.value for trial in result.trials] == [signal.SIGTERM] * 3
