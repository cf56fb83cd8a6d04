"""BBKB with learning curves: when they are learned, and which stopped trials compete."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.ask_tell.checks import named_strategy
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.results import CurveUpdate, TrialCurve, Turn
from bbkb.orchestrator.bandit.sparse.forecasts import UNSEEN_VARIANCE, PausedTrials
from bbkb.orchestrator.bandit.sparse.state import SparseState
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from tests.orchestrator.bandit.decisions import choice
from tests.present import present

LAST, TRIALS = 16, 40
PAUSED = list(range(1, TRIALS, 2))


def strategy() -> BBKB:
    instance: Any = named_strategy("bbkb")
    assert isinstance(instance, BBKB)
    return instance


def curve_of(features: np.ndarray, trial: int, arm: int) -> TrialCurve:
    """Odd trials were stopped at step 4; a curve rises to an end that is best in the middle of the
    space."""
    end, curve = -float(np.sum((features[arm] - 0.5) ** 2)), TrialCurve(trial, arm)
    for step in (1, 2, 4) if trial % 2 else (1, 2, 4, 8, LAST):
        curve = curve.after(step, end - 0.5 / step)
    return curve if trial % 2 else curve.end(curve.rewards[-1])


def begun(bbkb: BBKB, features: np.ndarray, repeats: bool = False) -> SparseState:
    return bbkb.init(Arms.of(features, repeats=repeats), np.random.default_rng(0))


def tell(
    bbkb: BBKB, state: SparseState, curves: Sequence[TrialCurve], paused: Sequence[int], **options: Any
) -> SparseState:
    """The state after these curves and their latest values."""
    observations = [Observation(curve.arm, curve.rewards[-1], is_stopped=not curve.is_finished) for curve in curves]
    told = bbkb.with_curves(state, CurveUpdate(curves, paused, LAST, **options))
    return bbkb.tell(told, observations, np.random.default_rng(0))


def learned(bbkb: BBKB, features: np.ndarray, trials: int, before: SparseState | None = None) -> SparseState:
    """The state that knows the trials up to `trials`."""
    state = begun(bbkb, features) if before is None else before
    first_new = len(state.curve_state.known.by_trial)
    curves = [curve_of(features, trial, trial) for trial in range(first_new, trials)]
    return tell(bbkb, state, curves, range(1, trials, 2))


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(1).random((300, 3))


def test_curves_are_learned_with_the_next_results(features: np.ndarray) -> None:
    bbkb = strategy()
    state = learned(bbkb, features, TRIALS)
    posterior = state.posterior
    curve = TrialCurve(TRIALS, 250, (1, 2), (5.0, 6.0))
    told = bbkb.with_curves(state, CurveUpdate([curve], [], LAST))
    assert told.posterior is posterior
    assert TRIALS not in told.curve_state.known.by_trial
    after = bbkb.tell(told, [Observation(251, 0.1)], np.random.default_rng(0))
    assert after.curve_state.known.by_trial[TRIALS].rewards == (5.0, 6.0)
    assert after.curve_state.unlearned is None


def test_draws_and_fits_do_not_depend_on_earlier_computations(features: np.ndarray) -> None:
    bbkb = strategy()
    states = [learned(bbkb, features, TRIALS) for _ in range(2)]
    assert isinstance(bbkb.ask(states[0], (), 3), Choose)  # the other one has computed nothing
    records = [bbkb.recorded(learned(bbkb, features, TRIALS + 6, state)) for state in states]
    assert records[0] == records[1]


def test_unlearned_values_change_neither_the_model_nor_a_forecast(features: np.ndarray) -> None:
    bbkb, rng, found = strategy(), np.random.default_rng(3), []
    for is_changed in (False, True):
        curves = [curve_of(features, trial, trial) for trial in range(TRIALS)]
        if is_changed:  # the first three values, at steps 1, 2 and 4
            early = [tuple(rng.normal(size=3).tolist()) for _ in curves]
            rewards = [(*values, *curve.rewards[3:]) for curve, values in zip(curves, early, strict=True)]
            curves = [replace(curve, rewards=rewards[curve.trial]) for curve in curves]
        state = tell(bbkb, begun(bbkb, features), curves, PAUSED, learned_from=8)
        record = bbkb.recorded(state)
        forecasts = [(one.trial, one.mean, one.high) for one in bbkb.predict_trials(state, PAUSED)]
        found.append((record["dictionary"], record["model"]["curve"], forecasts))
    assert found[0] == found[1]
    assert [trial for trial, _, _ in found[0][2]] == PAUSED


def test_stopped_trials_compete_in_the_order_of_their_bounds(features: np.ndarray) -> None:
    state = learned(strategy(), features, TRIALS)
    predictions = present(state.paused_predictions)
    spread = np.sqrt(np.maximum(predictions.deviations**2 - predictions.noise, 0.0))
    bounds = predictions.means + 2.0 * spread
    running = [int(predictions.arms[np.argmax(bounds)])]
    competing, taken = PausedTrials(state, running, 2.0), []
    while (best := competing.take(-100.0, 0.0)) is not None:
        taken.append(best.trial)
    expected = [trial for trial in predictions.trials[np.argsort(-bounds)].tolist() if trial not in running]
    assert taken == expected
    assert PausedTrials(state, [], 2.0).take(100.0, 0.0) is None
    forced = replace(state, curve_state=replace(state.curve_state, compete=Turn.PAUSED_FIRST))
    first = present(PausedTrials(forced, running, 2.0).take(100.0, 0.0))
    assert first.trial == expected[0]


def test_paused_trial_that_has_diverged_is_expected_to_end_poorly_and_is_not_continued(features: np.ndarray) -> None:
    bbkb, taken, means = strategy(), [], []
    for has_diverged in (False, True):
        curves = [curve_of(features, trial, trial) for trial in range(TRIALS)]
        best = max(PAUSED, key=lambda trial: curves[trial].rewards[-1])
        if has_diverged:
            curves[best] = curves[best].after(5, math.nan)
        state = tell(bbkb, begun(bbkb, features), curves, PAUSED)
        competing = PausedTrials(state, (), 2.0)
        tops = [competing.take(-100.0, 0.0) for _ in PAUSED]
        taken.append({top.trial for top in tops if top is not None})
        means.append(bbkb.predict_trials(state, [best])[0].mean)
    assert taken[0] - taken[1] == {best}
    assert means[1] < means[0]


def test_forecasts_are_wider_until_a_trial_has_reached_the_last_step(features: np.ndarray) -> None:
    """Trial 0 is at step 4, or has ended; all others were stopped at step 4."""
    bbkb, widths = strategy(), []
    for is_ended in (False, True):
        stopped = [curve_of(features, 2 * trial + 1, trial) for trial in range(1, 12)]
        first = curve_of(features, 0, 0) if is_ended else curve_of(features, 1, 0)
        state = tell(bbkb, begun(bbkb, features), [first, *stopped], [])
        # a result without a curve shows no rise
        state = bbkb.tell(state, [Observation(200, 0.3)], np.random.default_rng(0))
        trials = [curve.trial for curve in stopped]
        predictions = present(state.knowledge.predictions(trials))
        deviations = np.array([trial.deviation for trial in bbkb.predict_trials(state, trials)])
        widths.append(deviations**2 - predictions.deviations**2)
    assert widths[0] == pytest.approx(UNSEEN_VARIANCE / 2)  # log 4 is half of log 16
    assert widths[1] == pytest.approx(0.0)


def test_paused_trials_that_do_not_compete_are_neither_continued_nor_restarted(features: np.ndarray) -> None:
    bbkb = strategy()
    small = features[:TRIALS]
    curves = [curve_of(small, trial, trial) for trial in range(TRIALS)]
    state = tell(bbkb, begun(bbkb, small, repeats=True), curves, PAUSED, compete=Turn.NEW_FIRST)
    decision = choice(bbkb.ask(state, (), 20))
    assert [pick.trial for pick in decision.picks] == [None] * len(decision.picks)
    assert not {pick.arm for pick in decision.picks} & set(PAUSED)
