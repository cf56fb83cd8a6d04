"""`bbkb.orchestrator.campaign.goals`: The goals of a campaign: one or several objectives, each a metric
with a direction, and constraints on metrics.
"""

import pytest

from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.campaign.goals import CampaignGoals, ConstraintGoal, ObjectiveGoal

SETTINGS = {
    "objective": {"direction": "maximize"},
    "objectives": [{"metric": "accuracy"}, {"metric": "latency", "direction": "minimize", "reference": 9.0}],
    "constraints": [{"metric": "memory", "at_most": 4.0}, {"metric": "accuracy", "at_least": 0.5}],
}


def test_goals_are_read_from_a_resolved_file() -> None:
    goals = CampaignGoals.of(SETTINGS)
    assert goals.objectives == (
        ObjectiveGoal(metric="accuracy"),
        ObjectiveGoal(metric="latency", is_maximized=False, reference=9.0),
    )
    assert goals.constraints[0] == ConstraintGoal(metric="memory", at_most=4.0)
    assert CampaignGoals.of({"objective": {}, **goals.plain()}) == goals
    assert goals.for_strategy == Goals(2, 2)
    assert goals.further_metrics == ("latency", "memory")
    assert not goals.is_single


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1.0), ("minimize", -1.0)])
def test_value_is_the_objective_unless_objectives_are_given(direction: str, sign: float) -> None:
    goals = CampaignGoals.of({"objective": {"direction": direction}})
    assert goals.is_single
    assert goals.reward(1.0) == sign
    assert goals.values(3.0, {}) == (3.0,)
    assert goals.further(3.0, {"other": 1.0}) == ()


def test_result_becomes_rewards_and_margins() -> None:
    goals = CampaignGoals.of(SETTINGS)
    metrics = {"latency": 7.0, "memory": 3.0}
    assert goals.values(0.75, metrics) == (0.75, 7.0)
    assert goals.rewards({"accuracy": 0.75, "latency": 7.0, "other": 1.0}) == {"accuracy": 0.75, "latency": -7.0}
    assert goals.rewards({"latency": 7.0}) == {"latency": -7.0}
    assert goals.further(0.75, metrics) == (-7.0, 1.0, 0.25)
    assert goals.is_feasible(0.75, metrics)
    assert not goals.is_feasible(0.25, metrics)
    assert not goals.is_feasible(0.75, {**metrics, "memory": 4.5})
    with pytest.raises(KeyError):
        goals.values(0.75, {"memory": 3.0})


def test_constraint_may_have_two_bounds() -> None:
    between = ConstraintGoal(metric="size", at_most=5.0, at_least=2.0)
    assert [between.margin(value) for value in (1.0, 2.0, 3.0, 5.0, 6.0)] == [-1.0, 0.0, 1.0, 0.0, -1.0]
    assert str(between) == "size at least 2 and at most 5"
    assert str(ObjectiveGoal(metric="loss", is_maximized=False)) == "loss minimized"
