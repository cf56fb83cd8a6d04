"""`orchestrator.bandit.papers.igp_ucb.farthest_first`: an order of the arms whose every prefix
covers them well."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from orchestrator.bandit.papers.igp_ucb import farthest_first


@given(seed=st.integers(0, 10**6))
def test_prefix_continues_with_the_arm_farthest_from_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.integers(5, size=(30, 2)) / 4.0  # ties and duplicates
    order = farthest_first(arms, 30)
    assert sorted(order) == list(range(30))
    distances = cdist(arms, arms)
    for size in range(1, 30):
        gap = distances[order[:size]].min(axis=0)
        gap[order[:size]] = -1.0
        assert order[size] == np.argmax(gap), "the lowest index among equals"


def test_prefixes_of_a_regular_grid_are_coarser_grids() -> None:
    side = np.linspace(0, 1, 17)
    arms = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    order = farthest_first(arms, len(arms))
    for coarse in (2, 3, 5, 9):
        corners = np.linspace(0, 1, coarse)
        expected = np.stack(np.meshgrid(corners, corners), axis=-1).reshape(-1, 2)
        assert {tuple(arm) for arm in arms[order[: coarse**2]]} == {tuple(point) for point in expected}


@pytest.mark.parametrize("count", [1, 4, 12, 99])
def test_beyond_the_count_arms_follow_by_index(count: int) -> None:
    arms = np.random.default_rng(0).random((12, 2))
    order, whole = farthest_first(arms, count), farthest_first(arms, 12)
    assert order[:count].tolist() == whole[:count].tolist()
    assert order[count:].tolist() == sorted(whole[count:])
    assert not order.flags.writeable
