"""Tests of orchestrator/settings/goal_sections.py: the sections `objectives` and `constraints`."""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from orchestrator.errors import ConfigError
from orchestrator.settings.goal_sections import check_goals
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.schema import schema

PAIR = [{"metric": "accuracy"}, {"metric": "latency", "direction": "minimize"}]
SMALL: Mapping[str, Any] = {"name": "x", "objective": {"name": "branin"}, "budget": {"evaluations": 5}}


def test_goals_are_read_and_read_back_and_the_direction_is_that_of_the_first() -> None:
    turned = [{"metric": "loss", "direction": "minimize"}, {"metric": "accuracy", "reference": 0.5}]
    settings = from_mapping({**SMALL, "objectives": turned, "constraints": [{"metric": "memory", "at_most": 4}]})
    assert settings.objective.direction == "minimize"
    assert settings.constraints[0].at_most == 4
    assert from_mapping(settings.resolved()) == settings
    assert json.loads(json.dumps(settings.resolved()))["objectives"][1]["reference"] == 0.5


def test_resolved_file_omits_goals_that_were_not_given() -> None:
    assert not {"objectives", "constraints"} & from_mapping(SMALL).resolved().keys()


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"objectives": [{"direction": "minimize"}]}, "objectives.0.metric is required"),
    ({"objectives": [{"metric": "a", "direction": "up"}]}, "objectives.0.direction must be 'maximize' or 'minimize'"),
    ({"objectives": [{"metric": "a"}, {"metric": "a"}]}, "objectives.1.metric must be another one than before"),
    ({"constraints": [{"metric": "a"}]}, "constraints.0 must have at_most or at_least beside metric: a"),
    ({"constraints": [{"metric": "a", "at_most": 1, "at_least": 2}]}, "constraints.0.at_least must be <= at_most, 1"),
    (
        {"objectives": PAIR, "objective": {"name": "branin", "direction": "minimize"}},
        "objective.direction must be left",
    ),
    ({"objectives": PAIR, "budget": {"evaluations": 5, "target": 1}}, "budget.target must not be given beside several"),
    (
        {"objectives": PAIR, "early_stopping": {}, "strategy": {"name": "uniform"}},
        "early_stopping.rule must be median or asha with this strategy",
    ),
    ({"objectives": PAIR, "strategy": {"name": "gp_ucb"}}, "strategy must be one of those that take several"),
    ({"objectives": PAIR, "strategy": {"preset": "paper"}}, "objectives and constraints: bbkb and uniform"),
    (
        {"objectives": PAIR, "known_results": [{"table": "x.csv"}]},
        "known_results must not be given beside several",
    ),
]


@pytest.mark.parametrize(("changed", "message"), MISTAKES)
def test_mistake_is_named_with_its_place(changed: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        from_mapping({**SMALL, **changed})
    assert message in str(error.value)


def test_target_beside_a_constraint_is_a_value_that_satisfies_it() -> None:
    constraints = [{"metric": "memory", "at_most": 4}]
    from_mapping({**SMALL, "constraints": constraints, "budget": {"evaluations": 5, "target": 1}})


def test_schema_describes_goals_and_refuses_a_constraint_without_a_bound() -> None:
    checker = jsonschema.Draft202012Validator(schema())
    assert checker.is_valid({**SMALL, "objectives": PAIR, "constraints": [{"metric": "a", "at_least": 1}]})
    assert not checker.is_valid({**SMALL, "constraints": [{"metric": "a"}]})
    assert not checker.is_valid({**SMALL, "objectives": [{"metric": "a", "direction": "up"}]})


def test_goals_of_a_caller_without_a_file_are_checked_too() -> None:
    with pytest.raises(ValueError, match=r"objectives\.0\.metric is required"):
        check_goals({"objectives": [{}]}, object())
    with pytest.raises(ValueError, match="bbkb and uniform"):
        check_goals({"objectives": PAIR}, object())
