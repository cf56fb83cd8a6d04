"""Tests of orchestrator/cli/plan.py: a dry run describes the later run and leaves nothing
behind."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from bbkb import Campaign
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.cli.plan import first_arms, warnings
from bbkb.orchestrator.errors import ConfigError, RunError, StoreError
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.known_results import existing
from bbkb.orchestrator.settings.loading import from_mapping
from tests.orchestrator.runs import history_of


def campaign(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": "planned",
        "objective": {"name": "branin", "direction": "minimize"},
        "budget": {"evaluations": 8, "hours": 1.5},
        "workers": {"count": 4, "executor": "simulated"},
        "enqueue": [{"x": 0.0, "y": 0.5}],
        "runs": str(tmp_path / "runs"),
        **changes,
    }


def dry_run(tmp_path: Path, tree: dict[str, Any], *arguments: str) -> str:
    file = tmp_path / "planned.yaml"
    file.write_text(yaml.safe_dump(tree))
    done = CliRunner().invoke(app, ["run", str(file), "--dry-run", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("strategy", ["bbkb", "uniform", "gp_bucb"])
def test_plan_shows_the_first_evaluations_of_the_run(tmp_path: Path, strategy: str) -> None:
    settings = from_mapping(campaign(tmp_path, strategy={"name": strategy}))
    parts = build(settings)
    planned = first_arms(settings, parts, existing(settings, parts.problem))
    created = Campaign.__new__(Campaign)
    created.settings = settings
    trials = history_of(created.run(progress=False)).trials
    assert len(planned) == 4
    assert planned == [row.arm for row in trials[:4]]


def test_dry_run_shows_budget_workers_and_store_and_writes_nothing(tmp_path: Path) -> None:
    rules = {"no_gain_of": 0.001, "in": 64, "expected_gain_below": "noise"}
    text = dry_run(tmp_path, campaign(tmp_path, budget={"evaluations": 8, "hours": 1.5, "stop_when": rules}))
    ends = "8 evaluations or 1 h 30 min or no gain of 0.001 in 64 evaluations or an expected gain below noise"
    for part in (ends, "4 (simulated)", "sqlite", "x=0, y=0.5", "nothing was written"):
        assert part in text
    assert [path.name for path in tmp_path.iterdir()] == ["planned.yaml"]


def test_dry_run_of_an_existing_run_describes_its_resume(tmp_path: Path) -> None:
    tree = campaign(tmp_path, run="one")
    planned = Campaign.__new__(Campaign)
    planned.settings = from_mapping(tree)
    planned.run(progress=False)
    before = (tmp_path / "runs" / "one" / "campaign.sqlite").read_bytes()
    text = dry_run(tmp_path, tree, "--or-resume", "--set", "budget.evaluations=20")
    assert "8 of 20 done" in text
    assert "budget.evaluations: 8 becomes 20" in text
    assert (tmp_path / "runs" / "one" / "campaign.sqlite").read_bytes() == before


def test_dry_run_checks_file_folder_and_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workers\.count"):
        dry_run(tmp_path, campaign(tmp_path, workers={"count": 0}))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        dry_run(tmp_path, campaign(tmp_path, runs=str(tmp_path / "file" / "runs")))
    with pytest.raises(StoreError, match="does the folder exist"):
        dry_run(tmp_path, campaign(tmp_path, store=f"sqlite:///{tmp_path}/none/x.sqlite"))


def warnings_of(**sections: Any) -> str:
    settings = from_mapping({"name": "c", "objective": {"name": "branin"}, "budget": {"evaluations": 5}, **sections})
    return "\n".join(warnings(settings, build(settings)))


@pytest.mark.parametrize("name", ["gp_ucb", "bkb", "igp_ucb", "expected_improvement"])
def test_plan_warns_about_idle_workers_of_a_sequential_strategy(name: str) -> None:
    messages = warnings_of(strategy={"name": name}, workers={"count": 4, "executor": "simulated"})
    assert f"the strategy {name} waits for each result" in messages
    assert "one of the 4 workers has work" in messages


def test_plan_warns_about_a_parameter_that_the_command_lacks() -> None:
    space = {"lr": {"low": 0, "high": 1}, "depth": {"low": 1, "high": 8, "integer": True}, "data": {"constant": "d"}}
    for command, unused in (("true {lr}", "{depth}"), ("true {lr} $BBKB_PARAMETERS", ""), ("true", "")):
        messages = warnings_of(objective={"command": command, "direction": "minimize"}, space=space)
        assert messages.partition(":")[0] == (f"objective.command does not contain {unused}" if unused else "")


@pytest.mark.parametrize(("name", "count"), [("gp_ucb", 1), ("bbkb", 4), ("gp_bucb", 4), ("uniform", 4)])
def test_plan_has_no_warning_if_all_workers_have_work(name: str, count: int) -> None:
    assert warnings_of(strategy={"name": name}, workers={"count": count, "executor": "simulated"}) == ""


def test_plan_warns_about_fewer_steps_than_one_training(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def train(x, report):\n    return x\n")
    tree = campaign(
        tmp_path,
        objective={"callable": f"{tmp_path}/steps.py:train", "direction": "minimize"},
        space={"x": {"low": 0, "high": 1}},
        workers={"executor": "inline"},
        enqueue=[],
        early_stopping={"rule": "model", "last_step": 9},
    )
    softmax = {"name": "mnist_logistic_regression", "options": {"epochs": 9, "dataset": "digits"}}
    known = {**tree, "objective": softmax, "space": {}, "early_stopping": {"rule": "model"}}
    text = "budget.steps, 8, is less than one training"
    assert text in " ".join(dry_run(tmp_path, {**known, "budget": {"steps": 8}}).split())
    assert text in " ".join(dry_run(tmp_path, {**tree, "budget": {"steps": 8}}).split())
    assert text[:12] not in dry_run(tmp_path, {**tree, "budget": {"steps": 9}})
