"""Tests of orchestrator/session/rules.py: the rules that a campaign file states."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign.event_json import body_of, event_of
from bbkb.orchestrator.campaign.events import SessionOpened
from bbkb.orchestrator.campaign.rules import Rules
from bbkb.orchestrator.session.rules import goals_of, rules_of
from bbkb.orchestrator.settings.loading import from_mapping, load
from bbkb.orchestrator.store.versions import rules_of_version_2, upcast

CONFIGS = sorted(set(Path("configs").glob("*.yaml")) - {Path("configs/population.yaml")})  # it needs a newer log
SMALL: dict[str, Any] = {
    "name": "small",
    "objective": {"name": "branin"},
    "budget": {"evaluations": 20, "hours": 0.5, "target": 3.0},
    "workers": {"count": 3, "executor": "inline"},
}
REPORTING: dict[str, Any] = {
    "name": "reporting",
    "objective": {"command": "echo {x}", "direction": "minimize"},
    "space": {"x": {"low": 0.0, "high": 1.0}},
    "budget": {"steps": 90},
    "workers": {"cpus": 3, "memory_gb": 2, "timeout_factor": 3.0, "retry_memory_factor": 2.0},
}
MODEL = {"rule": "model", "continue": True, "last_step": 9, "first_trials": 4}
CHANGES: list[dict[str, Any]] = [
    {"early_stopping": {"rule": "asha"}},
    {"early_stopping": {"rule": "median"}},
    {"early_stopping": MODEL},
    {"early_stopping": {**MODEL, "continue": "anew", "keep_checkpoints": 5}},
    {"budget": {"evaluations": 9, "stop_when": {"no_gain_of": 0.1, "in": 3}}},
    {"strategy": "uniform", "constraints": [{"metric": "size", "at_most": 3}]},
]


def without_balance(rules: Rules) -> Rules:
    """Return the rules without the balance of starts, which older logs do not have."""
    if rules.training is None:
        return rules
    return replace(
        rules, training=replace(rules.training, balances_starts=False, bounds_starts=False, is_cautious=False)
    )


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_rules_of_shipped_files_are_those_that_older_logs_are_read_with(path: Path) -> None:
    settings = load(path)
    assert without_balance(rules_of(settings, 7)) == rules_of_version_2(settings.resolved(), 7)


@pytest.mark.parametrize("changed", CHANGES, ids=lambda changed: next(iter(changed)))
def test_rules_of_each_section_are_those_that_older_logs_are_read_with(changed: dict[str, Any]) -> None:
    if "constraints" in changed:
        changed = {**changed, "strategy": "bbkb"}
    settings = from_mapping({**REPORTING, **changed})
    assert without_balance(rules_of(settings, 3)) == rules_of_version_2(settings.resolved(), 3)


def test_model_rule_is_cautious_only_with_a_single_goal() -> None:
    settings = {**REPORTING, "early_stopping": MODEL}
    limited = {"constraints": [{"metric": "size", "at_most": 3}], "strategy": "bbkb"}
    for goals, is_cautious in (({}, True), (limited, False)):
        training = rules_of(from_mapping({**settings, **goals})).training
        assert training is not None
        assert (training.balances_starts, training.is_cautious) == (True, is_cautious)


def test_rules_are_read_from_the_log_and_derived_for_older_events() -> None:
    settings = from_mapping(SMALL)
    opened = SessionOpened(
        time=0.0,
        epoch=1,
        executor="inline",
        slots=3,
        settings=settings.resolved(),
        rules=rules_of(settings, 3),
    )
    body = body_of(opened)
    assert event_of("session_opened", body) == opened
    older = json.dumps({key: value for key, value in json.loads(body).items() if key != "rules"})
    assert event_of("session_opened", upcast("session_opened", 2, older)) == opened


def test_goals_are_the_objective_if_none_are_listed() -> None:
    goals = goals_of(from_mapping({**SMALL, "objective": {"name": "branin", "direction": "minimize"}}))
    assert goals.is_single
    assert goals.objectives[0].sign == -1.0
