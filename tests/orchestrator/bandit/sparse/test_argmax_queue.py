"""`bbkb.orchestrator.bandit.sparse.argmax_queue`: The argmax of scores that never increase, found by
evaluating few of them (lazy greedy, Minoux 1978).
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.sparse import argmax_queue
from bbkb.orchestrator.bandit.sparse.argmax_queue import LazyQueue, RemainingInArray
from tests.orchestrator.bandit.eager import EagerQueue

NONE = np.empty(0, np.intp)


class Falling:
    """Evaluated arms, with the scores of `every` arm; tightened bounds are too large by `slack`."""

    tie, stale = 0.0, NONE

    def __init__(self, every: np.ndarray, slack: np.ndarray | float = 0.0, most: int = 10**6) -> None:
        self.every, self.slack, self.most = every, np.broadcast_to(slack, every.shape), most
        self.arms, self.tightened, self.posterior = NONE, 0, self

    def scores(self) -> np.ndarray:
        return self.every[self.arms]

    def refresh(self, positions: np.ndarray) -> None:
        raise AssertionError("no score is stale")

    def enter(self, arms: np.ndarray) -> None:
        self.arms = np.sort(np.concatenate((self.arms, arms)))
        assert len(np.unique(self.arms)) == len(self.arms)  # distinct, and not evaluated before

    def leave(self, positions: np.ndarray) -> np.ndarray:
        self.arms = np.delete(self.arms, positions)
        return positions

    def tighten(self, arms: np.ndarray) -> np.ndarray:
        assert not np.isin(arms, self.arms).any()
        self.tightened += len(arms)
        result: np.ndarray = self.every[arms] + self.slack[arms]
        return result


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 60),
    near=st.integers(1, 12),
    look=st.integers(1, 8),
    most=st.sampled_from([1, 5, 20, 100]),
)  # groups so small that arms come from all three, and go back
def test_queues_return_the_lowest_index_of_the_largest_present_score(
    seed: int, count: int, near: int, look: int, most: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, size=count).astype(float)  # many ties
    bounds = scores + rng.integers(0, 4, size=count)
    blocked = np.flatnonzero(rng.random(count) < 0.2)[: count - 1]
    bounds[blocked] = -np.inf
    pending = rng.permutation(count)[: rng.integers(0, 4)]  # evaluated before, blocked or not
    slack = rng.integers(0, 3, size=count).astype(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argmax_queue, "FIRST_NEAR", near)
        patch.setattr(argmax_queue, "FIRST_LOOK", look)
        queues = []
        for kind in (LazyQueue, EagerQueue):
            scored = Falling(scores, slack, most)
            scored.enter(pending)
            queues.append(kind(RemainingInArray(bounds.astype(np.float64)), scored, blocked))
        for _ in range(30):
            present = scores.copy()
            present[blocked] = -np.inf
            expected = int(np.argmax(present))
            assert [queue.top() for queue in queues] == [expected, expected]
            scores -= rng.integers(0, 2, size=count) * (rng.random(count) < 0.1)
            scores[expected] -= 1


@pytest.mark.parametrize("queue", [LazyQueue, EagerQueue])
@pytest.mark.parametrize("is_looked_at", [False, True])
def test_arm_with_bound_minus_infinity_is_never_returned(
    queue: type[LazyQueue | EagerQueue], is_looked_at: bool
) -> None:
    scored = Falling(np.array([1.0, 99.0, 0.5]))  # its score does not matter
    if is_looked_at:
        scored.enter(np.array([1]))
    line = queue(RemainingInArray(np.array([1.0, -np.inf, 0.5])), scored, np.array([1]))
    for _ in range(5):
        arm = line.top()
        assert arm != 1
        scored.every[arm] -= 1.0


@pytest.mark.parametrize("tight", [False, True])
def test_lazy_queue_evaluates_few_arms(tight: bool) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    # bounds without information, tightened on request; or tight ones
    bounds = np.full(20_000, 9.0) if tight else scores.copy()
    scored = Falling(scores)
    queue = LazyQueue(RemainingInArray(bounds), scored)
    for _ in range(100):
        arm = queue.top()
        assert scores[arm] == scores.max()
        scores[arm] -= 0.5
    assert len(scored.arms) < 1000
    assert (scored.tightened == 20_000) == tight  # each once, and only those that reach the top


def test_queue_evaluates_no_more_arms_than_wanted_except_ties() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(3000)
    scored = Falling(scores, most=64)
    queue, scored_arms, many = LazyQueue(RemainingInArray(scores.copy()), scored), set[int](), 0
    for _ in range(1500):
        arm = queue.top()
        assert scores[arm] == scores.max()
        scores[arm] -= 1.0
        scored_arms |= set(scored.arms.tolist())
        many = max(many, len(scored.arms))
    assert many <= 64 < len(scored_arms)
    scores[:] = 0.0
    equal = Falling(scores, most=64)
    assert LazyQueue(RemainingInArray(scores.copy()), equal).top() == 0
    assert len(equal.arms) == 3000  # the lowest index must be among them


@given(seed=st.integers(0, 10**6), least=st.integers(1, 30))
def test_queue_takes_each_arm_once_and_all_that_reach_the_best(seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    bounds = rng.integers(0, 9, size=rng.integers(1, 60)).astype(float)
    bounds[rng.random(len(bounds)) < 0.2] = -np.inf
    remaining, untaken = RemainingInArray(bounds.astype(np.float64)), bounds.copy()
    while remaining.top > -np.inf:
        best = float(rng.choice([remaining.top, remaining.top - 2, -np.inf]))
        arms, values = remaining.take(best, least)
        top = remaining.top
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, untaken[arms])  # none of them was taken before
        untaken[arms] = -np.inf
        assert top == untaken.max()
        assert top < best or best == -np.inf
        assert len(arms) >= 1
        assert values.min() >= top
