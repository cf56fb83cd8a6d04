"""Learning curves with several objectives and constraints: forecasts, and which trials continue."""

import math
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.ask_tell.strategy import named_strategy
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate, TrialCurve, Turn
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice

LAST = 16
TRIALS = 40
GOALS = Goals(objectives=2, constraints=1)
FEATURES = np.random.default_rng(1).random((300, 3))


def ends(arm: int) -> tuple[float, float, float]:
    """Two objectives in conflict, and a margin that a third of the arms violates."""
    x, y, z = FEATURES[arm]
    return float(-((x - 0.3) ** 2) - 0.2 * z), float(-((x - 0.8) ** 2) - 0.2 * z), float(y - 1 / 3)


def curve_of(trial: int, is_stopped: bool, reported: int) -> TrialCurve:
    """The first objective and `reported` of the two further metrics rise to their ends."""
    curve = TrialCurve(trial, trial)
    for step in (1, 2, 4) if is_stopped else (1, 2, 4, 8, LAST):
        rewards = [end - 0.5 / step if at <= reported else None for at, end in enumerate(ends(trial))]
        curve = curve.after_rewards(step, rewards)
    return curve if is_stopped else curve.end_with(ends(trial))


def tell(bbkb: BBKB, state: SparseState, trials: range, reported: int) -> tuple[SparseState, Any, Any]:
    """Tell trials, two thirds of which were stopped at step 4; return the state before, the
    observations, and the state after them."""
    curves = [curve_of(trial, trial % 3 > 0, reported) for trial in trials]
    paused = [trial for trial in range(trials.stop) if trial % 3]
    observations = [
        Observation(
            curve.arm, curve.rewards[-1], () if curve.arm % 3 else ends(curve.arm)[1:], is_stopped=curve.arm % 3 > 0
        )
        for curve in curves
    ]
    before = bbkb.with_curves(state, CurveUpdate(curves, paused, LAST))
    return before, observations, bbkb.tell(before, observations, np.random.default_rng(0))


def learned(reported: int) -> tuple[BBKB, SparseState, Any, SparseState]:
    bbkb: Any = named_strategy("bbkb")
    state = bbkb.init(Arms.of(FEATURES, repeats=False).with_goals(GOALS), np.random.default_rng(0))
    _, _, state = tell(bbkb, state, range(TRIALS // 2), reported)
    before, observations, after = tell(bbkb, state, range(TRIALS // 2, TRIALS), reported)
    return bbkb, before, observations, after


@pytest.mark.parametrize("reported", [0, 1, 2])
def test_restored_state_is_that_of_tell(reported: int) -> None:
    bbkb, before, observations, after = learned(reported)
    restored = bbkb.restore(before, observations, bbkb.recorded(after))
    assert restored == after
    assert bbkb.ask(restored, [], 3) == bbkb.ask(after, [], 3)


@pytest.mark.parametrize("reported", [0, 1, 2])
def test_forecasts_contain_most_ends(reported: int) -> None:
    bbkb, _, _, state = learned(reported)
    forecasts = bbkb.predict_trials(state, [trial for trial in range(TRIALS) if trial % 3])
    assert len(forecasts) == TRIALS - (TRIALS + 2) // 3
    held = np.array(
        [
            [low <= end <= high for (_, low, high), end in zip(one.bands, ends(one.trial), strict=True)]
            for one in forecasts
        ]
    )
    assert (held.mean(axis=0) >= 0.8).all()


def test_reported_margins_forecast_feasibility_better_than_the_surrogate_does() -> None:
    errors = []
    for reported in (1, 2):
        bbkb, _, _, state = learned(reported)
        forecasts = bbkb.predict_trials(state, [trial for trial in range(TRIALS) if trial % 3])
        errors.append(np.mean([abs(one.bands[2][0] - ends(one.trial)[2]) for one in forecasts]))
    assert errors[1] < errors[0]


def test_stopped_trials_count_with_their_expected_ends() -> None:
    _, _, _, state = learned(2)
    stopped = np.array([trial for trial in range(TRIALS) if trial % 3])
    for output, rewards in zip(state.evidence.outputs, zip(*map(ends, stopped), strict=True), strict=True):
        assert output.counts[stopped].tolist() == [1] * len(stopped)
        errors = output.reward_sums[stopped] - np.array(rewards)
        early = np.full(len(stopped), -0.5 / 4)  # of the latest values
        assert np.sqrt(np.mean(errors**2)) < np.sqrt(np.mean(early**2))
    missing = learned(0)[3].evidence.outputs[1]
    assert not missing.counts[stopped].any()


def test_paused_trial_continues_if_its_score_exceeds_that_of_new_trials() -> None:
    bbkb, _, _, state = learned(2)
    state = bbkb.extend(state, np.empty((0, 3)), range(TRIALS + 4, len(FEATURES)))
    decision = choice(bbkb.ask(state, [], 10))
    continued = [pick.trial for pick in decision.picks if pick.trial is not None]
    assert len(set(continued)) == len(continued) > 0
    assert all(ends(trial)[2] > -0.1 for trial in continued)  # they may be feasible
    paused = state.curve_state.paused.tolist()
    told = bbkb.with_curves(state, CurveUpdate([], paused, LAST, Turn.NEW_FIRST))
    waiting = choice(bbkb.ask(told, [], 10))
    assert all(pick.trial is None for pick in waiting.picks)


def test_output_that_some_pulls_lack_has_the_posterior_of_its_own_pulls() -> None:
    """The oracle is the posterior of all outputs that is fitted to these pulls only."""
    bbkb: Any = named_strategy("bbkb")
    goals = Goals(objectives=2)
    state = bbkb.init(Arms.of(FEATURES, repeats=False).with_goals(goals), np.random.default_rng(0))
    arms = np.arange(30)
    complete = arms[::2]
    rewards = np.array([ends(arm)[:2] for arm in arms.tolist()])
    pulls = Pulls.none(len(FEATURES), 1).add(
        arms, rewards[:, 0], [(one,) if arm % 2 == 0 else () for arm, one in enumerate(rewards[:, 1])],
        stopped=[arm % 2 > 0 for arm in arms.tolist()],
    )  # fmt: skip
    own = Pulls.none(len(FEATURES), 1).add(complete, rewards[::2, 0], rewards[::2, 1:])
    fit = state.model.fit(pulls, arms)
    oracle = state.model.fit(own, arms)
    np.testing.assert_allclose(fit.means[1], oracle.means[1], atol=1e-8)
    assert not math.isclose(fit.means[0][50], oracle.means[0][50], abs_tol=1e-8)


def test_finished_arm_counts_once_however_often_it_was_paused() -> None:
    bbkb, _, _, state = learned(2)
    whole = curve_of(1, is_stopped=False, reported=2)
    paused = [trial for trial in state.curve_state.paused.tolist() if trial != 1]
    before = bbkb.with_curves(state, CurveUpdate([whole], paused, LAST))
    after = bbkb.tell(before, [Observation(1, ends(1)[0], ends(1)[1:])], np.random.default_rng(0))
    assert after.pulls.counts[1] == 2
    for output, reward in zip(after.evidence.outputs, ends(1), strict=True):
        assert (output.counts[1], output.reward_sums[1]) == (1, reward)
