"""As long as the best reward is that of most arms, picks cover the space."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation, Pick
from tests.orchestrator.bandit.decisions import choice

CHOOSER = BBKB(**with_preset(BBKB, {}))
POINTS = np.random.default_rng(0).random((300, 3))
NEAR = np.abs(POINTS - 0.5).max(axis=1)


def picks(reward_of: Callable[[int], float], *, repeats: bool = False, **options: Any) -> list[Pick]:
    """Return 40 picks, one at a time."""
    state = CHOOSER.init(Arms.of(POINTS, repeats=repeats, **options), np.random.default_rng(0))
    picked: list[Pick] = []
    for number in range(40):
        picked += choice(CHOOSER.ask(state, [], 1)).picks
        told = [Observation(picked[-1].arm, reward_of(picked[-1].arm))]
        state = CHOOSER.tell(state, told, np.random.default_rng(number))
    return picked


@pytest.mark.parametrize("poor", [0.0, -1.0])
def test_picks_cover_the_space_until_one_arm_is_better(poor: float) -> None:
    """Some arms may even be worse than the plateau."""
    hit = picks(lambda arm: 0.0)[20].arm

    def reward(arm: int) -> float:
        return 1.0 if arm == hit else poor if POINTS[arm, 0] < 0.2 else 0.0

    picked = picks(reward)
    at = [pick.arm for pick in picked].index(hit)
    assert at >= 10
    assert {pick.reason for pick in picked[10 : at + 1]} == {"spread"}
    assert "spread" not in {pick.reason for pick in picked[at + 1 :]}


def test_picks_on_a_plateau_are_not_at_the_edge() -> None:
    edge = np.mean(NEAR > 0.45)  # of all arms
    assert np.mean([NEAR[pick.arm] > 0.45 for pick in picks(lambda arm: 0.0)[10:]]) < edge + 0.15


def test_no_pick_covers_the_space_if_rewards_are_noise_or_the_user_expects_good_arms() -> None:
    rng = np.random.default_rng(1)
    noisy = picks(lambda arm: float(rng.random() < 0.7), repeats=True)
    assert "spread" not in {pick.reason for pick in noisy[24:]}
    expected = picks(lambda arm: 0.0, log_prior=-((POINTS - 0.9) ** 2).sum(axis=1))
    assert "spread" not in {pick.reason for pick in expected}


def test_batch_on_a_plateau_has_the_picks_of_single_asks() -> None:
    state = CHOOSER.init(Arms.of(POINTS, repeats=False), np.random.default_rng(0))
    state = CHOOSER.tell(state, [Observation(arm, 0.0) for arm in range(12)], np.random.default_rng(1))
    together = [pick.arm for pick in choice(CHOOSER.ask(state, [50], 6)).picks]
    pending = [50]
    while len(pending) < 7:
        pending += [pick.arm for pick in choice(CHOOSER.ask(state, pending, 1)).picks]
    assert together == pending[1:]
    assert len(set(pending)) == 7
