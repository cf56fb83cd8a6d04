import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bandit.lazy import EagerQueue, LazyQueue


class FallingScores:
    """Scores that fall by random integers, so that there are many ties."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.scores = self.rng.integers(0, 6, size=count).astype(float)
        self.asked = 0

    def fall(self, picked: int) -> None:
        self.scores -= self.rng.integers(0, 2, size=len(self.scores)) * (self.rng.random(len(self.scores)) < 0.1)
        self.scores[picked] -= 1

    def __call__(self, arms: np.ndarray) -> np.ndarray:
        assert len(set(arms.tolist())) == len(arms)
        self.asked += len(arms)
        return self.scores[arms]


@given(seed=st.integers(0, 10**6), count=st.integers(1, 60), pool=st.integers(1, 8))
def test_both_queues_return_the_lowest_index_of_the_largest_present_score(seed, count, pool) -> None:
    falling = FallingScores(seed, count)
    lazy, eager = LazyQueue(falling.scores, pool), EagerQueue(falling.scores.copy())
    for _ in range(30):
        expected = int(np.argmax(falling.scores))
        assert lazy.top(falling) == expected
        assert eager.top(falling) == expected
        falling.fall(expected)


@pytest.mark.parametrize("queue", [LazyQueue, EagerQueue])
def test_an_arm_with_bound_minus_infinity_never_comes_up(queue) -> None:
    bounds = np.array([1.0, -np.inf, 0.5])
    line = queue(bounds)
    scores = bounds.copy()
    scores[1] = 99.0  # whatever it would score
    for _ in range(5):
        arm = line.top(lambda arms: scores[arms])
        assert arm != 1
        scores[arm] -= 1.0


def test_laziness_scores_few_arms() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    queue, asked = LazyQueue(scores), []

    def score(arms: np.ndarray) -> np.ndarray:
        asked.append(len(arms))
        return scores[arms]

    for _ in range(100):
        scores[queue.top(score)] -= 0.5
    assert sum(asked) < 100 * 50
