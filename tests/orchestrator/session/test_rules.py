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


def test_goals_are_the_objective_if_none_are_listed() -> None:
    goals = goals_of(from_mapping({**SMALL, "objective": {"name": "branin", "direction": "minimize"}}))
    assert goals.is_single
    assert goals.objectives[0].sign == -1.0


def test_log_keeps_the_rules_of_a_session() -> None:
    settings = from_mapping({**SMALL, "early_stopping": {"rule": "asha"}})
    opened = SessionOpened(
        time=0.0, epoch=1, executor="inline", slots=3, settings=settings.resolved(), rules=rules_of(settings, 3)
    )
    assert event_of("session_opened", body_of(opened)) == opened


def test_strategy_that_pauses_its_trials_sets_the_rules_for_trainings() -> None:
    strategy = {"name": "pbt", "population": 4, "interval": 5, "last_step": 20}
    space = {"x": {"low": 0.0, "high": 1.0}}
    tree = {**SMALL, "objective": {"command": "echo {x}", "direction": "minimize"}, "space": space}
    rules = rules_of(from_mapping({**tree, "strategy": strategy}))
    assert rules.stopping is not None
    assert rules.training is not None
    assert [rules.stopping.step_of_next_rung(step) for step in (0, 5, 12)] == [5, 10, 15]
    assert rules.training.saves_checkpoints
    assert not any(map(rules.training.is_witness, range(200)))
