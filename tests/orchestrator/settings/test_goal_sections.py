"""The sections `objectives` and `constraints`."""

import json

import pytest

from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.settings.loading import checked_goals, from_mapping
from tests.orchestrator.settings.small import SMALL


def test_goals_are_read_and_read_back_and_the_direction_is_that_of_the_first() -> None:
    turned = [{"metric": "loss", "direction": "minimize"}, {"metric": "accuracy", "reference": 0.5}]
    settings = from_mapping({**SMALL, "objectives": turned, "constraints": [{"metric": "memory", "at_most": 4}]})
    assert settings.objective.direction == "minimize"
    assert settings.constraints[0].at_most == 4
    assert from_mapping(plain(settings)) == settings
    assert json.loads(json.dumps(plain(settings)))["objectives"][1]["reference"] == 0.5


def test_target_beside_a_constraint_is_a_value_that_satisfies_it() -> None:
    constraints = [{"metric": "memory", "at_most": 4}]
    from_mapping({**SMALL, "constraints": constraints, "budget": {"evaluations": 5, "target": 1}})


def test_goals_of_a_caller_without_a_file_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"objectives\.0\.metric is required"):
        checked_goals({"objectives": [{}], "constraints": []}, object())
    with pytest.raises(ValueError, match="bbkb and uniform"):
        checked_goals({"objectives": [{"metric": "a"}, {"metric": "b"}], "constraints": []}, object())


def test_wrong_direction_of_the_first_objective_is_reported_once() -> None:
    with pytest.raises(ConfigError) as refused:
        from_mapping({**SMALL, "objectives": [{"metric": "a", "direction": "up"}]})
    assert str(refused.value) == "settings: objectives.0.direction must be 'minimize' or 'maximize', got \"up\""
