"""The commands that show results and logs, and `bbkb init`, whose files run unchanged."""

import argparse
import dataclasses
import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bbkb import Result
from bbkb.objectives.parameters import Choice, Range
from bbkb.orchestrator.api.campaign import Space
from bbkb.orchestrator.campaign.events import Event, ReportsArrived
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.cli.commands import results as commands
from bbkb.orchestrator.errors import RunError, UserError
from bbkb.orchestrator.history.facts import as_arguments
from bbkb.orchestrator.report.progress import best_steps, comparison
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.lease import Identity
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore
from tests.orchestrator.events import batch, created, dispatch, session, settings_of
from tests.orchestrator.runs import bbkb, history_of, tune_here
from tests.reported import reported


def run(tmp_path: Path, name: str, **workers: Any) -> Result:
    settings = {"workers": {"executor": "inline", "retries": 0, **workers}}
    space: Space = {"x": Range(0.0, 1.0), "model": Choice(("a model", "it's"))}
    folder = tmp_path / "runs"
    return tune_here(folder, lambda x, model: x, space, settings, evaluations=5, name=name)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result]:
    folder = tmp_path_factory.mktemp("two")
    return run(folder, "one"), run(folder, "two")


def output_of(*arguments: str, columns: int = 200) -> str:
    result = bbkb(*arguments, columns=columns)
    return result.stdout if arguments[0] == "best" else result.output  # notes about it are on standard error


def test_best_prints_a_configuration_for_the_next_script(results: tuple[Result, Result]) -> None:
    result = results[0]
    expected = dict(result.best.parameters)
    folder = str(result.folder)
    assert yaml.safe_load(output_of("best", folder)) == expected
    assert json.loads(output_of("best", folder, "--format", "json")) == expected
    words = shlex.split(output_of("best", folder, "--format", "args"))
    assert words == ["--x", str(expected["x"]), "--model", expected["model"]]


def test_best_prints_arguments_with_a_dash_for_argparse() -> None:
    words = shlex.split(as_arguments({"level": "-O3", "shift": -0.5, "name": "a b"}))
    parser = argparse.ArgumentParser()
    for name in ("level", "shift", "name"):
        parser.add_argument(f"--{name}")
    assert vars(parser.parse_args(words)) == {"level": "-O3", "shift": "-0.5", "name": "a b"}


def test_list_shows_the_oldest_run_first_and_names_a_damaged_one(results: tuple[Result, Result]) -> None:
    first, second = results
    damaged = first.folder.parent / "damaged"
    damaged.mkdir()
    (damaged / "campaign.yaml").write_text("store: sqlite\n")
    output = output_of("list", str(damaged.parent))
    assert output.index(first.folder.name) < output.index(second.folder.name)
    assert "damaged is unreadable" in output
    assert f"{first.best.value:.6g}" in output


def test_list_names_an_empty_folder(tmp_path: Path) -> None:
    assert "has no runs" in output_of("list", str(tmp_path))


def test_compare_shows_runs_side_by_side(results: tuple[Result, Result]) -> None:
    folders = [str(result.folder) for result in results]
    output = output_of("compare", *folders)
    assert all(f"{result.best.value:.6g}" in output for result in results)
    assert "…" not in output_of("compare", *folders, columns=50)
    assert output_of("compare", *folders * 3, columns=60).count("best value") == 3  # two runs beside each other
    assert "uniform" in output
    assert "it's" in output or "a model" in output


def test_compare_finds_runs_by_name(results: tuple[Result, Result], monkeypatch: pytest.MonkeyPatch) -> None:
    result = results[0]
    monkeypatch.chdir(result.folder.parent.parent)
    assert f"{result.best.value:.6g}" in output_of("compare", result.folder.name)


@pytest.mark.parametrize("ending", [".html", ".png", ".svg"])
def test_compare_draws_runs_into_one_figure(results: tuple[Result, Result], tmp_path: Path, ending: str) -> None:
    first, second = results
    file = tmp_path / f"curves{ending}"
    output_of("compare", str(first.folder), str(second.folder), "--picture", str(file))
    content = file.read_bytes()
    if ending == ".png":
        assert content.startswith(b"\x89PNG")
    else:
        assert b"Best value so far" in content or b"<svg" in content
    if ending == ".html":
        assert first.folder.name.encode() in content
        assert second.folder.name.encode() in content


def test_compare_rejects_an_unknown_kind_of_figure(results: tuple[Result, Result]) -> None:
    with pytest.raises(UserError, match=r"must end with \.html or one of \.png"):
        bbkb("compare", results[0].folder, "--picture", "x.gif")


def test_compare_curve_has_each_improvement_and_the_last_result(results: tuple[Result, Result]) -> None:
    result = results[0]
    places, values = best_steps(history_of(result))
    assert values == sorted(values)
    assert values[-1] == result.best.value
    assert places[-1] == 5


def test_compare_gives_repetitions_of_a_campaign_one_color(results: tuple[Result, Result], tmp_path: Path) -> None:
    one, two = ((name, history_of(result)) for name, result in zip(("one", "two"), results, strict=True))
    other = ("other", history_of(run(tmp_path, "other", retries=3)))
    ((first, second, third),) = [figure.traces for figure in comparison([one, two, other])]
    assert first["line"] == second["line"] != third["line"]
    ((first, second),) = [figure.traces for figure in comparison([one, two])]
    assert first["line"] != second["line"]


def test_list_fits_into_80_columns(tmp_path: Path) -> None:
    goals = [{"metric": "value", "direction": "maximize"}, {"metric": "size", "direction": "minimize"}]
    result = run(tmp_path, "classifier")
    folder = tmp_path / "runs"
    several = tune_here(folder, lambda x: {"value": x, "size": x}, objectives=goals, evaluations=5, name="several")
    lines = output_of("list", str(tmp_path / "runs"), columns=80).splitlines()
    assert len(lines) == 3
    assert result.folder.name in lines[1]
    assert several.folder.name in lines[2]
    assert lines[2].rstrip().endswith("front of 5")


HOUR = 3600.0
Bbkb = Callable[..., subprocess.CompletedProcess[str]]


def make_run(folder: Path, last_time: float) -> EventStore:
    """A run with one evaluation under way since `last_time`, and its store."""
    folder.mkdir()
    (folder / "campaign.yaml").write_text("store: sqlite\n", encoding="utf-8")
    begun: list[Event] = [session(time=last_time), batch(0, [0], time=last_time), dispatch((0, 1), time=last_time)]
    store = EventStore(f"sqlite:///{folder / 'campaign.sqlite'}")
    store.create(folder.name, [created(settings_of(), time=last_time, objective="o"), *begun])
    return store


def test_status_uses_the_heartbeat_during_long_evaluations(bbkb: Bbkb, tmp_path: Path) -> None:
    store = make_run(tmp_path / "c", time.time() - 5 * HOUR)
    store.claim("c", "somebody", "{}")
    shown = " ".join(bbkb(tmp_path, "status", "c").stdout.split())
    assert " s ago" in shown
    assert "5 h" not in shown.partition("last sign of life")[2].partition("ago")[0]
    assert "no evaluation of this campaign has ended yet" in shown


def test_status_says_that_the_process_of_an_open_session_has_ended(bbkb: Bbkb, tmp_path: Path) -> None:
    store = make_run(tmp_path / "c", time.time())
    store.claim("c", "here", Identity.of_this_process().to_text())
    assert "has ended" not in bbkb(tmp_path, "status", "c").stdout
    ended = subprocess.Popen(["sleep", "60"])
    identity = dataclasses.replace(Identity.of_this_process(), pid=ended.pid, started="1")
    ended.kill()
    ended.wait()
    store.claim("c", "gone", identity.to_text())
    shown = " ".join(bbkb(tmp_path, "status", "c").stdout.split())
    assert "its process has ended, last sign of life" in shown
    assert "; continue with bbkb resume" in shown
    assert "0 of " in shown
    plain = json.loads(bbkb(tmp_path, "status", "c", "--json").stdout)
    assert (plain["phase"], plain["in_flight"], plain["running"], plain["waiting"]) == ("ended", 0, [], 1)
    assert plain["activity"].startswith("its process has ended, last sign of life")


def test_status_of_a_session_that_closes_meanwhile_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = make_run(tmp_path / "c", time.time()).claim("c", "here", Identity.of_this_process().to_text())
    read = snapshots.current

    def read_and_close(run: Run, store: EventStore) -> CampaignState:
        state = read(run, store)
        writer.release()
        return state

    monkeypatch.setattr(commands, "current", read_and_close)
    commands.status(tmp_path / "c")
    assert "has ended" not in capsys.readouterr().out


def test_trial_status_prints_the_first_and_last_of_many_reports(bbkb: Bbkb, tmp_path: Path) -> None:
    store = make_run(tmp_path / "c", time.time())
    writer = store.claim("c", "somebody", "{}")
    reports = tuple(reported(step, step / 2, 0, 1) for step in range(1, 61))
    writer.append([ReportsArrived(time=time.time(), reports=reports)])
    lines = bbkb(tmp_path, "status", "c", "--trial", "0").stdout.splitlines()
    steps = [line for line in lines if line.startswith("  step") or "more" in line]
    assert steps[4:7] == ["  step 5: 2.5", "  … 35 more", "  step 41: 20.5"]
    assert steps[-1] == "  step 60: 30.0"
    assert len(json.loads(bbkb(tmp_path, "status", "c", "--trial", "0", "--json").stdout)["reports"]) == 60


@pytest.mark.parametrize("template", ["function", "command", "table"])
def test_init_writes_a_file_that_runs(bbkb: Bbkb, tmp_path: Path, template: str) -> None:
    done = bbkb(tmp_path, "init", "my_campaign.yaml", "--template", template, "--evaluations", "4", "--workers", "1")
    assert done.returncode == 0, done.stderr
    executor = "simulated" if template == "table" else "inline"
    done = bbkb(tmp_path, "run", "my_campaign.yaml", "--set", f"workers.executor={executor}")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "campaign.schema.json").read_text())["title"] == "bbkb campaign file"


def test_init_writes_a_valid_file_for_any_name(bbkb: Bbkb, tmp_path: Path) -> None:
    done = bbkb(tmp_path, "init", "2026 §.yaml", "--template", "function")
    assert "bbkb run '2026 §.yaml'" in done.stdout
    checked = bbkb(tmp_path, "validate", "2026 §.yaml")
    assert checked.returncode == 0, checked.stderr


def test_init_without_a_terminal_chooses_a_function(bbkb: Bbkb, tmp_path: Path) -> None:
    done = bbkb(tmp_path, "init", text="")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "objective.py").is_file()
    assert done.stdout.count("command") == 1  # of the choices, which the question lists


def test_init_asks_for_the_template(bbkb: Bbkb, tmp_path: Path) -> None:
    done = bbkb(tmp_path, "init", text="command\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "train.py").is_file()
    assert "command:" in (tmp_path / "campaign.yaml").read_text()


def test_init_overwrites_nothing(bbkb: Bbkb, tmp_path: Path) -> None:
    (tmp_path / "objective.py").write_text("mine")
    bbkb(tmp_path, "init", "--template", "function")
    assert (tmp_path / "objective.py").read_text() == "mine"
    again = bbkb(tmp_path, "init", "--template", "function")
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_validate_mentions_a_budget_above_the_number_of_rows(bbkb: Bbkb, tmp_path: Path) -> None:
    bbkb(tmp_path, "init", "--template", "table")
    done = bbkb(tmp_path, "run", "campaign.yaml", "--set", "workers.executor=simulated")
    assert (
        "the budget of 100 evaluations is above the number of candidates, 9: candidates are evaluated again"
        in done.stdout
    )
    once = bbkb(tmp_path, "validate", "campaign.yaml", "--set", "objective.deterministic=true")
    assert "number of candidates, 9: the campaign ends when each has been evaluated" in once.stdout
    assert "above the number" not in bbkb(tmp_path, "validate", "campaign.yaml", "--set", "budget.evaluations=9").stdout


def loud(x: float) -> float:
    if x > 0.5:
        print("large", x)
    return x


@pytest.fixture
def logged_run(tmp_path: Path) -> Result:
    return tune_here(tmp_path / "runs", loud, evaluations=6)


def log_of(*arguments: object) -> str:
    return bbkb("logs", *arguments).output


def test_logs_print_the_output_of_a_trial_that_has_ended(logged_run: Result) -> None:
    trial = logged_run.best
    assert log_of(logged_run.folder, "--trial", trial.trial) == f"large {trial.parameters['x']}\n"
    assert log_of(logged_run.folder, "--trial", trial.trial, "--follow") == f"large {trial.parameters['x']}\n"


def test_logs_without_a_trial_print_the_programs_log(logged_run: Result) -> None:
    assert "claimed the campaign" in log_of(logged_run.folder)


def test_output_creates_folders_only_for_trials_that_printed(logged_run: Result) -> None:
    loud_ones = [f"{row.trial:06d}" for row in history_of(logged_run).trials if (row.value or 0.0) > 0.5]
    assert sorted(entry.name for entry in (logged_run.folder / "trials").iterdir()) == loud_ones


@pytest.mark.parametrize("arguments", [["--trial", "6"], ["--trial", "-1"]])
def test_logs_reject_an_unknown_trial_and_list_the_range(logged_run: Result, arguments: list[str]) -> None:
    with pytest.raises(RunError, match=r"must be a trial of .*, 0 to 5"):
        log_of(logged_run.folder, *arguments)


def test_logs_report_a_trial_or_attempt_without_output(logged_run: Result) -> None:
    quiet = next(row.trial for row in history_of(logged_run).trials if (row.value or 0.0) <= 0.5)
    with pytest.raises(RunError, match=f"trial {quiet} has no output"):
        log_of(logged_run.folder, "--trial", quiet)
    with pytest.raises(RunError, match=r"attempt 2 of trial .* has no output.*attempts with output: 1"):
        log_of(logged_run.folder, "--trial", logged_run.best.trial, "--attempt", 2)
