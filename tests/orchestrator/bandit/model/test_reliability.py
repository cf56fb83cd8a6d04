"""Tests of orchestrator/bandit/model/reliability.py."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.curves import Curves
from bbkb.orchestrator.bandit.model.reliability import (
    TYPICAL_LINK,
    TYPICAL_TRIALS,
    reliability,
    reliability_and_cautious,
)
from bbkb.orchestrator.bandit.results import TrialCurve

STEPS = (4, 7, 13, 26, 51)


def whole_curves(links: tuple[float, ...], count: int) -> Floats:
    """Return values (count, 5) at STEPS that form a Markov chain with these correlations."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(count)]
    for link in links:
        values.append(link * values[-1] + np.sqrt(1.0 - link**2) * rng.standard_normal(count))
    return np.array(values).T


def seen(values: Floats, share: float, steps: tuple[int, ...] = STEPS) -> Curves:
    """Return the curves of successive halving: this share of the trials at a step continues."""
    reached = np.ones(len(values), np.intp)
    for at in range(1, len(steps)):
        active = np.flatnonzero(reached == at)
        best = active[np.argsort(-values[active, at - 1])][: round(share * len(active))]
        reached[best] += 1
    curves = [
        TrialCurve(trial, trial, steps[:stages], tuple(values[trial, :stages].tolist()), stages == len(steps))
        for trial, stages in enumerate(reached.tolist())
    ]
    return Curves().updated(curves, steps[-1])


def by_step(curves: Curves, is_cautious: bool = False) -> dict[int, float]:
    return {int(step): correlation for step, correlation in reliability_and_cautious(curves)[is_cautious]}


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("links", [(0.95, 0.95, 0.95, 0.95), (0.7, 0.9, 0.9, 0.97)])
def test_reliability_is_the_rank_correlation_of_whole_curves(links: tuple[float, ...], share: float) -> None:
    values = whole_curves(links, 600)
    found = by_step(seen(values, share))
    for at, step in enumerate(STEPS):
        assert found[step] == pytest.approx(
            spearmanr(values[:, at], values[:, -1]).statistic, abs=0.05 if share == 1.0 else 0.18
        )


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_reliability_between_reports_is_that_of_the_last_report(share: float) -> None:
    values = whole_curves((0.7, 0.7, 0.7), 20)
    doubling = by_step(seen(values, share, (2, 4, 8, 16)))
    found = by_step(seen(values, share, (4, 12, 36, 108)))
    assert list(found) == [4, 7, 14, 27, 54, 108]
    assert list(found.values()) == [doubling[step] for step in (2, 2, 4, 4, 8, 16)]


def test_reliability_of_steps_that_no_trial_has_reached_is_that_of_typical_links() -> None:
    curves = [TrialCurve(trial, trial, (4, 16), (0.0, float(trial))) for trial in range(9)]
    found = by_step(Curves().updated(curves, 51))
    assert [found[step] for step in (13, 26)] == pytest.approx([TYPICAL_LINK**2, TYPICAL_LINK], abs=1e-3)


def test_reliability_of_noise_falls_below_that_of_a_pause() -> None:
    values = np.random.default_rng(1).standard_normal((40, len(STEPS)))
    found = by_step(seen(values, 1.0))
    assert all(found[step] < 0.5 for step in STEPS[:-1])


def test_reliability_of_few_trials_is_that_of_typical_links() -> None:
    curves = seen(np.random.default_rng(2).standard_normal((3, len(STEPS))), 1.0)
    typical = [TYPICAL_LINK**links for links in range(len(STEPS) - 1, -1, -1)]
    assert [correlation for _, correlation in reliability(curves)] == pytest.approx(typical, abs=1e-3)


def test_cautious_reliability_is_that_of_links_one_standard_error_smaller() -> None:
    rng = np.random.default_rng(1)
    link = math.tanh(math.atanh(TYPICAL_LINK) - 1.0 / math.sqrt(TYPICAL_TRIALS))
    few = by_step(seen(rng.standard_normal((3, len(STEPS))), 1.0), is_cautious=True)
    typical = [link**links for links in range(len(STEPS) - 1, -1, -1)]
    assert list(few.values()) == pytest.approx(typical, abs=1e-3)
    curves = seen(rng.standard_normal((40, len(STEPS))), 1.0)
    noise = by_step(curves, is_cautious=True)
    assert all(noise[step] < 0.2 for step in STEPS[:-1])


def test_reliability_is_known_for_equal_values_and_ends_before_the_last_step() -> None:
    curves = [TrialCurve(trial, trial, (4, 7), (0.5, 0.5), is_finished=True) for trial in range(9)]
    found = reliability(Curves().updated(curves, 51))
    assert [step for step, _ in found] == list(STEPS)
    assert all(0.0 <= one <= other <= 1.0 for (_, one), (_, other) in itertools.pairwise(found))
