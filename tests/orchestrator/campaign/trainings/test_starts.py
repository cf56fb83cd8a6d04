"""Tests of orchestrator/campaign/trainings/starts.py and of the decisions that follow from it."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.campaign.learned import LearnedModel
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.stops import lets_stopped_trials_compete, step_limit
from orchestrator.campaign.trainings.rungs import StoppingRule
from orchestrator.campaign.trainings.starts import SHARE_OF_STARTS, first_reliable_pause
from tests.orchestrator.campaign.training_logs import END, paused

PAUSES = (4, 7, 13, 26)
LAST = 51
RULE = StoppingRule.pauses(3, LAST)


@pytest.mark.parametrize(
    ("reliability", "first_pause"),
    [
        ((1.0, 1.0, 1.0, 1.0), 4),
        ((0.2, 0.6, 0.7, 0.9), 7),
        ((0.1, 0.1, 0.2, 0.3), LAST),
    ],
)
def test_trials_pause_first_where_values_predict_the_end(reliability: tuple[float, ...], first_pause: int) -> None:
    assert first_reliable_pause(RULE, LAST, dict(zip(PAUSES, reliability, strict=True))) == first_pause


@pytest.mark.parametrize("rho", [0.6, 0.8, 0.95])
def test_share_of_starts_has_most_of_the_gain_of_the_best_number_of_starts(rho: float) -> None:
    """The oracle is simulated successive halving of independent trials with a budget of 20."""
    budget = 20 * LAST
    correlations = [np.sqrt(1.0 - (1.0 - rho**2) * (1.0 - np.log(p / 4) / np.log(LAST / 4))) for p in PAUSES]
    rng = np.random.default_rng(0)

    def best_found(count: int) -> float:
        values = [rng.standard_normal((500, count))]
        for before, after in zip(correlations, [*correlations[1:], 1.0], strict=True):
            link = before / after
            values.append(link * values[-1] + np.sqrt(1.0 - link**2) * rng.standard_normal((500, count)))
        shares = np.linspace(0.0, 1.0, 200)
        costs = count * (np.diff((0, *PAUSES, LAST)) * shares[:, None] ** np.arange(5)).sum(axis=1)
        share = shares[costs <= budget].max()
        left = np.zeros((500, count), np.bool_)
        for stage, value in enumerate(values[:-1], start=1):
            scores = np.where(left, -np.inf, value)
            kept = max(1, round(count * share**stage))
            left = scores < -np.sort(-scores, axis=1)[:, kept - 1 : kept]
        return float(np.where(left, -np.inf, values[-1]).max(axis=1).mean())

    started = SHARE_OF_STARTS * budget / PAUSES[0]
    none, best = best_found(20), max(best_found(count) for count in (40, 80, 120, 160, 200))
    assert best_found(round(started)) - none > 0.5 * (best - none)


def with_reliability(state: CampaignState, correlation: float, is_balanced: bool = True) -> CampaignState:
    """Return a state whose model was fitted, with trials that used half of the budget."""
    assert state.rules.training is not None
    learned = LearnedModel(
        inside=0,
        predicted=0,
        noise=0.0,
        most_pulled=0,
        most_pulls=0,
        evaluations=4,
        steps=((3, correlation), (5, correlation), (END, 1.0)),
    )
    rule = replace(state.rules.training, balances_starts=is_balanced, has_checkpoints=True)
    return replace(
        state,
        rules=replace(state.rules, training=rule, steps=50 * END, stopping=StoppingRule.pauses(2, END)),
        refresh=replace(state.refresh, learned=learned),
        trainings=replace(state.trainings, steps=replace(state.trainings.steps, ended=25 * END)),
    )


def test_new_trials_come_first_until_they_have_used_their_share() -> None:
    state = paused(0.5, 0.6, 0.7, steps=500)
    assert lets_stopped_trials_compete(state)  # nothing is learned yet
    assert not lets_stopped_trials_compete(with_reliability(state, 0.9))
    assert lets_stopped_trials_compete(with_reliability(state, 0.9, is_balanced=False))  # an older log
    many = replace(state, totals=replace(state.totals, chosen=60))
    assert lets_stopped_trials_compete(with_reliability(many, 0.9))


def test_stopped_trials_without_checkpoints_do_not_compete() -> None:
    assert not lets_stopped_trials_compete(paused(0.5, steps=500, continues="anew"))


@pytest.mark.parametrize(("correlation", "limit"), [(0.9, 3), (0.2, None)])
def test_trial_does_not_pause_where_early_values_say_nothing(correlation: float, limit: int | None) -> None:
    assert step_limit(with_reliability(paused(0.5, steps=500), correlation), 7) == limit
