"""`bbkb.orchestrator.campaign.results`: The Pareto front of a campaign: the results that satisfy all
constraints and that no other result dominates.
"""

import pytest

from bbkb.orchestrator.campaign.goals import CampaignGoals, ConstraintGoal, ObjectiveGoal
from bbkb.orchestrator.campaign.results import Front

PAIR = CampaignGoals((ObjectiveGoal(metric="value"), ObjectiveGoal(metric="cost", is_maximized=False)))
LIMITED = CampaignGoals(PAIR.objectives, (ConstraintGoal(metric="cost", at_most=3.0),))


def front_of(goals: CampaignGoals, *results: tuple[float, float]) -> Front:
    front = Front()
    for trial, (value, cost) in enumerate(results):
        front = front.after(goals, trial, (value, {"cost": cost}), {"x": trial})
    return front


def test_front_has_the_results_that_no_other_dominates() -> None:
    front = front_of(PAIR, (1.0, 5.0), (2.0, 5.0), (1.0, 1.0), (0.5, 2.0), (2.0, 5.0))
    assert [member.trial for member in front.members] == [1, 2]  # of equals the first
    assert [member.values for member in front.members] == [(2.0, 5.0), (1.0, 1.0)]
    assert front.members[0].parameters == {"x": 1}
    assert (front.results, front.feasible, front.worst) == (5, 5, (0.5, -5.0))


def test_hypervolume_is_measured_from_the_worst_result_or_the_reference() -> None:
    front = front_of(PAIR, (0.0, 4.0), (2.0, 3.0), (1.0, 1.0))
    assert front.hypervolume(PAIR) == pytest.approx(2 * 1 + 1 * 2)
    objectives = (PAIR.objectives[0], ObjectiveGoal(metric="cost", is_maximized=False, reference=6.0))
    goals = CampaignGoals(objectives)
    assert front.reference(goals) == (0.0, -6.0)
    assert front.hypervolume(goals) == pytest.approx(2 * 3 + 1 * 2)


def test_front_excludes_but_counts_infeasible_results() -> None:
    front = front_of(LIMITED, (9.0, 5.0), (1.0, 2.0), (8.0, 3.5))
    assert [member.trial for member in front.members] == [1]
    assert (front.results, front.feasible) == (3, 1)
    nothing = front_of(LIMITED, (9.0, 5.0))
    assert nothing.hypervolume(LIMITED) is None
    assert nothing.reference(LIMITED) == ()
