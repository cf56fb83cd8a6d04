"""Learning curves: which values a trial keeps, and the numbers of pairs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.curves import Curves, CurveValues, is_pair, pair_numbers, trials_and_steps
from bbkb.orchestrator.bandit.results import TrialCurve


def curve_of(steps: list[int]) -> TrialCurve:
    curve = TrialCurve(0, 5)
    for step in steps:
        curve = curve.after(step, step / 10)
    return curve


def test_curve_keeps_the_first_value_of_each_octave_and_the_latest_one() -> None:
    assert curve_of(list(range(1, 28))).steps == (1, 2, 4, 8, 16, 27)
    assert curve_of([3, 5, 6, 7]).steps == (3, 5, 7)


@given(st.lists(st.integers(1, 3000), unique=True).map(sorted))
def test_curve_has_one_value_per_octave_and_the_latest(steps: list[int]) -> None:
    curve = curve_of(steps)
    octaves = [step.bit_length() for step in curve.steps[:-1]]
    assert octaves == sorted(set(octaves))
    assert curve.step == max(steps, default=0)


def test_curve_ignores_repeated_steps() -> None:
    curve = curve_of([1, 2, 3])
    assert curve.after(2, 9.0) == curve
    assert curve.after(3, float("nan")) == curve


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_curve_has_diverged_until_its_next_finite_value(reward: float) -> None:
    curve = curve_of([1, 2, 3])
    diverged = curve.after(4, reward)
    assert diverged == replace(curve, has_diverged=True)
    assert diverged.after(4, 0.5) == curve.after(4, 0.5)
    assert diverged.end(0.5) == curve.end(0.5)


def test_trial_that_has_diverged_counts_with_the_smallest_value_until_its_step() -> None:
    good, poor = TrialCurve(0, 5, (1, 2), (0.5, 0.9)), TrialCurve(1, 6, (1, 2, 16), (0.1, 0.2, 0.95))
    diverged = replace(good, has_diverged=True)
    assert Curves().updated([good, poor]).trials == (good, poor)
    assert [trial.rewards for trial in Curves().updated([diverged, poor]).trials] == [(0.5, 0.1), poor.rewards]
    later = TrialCurve(1, 6, (4, 16), (-3.0, 0.95))  # shows nothing of the first two steps
    assert Curves().updated([diverged, later]).trials[0].rewards == (0.5, 0.5)


def test_final_value_replaces_the_latest_one() -> None:
    assert curve_of([1, 2, 3]).end(7.0) == TrialCurve(0, 5, (1, 2, 3), (0.1, 0.2, 7.0), is_finished=True)
    assert TrialCurve(0, 5).end(7.0, 20).steps == (20,)


def test_end_is_the_largest_step_of_a_finished_trial_unless_it_is_given() -> None:
    open_trial, finished = curve_of([1, 2, 30]), TrialCurve(1, 6, (1, 20), (0.0, 1.0), is_finished=True)
    assert Curves().updated([open_trial]).end == 30
    assert Curves().updated([open_trial, finished]).end == 20
    assert Curves().updated([open_trial, finished], 50).end == 50


def test_curves_without_a_value_before_the_end_teach_nothing_about_steps() -> None:
    assert not Curves().is_informative
    assert not Curves(last_step=50).is_informative
    assert not Curves().updated([TrialCurve(1, 6, (20,), (1.0,), is_finished=True)]).is_informative
    assert Curves().updated([TrialCurve(1, 6, (10, 20), (0.0, 1.0), is_finished=True)]).is_informative


def test_older_trials_keep_their_latest_value_only_beyond_a_number_of_values() -> None:
    curves = Curves().updated([TrialCurve(trial, trial, (1, 2, 4), (0.0, 0.5, 1.0)) for trial in range(10)], 8)
    assert curves.within(30) is curves
    thinned = curves.within(9)
    assert [curve.steps for curve in thinned.trials] == [(4,)] * 7 + [(1, 2, 4)] * 3
    assert thinned.end == 8


def test_early_values_are_learned_only_of_ended_trials_or_if_later_ones_are_few() -> None:
    later = [TrialCurve(trial, trial, (2, 5, 8), (0.0, 0.5, 1.0)) for trial in range(2)]
    finished = TrialCurve(2, 2, (1, 3), (0.0, 0.5), is_finished=True)
    diverged = TrialCurve(3, 3, (2,), (0.5,), has_diverged=True)
    paused = TrialCurve(4, 4, (1, 4), (0.0, 0.5))
    curves = Curves().updated([*later, finished, diverged, paused], 16, 5)
    assert {trial: curve.steps for trial, curve in curves.learned.by_trial.items()} == {
        0: (5, 8),
        1: (5, 8),
        2: (3,),
        3: (2,),
    }
    assert curves.learned.end == 16
    assert [curve.steps for curve in curves.updated([], 16).learned.trials][-1] == (1, 4)
    few = Curves().updated([*later, finished, paused], 16, 5)
    assert few.learned is few


def test_numbers_of_pairs_are_unique_and_are_not_arms() -> None:
    trials, steps = np.repeat(np.arange(50), 40), np.tile(np.arange(1.0, 41.0), 50)
    numbers = pair_numbers(trials, steps)
    assert len(np.unique(numbers)) == len(numbers)
    assert is_pair(numbers).all()
    assert not is_pair(np.arange(10**7, 10**7 + 5)).any()
    assert [array.tolist() for array in trials_and_steps(numbers)] == [trials.tolist(), steps.tolist()]


def test_selected_trials_keep_their_values() -> None:
    curves = Curves().updated([curve_of([1, 2]), TrialCurve(4, 6, (3, 9, 20), (0.0, 0.5, 1.0), is_finished=True)])
    values = CurveValues.of(curves, np.array([8]), np.array([0.3]), np.array([2.0]))
    part = values.take(np.array([1, 2]))
    assert part.steps.tolist() == [3.0, 9.0, 20.0, 20.0]
    assert part.rewards.tolist() == [0.0, 0.5, 1.0, 0.3]
    assert part.trials.tolist() == [4, -1]
    assert part.last.tolist() == [2, 3]
