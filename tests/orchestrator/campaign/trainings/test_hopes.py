"""Which unfinished trials may improve the results of several objectives and constraints."""

from bbkb.orchestrator.campaign.front import Front
from bbkb.orchestrator.campaign.goals import CampaignGoals, ConstraintGoal, ObjectiveGoal
from bbkb.orchestrator.campaign.trainings.hopes import Hopes
from bbkb.orchestrator.campaign.trainings.reports import Band, Forecast, forecast_of

PAIR = CampaignGoals(
    (ObjectiveGoal(metric="gain"), ObjectiveGoal(metric="cost", is_maximized=False, reference=10.0)),
    (ConstraintGoal(metric="gb", at_most=4.0),),
)


def front() -> Front:
    results = [(1.0, {"cost": 1.0, "gb": 1.0}), (3.0, {"cost": 5.0, "gb": 1.0}), (9.0, {"cost": 0.0, "gb": 5.0})]
    found = Front()
    for trial, result in enumerate(results):
        found = found.after(PAIR, trial, result, {})
    return found


def forecast(gain: float, cost: float, margin: float = 1.0, half: float = 0.5) -> Forecast:
    bands = [(one, one - half, one + half) for one in (gain, -cost, margin)]
    return forecast_of(0, bands, PAIR)


def test_forecast_is_on_the_users_scale() -> None:
    assert forecast(2.0, 3.0).further == (Band(3.0, 3.5, 2.5), Band(1.0, 0.5, 1.5))


def test_trial_is_hopeless_if_even_its_optimistic_end_is_dominated_or_infeasible() -> None:
    hopes = Hopes(PAIR, 3.0, front())
    assert [hopes.are_lost(one) for one in (forecast(0.4, 2.0), forecast(0.6, 2.0), forecast(0.4, 1.4))] == [
        True,
        False,  # its cost may be 1.5, its gain 1.1
        False,  # its cost may be 0.9
    ]
    assert hopes.are_lost(forecast(20.0, 0.0, margin=-0.6))
    assert not hopes.are_lost(forecast(20.0, 0.0, margin=-0.4))


def test_unknown_objective_can_be_the_best() -> None:
    unknown = forecast_of(0, [(0.0, -1.0, 0.5), (0.0, float("-inf"), float("inf")), (1.0, 0.0, 2.0)], PAIR)
    hopes = Hopes(PAIR, 3.0, front())
    assert hopes.are_left(unknown)
    assert not hopes.are_lost(unknown)


def test_most_promising_trial_is_feasible_and_adds_the_largest_volume() -> None:
    hopes = Hopes(PAIR, 3.0, front())
    least, small, large = forecast(9.0, 1.0, margin=-0.1), forecast(3.2, 5.0), forecast(3.0, 2.0)
    assert sorted([large, least, small], key=hopes.promise) == [least, small, large]


def test_one_objective_is_compared_with_the_best_feasible_value() -> None:
    goals = CampaignGoals((ObjectiveGoal(metric="loss", is_maximized=False),), PAIR.constraints)
    hopes = Hopes(goals, 1.0)
    worse, better, infeasible = (
        forecast_of(0, [(-loss, -loss - 0.5, -loss + 0.5), (margin, margin - 0.5, margin + 0.5)], goals)
        for loss, margin in ((2.0, 1.0), (1.2, 1.0), (0.1, -1.0))
    )
    assert [hopes.are_lost(one) for one in (worse, better, infeasible)] == [True, False, True]
    assert [hopes.are_left(one) for one in (worse, better, infeasible)] == [False, True, False]
