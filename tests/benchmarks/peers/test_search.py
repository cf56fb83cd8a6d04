"""The harness on a toy table."""

import numpy as np
import pytest

from benchmarks.peers.methods.uniform import Uniform
from benchmarks.peers.problems import Point
from benchmarks.peers.search import MARKS, search
from benchmarks.peers.tables import Recorded
from objectives.parameters import Choice, Ordered
from orchestrator.errors import CampaignError

TOY = Recorded(
    {"size": Ordered((1, 2, 4)), "kind": Choice(("a", "b"))},
    np.array([[i, j] for i in range(3) for j in range(2)]),
    np.array([[0.0, 0.2], [1.0, 1.0], [2.0, np.nan], [3.0, 3.0], [4.0, 4.0], [5.0, 5.0]]),
)


class Scripted:
    """Suggests the points of a list, and at most `limit` that it does not know the result of."""

    def __init__(self, points: list[Point], limit: int = 100, recommended: Point | None = None) -> None:
        self.points, self.limit, self.running, self.recommended = points, limit, 0, recommended
        self.results: list[tuple[int, float | None]] = []

    def ask(self, number: int) -> Point | None:
        if self.running == self.limit:
            return None
        self.running += 1
        return self.points[number]

    def tell(self, number: int, reward: float | None) -> None:
        self.running -= 1
        self.results.append((number, reward))

    def recommend(self) -> Point | None:
        return self.recommended


def points(*levels: tuple[int, str]) -> list[Point]:
    return [{"size": size, "kind": kind} for size, kind in levels]


def test_every_result_is_learned_once_in_the_order_in_which_evaluations_end() -> None:
    method = Scripted(points(*[(1, "a")] * 12))
    record = search(TOY, method, workers=4, evaluations=12, seed=0, names=("toy", "scripted"))
    assert sorted(number for number, _ in method.results) == list(range(12))
    assert (np.diff(record.tell_times()) >= 0).all()
    assert [-1 - entry for entry in record.order if entry < 0] == [number for number, _ in method.results]


def test_no_more_evaluations_run_than_there_are_workers() -> None:
    record = search(TOY, Scripted(points(*[(1, "a")] * 20)), 3, 20, 0, ("toy", "scripted"))
    running = np.cumsum([1 if entry >= 0 else -1 for entry in record.order])
    assert running.max() == 3


def test_all_methods_have_the_same_durations_and_the_same_noise() -> None:
    first = Scripted(points(*[(1, "a")] * 10))
    second = Scripted(points(*[(1, "a")] * 10), limit=2)
    one = search(TOY, first, 5, 10, 3, ("toy", "first"))
    other = search(TOY, second, 5, 10, 3, ("toy", "second"))
    assert one.durations == other.durations
    assert dict(first.results) == dict(second.results)
    assert search(TOY, Scripted(points(*[(1, "a")] * 10)), 5, 10, 4, ("toy", "third")).durations != one.durations


def test_a_method_that_waits_takes_longer() -> None:
    free = search(TOY, Scripted(points(*[(1, "a")] * 10)), 5, 10, 0, ("toy", "free"))
    waiting = search(TOY, Scripted(points(*[(1, "a")] * 10), limit=1), 5, 10, 0, ("toy", "waiting"))
    assert waiting.tell_times()[-1] == pytest.approx(sum(waiting.durations))
    assert free.tell_times()[-1] < waiting.tell_times()[-1]


def test_a_method_that_waits_for_nothing_is_an_error() -> None:
    with pytest.raises(CampaignError, match="stuck on toy waits for results while nothing is running"):
        search(TOY, Scripted([], limit=0), 2, 5, 0, ("toy", "stuck"))


def test_regret_is_in_units_of_best_minus_median() -> None:
    # means 0.1, 1, 2, 3, 4, 5: the median is 2.5
    assert TOY.regrets == pytest.approx([1.96, 1.6, 1.2, 0.8, 0.4, 0.0])


def test_the_recommendation_is_the_largest_mean_unless_the_method_has_its_own() -> None:
    script = points((1, "a"), (2, "b"), (1, "b"))
    record = search(TOY, Scripted(script), 1, 3, 0, ("toy", "scripted"))
    assert record.recommended[-1] == pytest.approx(0.8)
    recommending = search(TOY, Scripted(script, recommended=script[2]), 1, 3, 0, ("toy", "scripted"))
    assert recommending.recommended == pytest.approx([1.6] * MARKS)


def test_recorded_durations_are_used_where_there_are_any() -> None:
    tell_times = Recorded(TOY.space, TOY.levels, TOY.rewards, np.array([0.5, 1.0, 1.0, 1.0, 1.0, 1.5]))
    record = search(tell_times, Scripted(points((1, "a"), (4, "b"))), 1, 2, 0, ("toy", "scripted"))
    assert record.durations == [0.5, 1.5]


def test_random_search_is_reproducible_by_its_seed() -> None:
    one, again, other = (search(TOY, Uniform(TOY, seed), 2, 20, seed, ("toy", "random")) for seed in (1, 1, 2))
    assert one.regrets == again.regrets
    assert one.regrets != other.regrets
