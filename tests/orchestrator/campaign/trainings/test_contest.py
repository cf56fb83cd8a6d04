"""The comparison of trials with several objectives or constraints, against its definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.goals import CampaignGoals, ConstraintGoal, ObjectiveGoal
from bbkb.orchestrator.campaign.rules import Rules
from bbkb.orchestrator.campaign.trainings.contest import Standing, is_among_best
from bbkb.orchestrator.campaign.trainings.rungs import Rungs, StoppingRule

NUMBERS = st.sampled_from([None, -2.0, -1.0, 0.0, 1.0, 2.0])
STANDINGS = st.lists(
    st.builds(Standing, st.tuples(NUMBERS, NUMBERS), st.tuples(NUMBERS)),
    min_size=1,
    max_size=14,
)


def is_better(first: Standing, second: Standing) -> bool:
    """The definition: `first` is certainly better than `second`, whatever the unknown numbers are."""
    first_violates = any(margin is not None and margin < 0 for margin in first.margins)
    second_violates = any(margin is not None and margin < 0 for margin in second.margins)
    if first_violates or second_violates:
        if first_violates and second_violates:
            (mine,), (theirs,) = first.margins, second.margins
            return mine is not None and theirs is not None and mine > theirs
        return second_violates
    pairs = list(zip(first.rewards, second.rewards, strict=True))
    if any(mine is None or theirs is None for mine, theirs in pairs):
        return False
    differences = np.array(first.rewards, float) - np.array(second.rewards, float)
    return bool((differences >= 0).all() and (differences > 0).any())


def fronts(standings: list[Standing]) -> list[int]:
    """The front of each trial: 0, or one more than the last front of those that are better."""
    known: dict[int, int] = {}

    def front(at: int) -> int:
        if at not in known:
            better = [front(other) for other, one in enumerate(standings) if is_better(one, standings[at])]
            known[at] = 1 + max(better, default=-1)
        return known[at]

    return [front(at) for at in range(len(standings))]


@given(STANDINGS, st.integers(1, 8))
def test_contest_counts_the_trials_of_earlier_fronts(standings: list[Standing], survivors: int) -> None:
    ranks = fronts(standings)
    for at, standing in enumerate(standings):
        earlier = sum(rank < ranks[at] for rank in ranks)
        assert is_among_best(standing, standings, survivors) == (earlier < survivors)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.sampled_from([2.0, 3.0]))
def test_rungs_stop_by_one_objective_as_without_constraints(rewards: list[int], reduction: float) -> None:
    rule = StoppingRule.asha(reduction, 1)
    single = Rungs()
    several = Rungs()
    for trial, reward in enumerate(rewards):
        single = single.after(rule, trial, 1, reward)
        several = several.after_goals(rule, trial, 1, Standing((reward,), (None,)))
    for trial in range(len(rewards)):
        assert single.stops(rule, trial) == several.stops(rule, trial)


def test_rungs_do_not_compare_with_results_that_violate_a_constraint() -> None:
    rule = StoppingRule.asha(2.0, 1)
    rungs = Rungs()
    for trial, reward in enumerate([3.0, 2.0, 1.0]):
        rungs = rungs.after_goals(rule, trial, 1, Standing((reward,), (None,)))
    assert rungs.stops(rule, 2)
    for trial in (0, 1):  # they end: the constraint, which they did not report, is violated
        rungs = rungs.without(trial).after_result(trial, Standing((3.0,), (-1.0,)))
    assert not rungs.stops(rule, 2)


def test_goals_list_the_reported_metrics() -> None:
    goals = CampaignGoals(
        (ObjectiveGoal(metric="loss", is_maximized=False), ObjectiveGoal(metric="size")),
        (ConstraintGoal(metric="gb", at_most=4.0), ConstraintGoal(metric="loss", at_most=1.0)),
    )
    assert goals.reported(0.5, {"gb": 3.0}) == (-0.5, None, 1.0, 0.5)
    assert Rules(evaluations=1, goals=goals).sign == -1.0
