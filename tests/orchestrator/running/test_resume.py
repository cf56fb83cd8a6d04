"""Resuming a campaign, and evaluating its failed trials again."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from bbkb.orchestrator.campaign.events import TrialFailed, TrialsReopened, TrialSucceeded
from bbkb.orchestrator.errors import HeldError, UserError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.running.resume import end_of, reopen
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.lease import Heartbeat, take
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.orchestrator.store.verify import Findings, verify
from bbkb.workers.messages import FailureKind
from tests.orchestrator import runs

Bbkb = Callable[..., subprocess.CompletedProcess[str]]

CAMPAIGN = """
name: sine
objective: {name: sine}
candidates: {size: 50}
strategy: {name: uniform}
budget: {evaluations: 8}
workers: {executor: inline, count: 2}
"""
ONE_LINE = ("run", "campaign.yaml", "--run", "2026-first", "--or-resume")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a campaign file."""
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN)
    return tmp_path


def count_successes(bbkb: Bbkb, folder: Path) -> int:
    return int(json.loads(bbkb(folder, "status", "runs/2026-first", "--json").stdout)["succeeded"])


def test_command_starts_a_run_and_resumes_it(bbkb: Bbkb, folder: Path) -> None:
    done = bbkb(folder, *ONE_LINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"run {folder / 'runs' / '2026-first'}" in done.stdout
    again = bbkb(folder, *ONE_LINE)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "has finished: budget spent" in again.stdout
    continued = bbkb(folder, *ONE_LINE, "--set", "budget.evaluations=11")
    assert continued.returncode == 0, continued.stdout + continued.stderr
    assert count_successes(bbkb, folder) == 11
    assert [run.name for run in (folder / "runs").iterdir()] == ["2026-first"]


def test_run_killed_before_its_first_session_is_not_finished(tmp_path: Path) -> None:
    settings = from_mapping({**yaml.safe_load(CAMPAIGN), "runs": str(tmp_path)})
    run = create_run(settings, build(settings))
    with run.store() as store:
        state = snapshots.current(run, store)
    assert end_of(state, settings) is None


def test_name_in_use_is_rejected_with_the_flag_that_resumes(bbkb: Bbkb, folder: Path) -> None:
    bbkb(folder, *ONE_LINE)
    done = bbkb(folder, "run", "campaign.yaml", "--set", "run=2026-first")
    assert done.returncode == 2
    assert "add --or-resume" in done.stderr


def test_or_resume_rejects_a_missing_or_bad_name(bbkb: Bbkb, folder: Path) -> None:
    done = bbkb(folder, "run", "campaign.yaml", "--or-resume")
    assert done.returncode == 2
    assert "add --run NAME" in done.stderr
    done = bbkb(folder, "run", "campaign.yaml", "--run", "../elsewhere")
    assert done.returncode == 2
    assert "run" in done.stderr
    assert "Traceback" not in done.stderr


def test_spent_budget_is_named_and_evaluations_rise_with_the_steps(bbkb: Bbkb, folder: Path) -> None:
    (folder / "campaign.yaml").write_text(CAMPAIGN.replace("evaluations: 8", "steps: 6"))
    bbkb(folder, *ONE_LINE)
    again = bbkb(folder, "resume", "runs/2026-first")
    assert "budget of steps spent. To continue, raise budget.steps" in again.stdout
    continued = bbkb(folder, "resume", "runs/2026-first", "--set", "budget.steps=9")
    assert "6 trials done, 6 of 9 steps" in continued.stdout
    assert "budget.evaluations: 6 becomes 9" in continued.stdout
    assert count_successes(bbkb, folder) == 9


def test_generated_files_are_named_by_absolute_paths(bbkb: Bbkb, folder: Path) -> None:
    done = bbkb(folder, *ONE_LINE)
    assert str(folder / "runs" / "2026-first" / "report.html") in done.stdout
    assert f"report {folder / 'page.html'}" in bbkb(folder, "report", "runs/2026-first", "--output", "page.html").stdout


def write_failing_campaign(folder: Path, function: str, rules: str) -> None:
    """Write a campaign whose `function` always fails; `rules` are lines of its file."""
    (folder / "failing.py").write_text(function + "    raise OSError('no disk')\n")
    (folder / "failing.yaml").write_text(
        "name: failing\nobjective: {callable: 'failing.py:f', direction: maximize}\n"
        "space: {x: {low: 0, high: 1}}\nworkers: {executor: inline, count: 1, retries: 0}\n" + rules
    )


def test_failed_run_with_a_spent_budget_is_failed_when_resumed(bbkb: Bbkb, folder: Path) -> None:
    write_failing_campaign(folder, "def f(x):\n", "candidates: {size: 20}\nbudget: {evaluations: 4}\n")
    assert bbkb(folder, "run", "failing.yaml", "--run", "one").returncode == 1
    done = bbkb(folder, "resume", "runs/one")
    assert done.returncode == 1
    assert "has failed: budget spent, and none of 4 evaluations succeeded. To continue, fix the cause" in done.stdout


def test_steps_spent_on_failed_trials_need_a_larger_budget(bbkb: Bbkb, folder: Path) -> None:
    disk = folder / "disk"
    function = (
        f"import os\ndef f(x, report):\n    report(x, 1)\n    if os.path.exists({str(disk)!r}):\n        return x\n"
    )
    write_failing_campaign(folder, function, "early_stopping: {rule: model, last_step: 3}\nbudget: {steps: 4}\n")
    began = bbkb(folder, "run", "failing.yaml", "--run", "one")
    assert began.returncode == 1
    assert "--retry-failed --set budget.steps=8" in began.stdout
    for options in ([], ["--retry-failed"]):
        done = bbkb(folder, "resume", "runs/one", *options)
        assert (done.returncode, "To continue, raise budget.steps" in done.stdout) == (1, True)
    disk.touch()
    done = bbkb(folder, "resume", "runs/one", "--retry-failed", "--set", "budget.steps=8")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("inline", "an address is for workers.executor ray, got workers.executor inline"),
        ("ray", "must name a running Ray cluster, got 127.0.0.1:1"),
    ],
)
def test_run_with_a_wrong_address_leaves_no_folder(
    bbkb: Bbkb, folder: Path, monkeypatch: pytest.MonkeyPatch, executor: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # another test may have left a connection
    executor = f"workers.executor={executor}"
    done = bbkb(folder, "run", "campaign.yaml", "--address", "127.0.0.1:1", "--set", executor)
    assert (done.returncode, message in done.stderr) == (2, True)
    assert not (folder / "runs").exists()


def test_report_is_not_written_through_a_link_of_the_runs_folder(bbkb: Bbkb, folder: Path) -> None:
    bbkb(folder, *ONE_LINE)
    precious, link = folder / "precious.txt", folder / "runs" / "2026-first" / "report.html"
    precious.write_text("precious")
    link.unlink()
    link.symlink_to(precious)
    done = bbkb(folder, "report", "runs/2026-first")
    assert (done.returncode, "must not be a link" in done.stderr) == (2, True)
    assert precious.read_text() == "precious"


OBJECTIVE = """
import os
def objective(x):
    if os.path.exists({broken!r}):
        if x > 6:
            raise RuntimeError("not fixed yet")
        if x > 4:
            return float("nan")
    return x
"""
REPORTING = """
import os
def objective(x, report):
    report(x, 1)
    if x > 6 and os.path.exists({broken!r}):
        raise RuntimeError("not fixed yet")
    report(x, 2)
    return x
"""
FAILING = """
name: fixed
objective: {{callable: "{folder}/train_{name}.py:objective", direction: maximize, deterministic: true}}
candidates: {{table: "{folder}/rows.csv"}}
strategy: {{name: {strategy}}}
budget: {{evaluations: {evaluations}}}
workers: {{executor: inline, count: 2, retries: 0}}
runs: "{folder}/runs"
"""


def bbkb(*arguments: str) -> str:
    return runs.bbkb(*arguments).output


def run_with_failures(
    folder: Path, strategy: str, evaluations: int = 10, objective: str = OBJECTIVE, setting: str = "seed=0"
) -> Run:
    """A finished campaign over ten rows; rows 7 to 10 were errors, and 5 and 6 invalid values. bbkb
    takes each row once, uniform may take one twice."""
    (folder / "broken").touch()
    (folder / f"train_{strategy}.py").write_text(objective.format(broken=str(folder / "broken")))
    (folder / "rows.csv").write_text("x\n" + "".join(f"{x}\n" for x in range(1, 11)))
    text = FAILING.format(folder=folder, name=strategy, strategy=strategy, evaluations=evaluations)
    (folder / "campaign.yaml").write_text(text)
    bbkb("run", str(folder / "campaign.yaml"), "--run", "r", "--set", setting)
    (folder / "broken").unlink()
    return open_run(folder / "runs" / "r")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_with_failures(tmp_path, "bbkb")


def verify_run(run: Run) -> Findings:
    with run.store() as store:
        return verify(store, run.name)


@pytest.mark.parametrize("strategy", ["uniform", "bbkb", "gp_ucb"])
def test_failed_trials_of_a_finished_run_are_retried(tmp_path: Path, strategy: str) -> None:
    run = run_with_failures(tmp_path, strategy)
    before = fold(run.events())
    failed = [row.trial for row in before.trials if row.status == "failed"]
    assert failed
    text = bbkb("resume", str(run.folder), "--retry-failed")
    assert f"failed trials to be evaluated again: {len(failed)}" in text
    history = fold(run.events())
    status = history.status()
    assert (status.trials.succeeded, status.trials.failed, status.outcome) == (10, 0, "finished")
    assert [row.value for row in history.trials] == [float(str(row.parameters["x"])) for row in history.trials]
    assert [row.trial for row in history.trials if row.attempts == 2] == failed
    assert [row.arm for row in history.trials] == [row.arm for row in before.trials]
    assert verify_run(run).problems == []
    assert json.loads(bbkb("status", str(run.folder), "--json"))["failed"] == 0
    assert "all results are equal" in bbkb("replay", str(run.folder))


def test_retry_takes_failures_of_the_named_kinds_only(run: Run) -> None:
    assert "again: 2" in bbkb("resume", str(run.folder), "--retry-failed", "--kind", "invalid value")
    status = fold(run.events()).status()
    assert (status.trials.succeeded, status.trials.failed) == (6, 4)
    assert "again: 0; not again: 4 of kind 'error'" in bbkb(
        "resume", str(run.folder), "--retry-failed", "--kind", "timeout"
    )
    with pytest.raises(UserError, match="--kind must be one of"):  # no trial ends so
        bbkb("resume", str(run.folder), "--retry-failed", "--kind", "cancelled")
    with pytest.raises(UserError, match="--kind needs --retry-failed"):
        bbkb("resume", str(run.folder), "--kind", "error")


def test_steps_of_a_reopened_trial_count_once(tmp_path: Path) -> None:
    run = run_with_failures(tmp_path, "bbkb", objective=REPORTING, setting="budget.steps=99")
    assert fold(run.events()).status().trials.failed == 4
    bbkb("resume", str(run.folder), "--retry-failed")
    status = fold(run.events()).status()
    assert (status.trials.succeeded, status.budget.steps) == (10, 20)


def test_reopened_trial_runs_after_the_death_of_the_process(run: Run) -> None:
    count, _, state = reopen(run, load(run.settings_file), set(FailureKind))
    assert (count, state.totals.failed, len(state.backlog)) == (6, 0, 6)
    assert verify_run(run).problems == []
    assert fold(run.events()).status().trials.failed == 0
    bbkb("resume", str(run.folder))
    assert fold(run.events()).status().trials.succeeded == 10


def test_run_of_another_process_is_left_alone(run: Run) -> None:
    with run.store() as store:
        heartbeat = Heartbeat(take(store, run.name))
        before = store.length(run.name)
        with pytest.raises(HeldError):
            reopen(run, load(run.settings_file), set(FailureKind))
        assert store.length(run.name) == before
        heartbeat.start()
        heartbeat.end()


def test_trial_that_fails_in_the_retry_is_failed_again(run: Run) -> None:
    (run.folder.parents[1] / "broken").touch()
    bbkb("resume", str(run.folder), "--retry-failed")
    events = run.events()
    history = fold(events)
    assert history.status().trials.failed == 6
    failed = [row for row in history.trials if row.status == "failed"]
    assert {row.attempts for row in failed} == {2}
    assert sum(row.error.startswith("error: ") for row in failed) == 4
    ended = [event for event in events if isinstance(event, TrialFailed | TrialSucceeded)]
    assert len(ended) == 4 + 2 * 6
    assert sum(isinstance(event, TrialsReopened) for event in events) == 1
