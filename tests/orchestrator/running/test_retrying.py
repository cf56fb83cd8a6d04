"""Failed trials are queued again: they keep their index, and nothing else changes."""

import json
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import TrialFailed, TrialsReopened, TrialSucceeded
from bbkb.orchestrator.errors import HeldError, UserError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.running.resume import reopen
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.store.lease import Heartbeat, take
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.orchestrator.store.verify import Findings, verify
from bbkb.workers.messages import FailureKind
from tests.orchestrator import runs

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
CAMPAIGN = """
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
    text = CAMPAIGN.format(folder=folder, name=strategy, strategy=strategy, evaluations=evaluations)
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
