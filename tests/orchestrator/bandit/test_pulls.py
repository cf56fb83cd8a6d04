"""`bandit.pulls`: the number of pulls of each arm, and the sum of its rewards."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import LARGEST_REWARD


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-9, 9))))
def test_counts_and_sums_are_those_of_the_list_of_pulls(rows: list[tuple[int, int]]) -> None:
    pulls = Pulls.none(7).add([arm for arm, _ in rows], [reward for _, reward in rows])
    assert pulls.total == len(rows)
    assert pulls.arms.tolist() == sorted({arm for arm, _ in rows})
    for arm in range(7):
        assert pulls.counts[arm] == sum(a == arm for a, _ in rows)
        assert pulls.reward_sums[arm] == sum(r for a, r in rows if a == arm)


def test_adding_pulls_leaves_the_old_value_unchanged() -> None:
    before = Pulls.none(3)
    after = before.add([1, 1], [0.5, 0.25])
    assert before == Pulls.none(3)
    assert after != before
    assert not after.counts.flags.writeable
    assert not after.reward_sums.flags.writeable
    expected = Pulls.of(np.array([0, 2, 0]), np.array([0, 0.75, 0]))
    finished = replace(expected.finished, squares=np.array([0, 0.03125, 0]))
    assert after == replace(expected, finished=finished, varies=True, repeats=1)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3)), max_size=20), st.integers(0, 20))
def test_squared_deviations_do_not_depend_on_the_grouping_of_pulls(rows: list[tuple[int, float]], cut: int) -> None:
    whole = Pulls.none(4).add([arm for arm, _ in rows], [reward for _, reward in rows])
    parts = Pulls.none(4)
    for part in (rows[:cut], rows[cut:]):
        parts = parts.add([arm for arm, _ in part], [reward for _, reward in part])
    assert parts.finished.squares.tolist() == whole.finished.squares.tolist()
    for arm in range(4):
        rewards = np.array([reward for a, reward in rows if a == arm])
        expected = np.sum((rewards - rewards.mean()) ** 2) if len(rewards) else 0.0
        assert whole.finished.squares[arm] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_appended_arms_have_no_pulls() -> None:
    assert Pulls.none(2).add([1], [0.5]).extend(2) == Pulls.none(4).add([1], [0.5])


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6)), max_size=12), st.integers(0, 12))
def test_rewards_vary_if_an_arm_has_two_different_ones(rows: list[tuple[int, float]], cut: int) -> None:
    pulls = Pulls.none(4)
    for part in (rows[:cut], rows[cut:]):
        pulls = pulls.add([arm for arm, _ in part], [reward for _, reward in part])
    assert pulls.varies == any(len({reward for a, reward in rows if a == arm}) > 1 for arm in range(4))


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.sampled_from([0.1, 0.7]), min_size=4, max_size=4))
def test_equal_rewards_look_deterministic_if_chance_rarely_makes_so_many_equal(
    arms: list[int], rewards: list[float]
) -> None:
    pulls = Pulls.none(4)
    for arm in arms:  # one by one: sums are rounded
        pulls = pulls.add([arm], [rewards[arm]])
    pairs = [rewards[one] == rewards[other] for one, other in combinations(set(arms), 2)]
    chance = (sum(pairs) + 1) / (len(pairs) + 2)
    assert pulls.looks_deterministic == (chance ** (len(arms) - len(set(arms))) <= 0.01)
    assert not pulls.add([0, 0], [1.0, 2.0]).looks_deterministic


def test_one_equal_repeat_is_enough_among_distinct_rewards_and_none_among_equal_ones() -> None:
    for arms, repeats in ((16, 1), (6, 2), (2, 5)):
        pulls = Pulls.none(arms).add(range(arms), np.sin(np.arange(arms)))
        assert not pulls.add([0] * (repeats - 1), [0.0] * (repeats - 1)).looks_deterministic
        assert pulls.add([0] * repeats, [0.0] * repeats).looks_deterministic
    zero_or_one = Pulls.none(50).add(range(50), (np.arange(50) % 5 > 0).astype(np.float64))  # four of five are 1
    assert not zero_or_one.add([1] * 10, [1.0] * 10).looks_deterministic
    assert not Pulls.none(50).add(range(50), np.ones(50)).add([1] * 50, [1.0] * 50).looks_deterministic


def test_rewards_vary_if_those_of_a_further_output_do() -> None:
    pulls = Pulls.none(3, further=1).add([0, 1, 2], [0.5, 0.25, 1.0], [[1.0], [2.0], [3.0]])
    assert not pulls.add([1, 1], [0.25, 0.25], [[2.0], [2.0]]).varies
    assert pulls.add([1], [0.25], [[2.5]]).varies


def test_known_deviation_speaks_against_deterministic_rewards() -> None:
    pulls = Pulls.none(20).add(range(20), np.sin(np.arange(20)))
    for deviation in (0.0, None, 0.1):
        told = pulls.add([3], [np.sin(3.0)], deviations=[deviation])
        assert told.looks_deterministic == (deviation != 0.1)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20), st.integers(0, 20))
def test_repeats_are_evaluations_of_an_arm_pulled_before(rows: list[tuple[int, bool]], cut: int) -> None:
    pulls = Pulls.none(4)
    for part in (rows[:cut], rows[cut:]):
        arms, existing = [arm for arm, _ in part], [is_existing for _, is_existing in part]
        pulls = pulls.add(arms, [0.5 + arm for arm in arms], existing=existing)
    pulled = [arm for arm, _ in rows]
    assert pulls.repeats == sum(arm in pulled[:at] and not is_existing for at, (arm, is_existing) in enumerate(rows))
    assert pulls.looks_deterministic <= (pulls.repeats > 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20), st.integers(0, 20))
def test_pull_stopped_early_does_not_make_an_objective_look_noisy(rows: list[tuple[int, bool]], cut: int) -> None:
    pulls = Pulls.none(5)
    for part in (rows[:cut], rows[cut:]):
        arms, stopped = [arm for arm, _ in part], [is_stopped for _, is_stopped in part]
        pulls = pulls.add(arms, [0.25 if is_stopped else 0.5 for is_stopped in stopped], stopped=stopped)
    assert not pulls.varies
    assert set(np.flatnonzero(pulls.stopped.counts)) == {arm for arm, is_stopped in rows if is_stopped}
    again = pulls.add([4] * 40, [0.75] * 40)
    assert again.looks_deterministic
    assert not again.add([4], [0.5]).looks_deterministic


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9), st.booleans()), max_size=20),
    st.lists(st.integers(0, 20), min_size=2, max_size=2),
)
def test_stopped_pulls_count_with_the_mean_of_those_that_finished_as_soon_as_there_are_some(
    rows: list[tuple[int, int, bool]], cuts: list[int]
) -> None:
    pulls, (first, second) = Pulls.none(5), sorted(cuts)
    for part in (rows[:first], rows[first:second], rows[second:]):
        stopped = [is_stopped for _, _, is_stopped in part]
        pulls = pulls.add([arm for arm, _, _ in part], [reward for _, reward, _ in part], stopped=stopped)
    for arm in range(5):
        finished = [reward for a, reward, is_stopped in rows if a == arm and not is_stopped]
        mean_of = finished or [reward for a, reward, _ in rows if a == arm]
        count = sum(a == arm for a, _, _ in rows)
        assert pulls.counts[arm] == count
        assert pulls.reward_sums[arm] == pytest.approx(count * float(np.mean(mean_of)) if count else 0.0)


def test_mean_of_finished_pulls_times_their_number_is_bounded() -> None:
    stopped = Pulls.none(2).add([1], [0.0], stopped=[True])
    assert stopped.add([1], [1.7e308]).reward_sums[1] == 2 * LARGEST_REWARD


deviations = st.none() | st.sampled_from([0.0, 1e-160, 1e-3, 0.5, 2.0, 1e160])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5), deviations), min_size=1), st.integers(0, 10))
def test_mean_of_an_arm_is_weighted_by_known_precisions(rows: list[tuple[int, int, float | None]], cut: int) -> None:
    arms, rewards, known = zip(*rows, strict=True)
    together = Pulls.none(3).add(arms, rewards, deviations=known)
    parts = Pulls.none(3).add(arms[:cut], rewards[:cut], deviations=known[:cut])
    assert parts.add(arms[cut:], rewards[cut:], deviations=known[cut:]) == together
    if all(deviation is None for deviation in known):
        assert together == Pulls.none(3).add(arms, rewards)
        return
    positive = [min(deviation, 1e150) for deviation in known if deviation is not None and deviation > 1e-150]
    typical = float(np.exp(np.mean(np.log(positive)))) if positive else 0.0
    assert together.variances is not None
    for arm in set(arms):
        pulls = [
            (reward, typical if deviation is None else min(deviation, 1e150))
            for each, reward, deviation in rows
            if each == arm
        ]
        exact = [
            reward for each, reward, deviation in rows if each == arm and deviation is not None and deviation < 1e-150
        ] or [reward for reward, deviation in pulls if deviation == 0.0]
        if exact:
            mean, variance = float(np.mean(exact)), 0.0
        else:
            precisions = [deviation**-2 for _, deviation in pulls]
            mean = float(np.average([reward for reward, _ in pulls], weights=precisions))
            variance = 1.0 / sum(precisions)
        assert together.reward_sums[arm] / together.counts[arm] == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert together.variances[arm] == pytest.approx(variance, rel=1e-9)


def test_arms_without_a_finished_pull_have_the_typical_deviation() -> None:
    pulls = Pulls.none(2).add([0, 1, 1], [1.0, 2.0, 4.0], stopped=[False, True, True], deviations=[0.5, None, None])
    assert pulls.variances is not None
    assert pulls.variances.tolist() == [0.25, 0.125]
    assert (pulls.reward_sums.tolist(), pulls.extend(1).counts.tolist()) == ([1.0, 6.0], [1, 2, 0])
