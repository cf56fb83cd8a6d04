"""The search of an optimizer: when it learns, and its log, which can be repeated."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb import CandidateOptimizer
from bbkb.orchestrator.bandit.strategy import is_grown
from tests.orchestrator.ask_tell.searches import model_of, search_of, with_options

X = np.random.default_rng(0).random((120, 2))


def reward(arms: np.ndarray) -> np.ndarray:
    rewards: np.ndarray = np.sin(5 * X[arms, 0]) + X[arms, 1] ** 2
    return rewards


def search(looks: bool = False, **options: Any) -> tuple[list[int], CandidateOptimizer]:
    """Return arms in the order of choice, with four in flight; `looks`: whether to read the model
    after every result."""
    optimizer = with_options(X, seed=2, **options)
    asked: list[int] = []
    running: list[int] = []
    while len(asked) < 90:
        running += optimizer.ask(4 - len(running)).tolist()
        asked.append(running.pop(0))
        optimizer.tell([asked[-1]], reward(np.array([asked[-1]])))
        if looks:
            assert len(optimizer.mean) == len(X)
            assert optimizer.best.value == pytest.approx(reward(np.array(asked)).max(), abs=0.3)
    return asked, optimizer


def test_results_are_learned_in_growing_groups() -> None:
    _, optimizer = search()
    rounds = model_of(optimizer).round
    assert 90 / 3 < rounds < 75
    state = search_of(optimizer).state
    assert len(state.pending) == len(state.finished) + len(optimizer.pending)


def test_refit_share_of_zero_learns_every_result() -> None:
    _, optimizer = search(refresh_growth=0.0)
    optimizer.ask(1)
    assert model_of(optimizer).round == 90


def test_reading_the_model_changes_no_pick() -> None:
    assert search(looks=True)[0] == search()[0]


def test_posterior_shown_contains_every_result() -> None:
    optimizer = CandidateOptimizer(X, seed=1)
    first = optimizer.ask(20)
    optimizer.tell(first, reward(first))
    optimizer.ask(1)
    new_arm = int(np.setdiff1d(np.arange(len(X)), first)[0])
    optimizer.tell([new_arm], [0.5])
    assert search_of(optimizer).state.finished
    assert model_of(optimizer).pulls.total == 20
    assert repr(optimizer) == "<CandidateOptimizer of 120 candidates: 21 rewards, 1 pending>"
    assert np.ptp(optimizer.mean) > 0


@pytest.mark.parametrize(("waiting", "is_due"), [(1, False), (3, False), (4, True)])
def test_refit_is_due_by_the_share_of_known_and_running_pulls(waiting: int, is_due: bool) -> None:
    assert is_grown(0.03, waiting, known=100, running=30) is is_due


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_pending_pulls_are_the_chosen_arms_without_a_result(steps: list[tuple[int, int]]) -> None:
    optimizer = with_options(X, seed=1, warm_start={"name": "random"})
    campaign = search_of(optimizer)
    expected: list[int] = []
    for step, (arm, kind) in enumerate(steps):
        if kind == 0:
            optimizer.mark_pending([arm])
            expected.append(arm)
        elif kind == 1:
            expected += optimizer.ask(2).tolist()
        else:
            optimizer.tell([arm, arm][: kind - 1], [0.1 * step, 1.0][: kind - 1])
            for _ in range(min(kind - 1, expected.count(arm))):
                expected.remove(arm)
        assert campaign.pending == expected
        assert len(campaign.state.pending) == len(campaign.state.finished) + len(expected)
