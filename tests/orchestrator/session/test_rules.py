"""Tests of orchestrator/session/rules.py: the rules that a campaign file states."""

from typing import Any

from bbkb.orchestrator.campaign.event_json import body_of, event_of
from bbkb.orchestrator.campaign.events import SessionOpened
from bbkb.orchestrator.session.rules import goals_of, rules_of
from bbkb.orchestrator.settings.loading import from_mapping

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


def test_model_rule_is_cautious_only_with_a_single_goal() -> None:
    settings = {**REPORTING, "early_stopping": MODEL}
    limited = {"constraints": [{"metric": "size", "at_most": 3}], "strategy": "bbkb"}
    for goals, is_cautious in (({}, True), (limited, False)):
        training = rules_of(from_mapping({**settings, **goals})).training
        assert training is not None
        assert training.is_cautious == is_cautious


def test_rules_are_read_from_the_log() -> None:
    settings = from_mapping(SMALL)
    opened = SessionOpened(
        time=0.0,
        epoch=1,
        executor="inline",
        slots=3,
        settings=settings.resolved(),
        rules=rules_of(settings, 3),
    )
    assert event_of("session_opened", body_of(opened)) == opened


def test_goals_are_the_objective_if_none_are_listed() -> None:
    goals = goals_of(from_mapping({**SMALL, "objective": {"name": "branin", "direction": "minimize"}}))
    assert goals.is_single
    assert goals.objectives[0].sign == -1.0
