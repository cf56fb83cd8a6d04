"""`bbkb.orchestrator.campaign.goals`: The goals of a campaign: one or several objectives, each a metric
with a direction, and constraints on metrics.
"""

import pytest

from bbkb import Constraint, Objective
from bbkb.orchestrator.annotations import written
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.campaign.goals import CampaignGoals

GOALS = CampaignGoals(
    (Objective("accuracy"), Objective("latency", "minimize", reference=9.0)),
    (Constraint("memory", at_most=4.0), Constraint("accuracy", at_least=0.5)),
)


def test_goals_name_their_metrics_once() -> None:
    assert GOALS.for_strategy == Goals(2, 2)
    assert GOALS.further_metrics == ("latency", "memory")
    assert not GOALS.is_single
    assert CampaignGoals().is_single


@pytest.mark.parametrize(("objective", "sign"), [(Objective("loss", "minimize"), -1.0), (Objective("gain"), 1.0)])
def test_reward_is_the_value_with_the_sign_of_the_direction(objective: Objective, sign: float) -> None:
    goals = CampaignGoals((objective,))
    assert goals.reward(3.0) == 3.0 * sign
    assert goals.values(3.0, {}) == (3.0,)
    assert goals.further(3.0, {"other": 1.0}) == ()


def test_result_becomes_rewards_and_margins() -> None:
    metrics = {"latency": 7.0, "memory": 3.0}
    assert GOALS.values(0.75, metrics) == (0.75, 7.0)
    assert GOALS.rewards({"accuracy": 0.75, "latency": 7.0, "other": 1.0}) == {"accuracy": 0.75, "latency": -7.0}
    assert GOALS.rewards({"latency": 7.0}) == {"latency": -7.0}
    assert GOALS.further(0.75, metrics) == (-7.0, 1.0, 0.25)
    assert GOALS.is_feasible(0.75, metrics)
    assert not GOALS.is_feasible(0.25, metrics)
    assert not GOALS.is_feasible(0.75, {**metrics, "memory": 4.5})
    with pytest.raises(KeyError):
        GOALS.values(0.75, {"memory": 3.0})


def test_constraint_has_one_bound_or_two() -> None:
    between = Constraint("size", at_most=5.0, at_least=2.0)
    assert [between.margin(value) for value in (1.0, 2.0, 3.0, 5.0, 6.0)] == [-1.0, 0.0, 1.0, 0.0, -1.0]
    assert str(between) == "size at least 2 and at most 5"
    assert str(Objective("loss", "minimize")) == "loss minimized"
    for wrong in ({}, {"at_most": 1.0, "at_least": 2.0}):
        with pytest.raises(ValueError, match="at_least"):
            Constraint("size", **wrong)


def test_goals_are_written_as_in_a_campaign_file() -> None:
    assert written(Objective("cost", "minimize")) == {"metric": "cost", "direction": "minimize"}
    assert written(Constraint("risk", at_most=0.5)) == {"metric": "risk", "at_most": 0.5}
    assert written({"metric": "risk"}) == {"metric": "risk"}
