"""Arms, arrays and pulls: the values that every strategy shares."""

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from bbkb import Optimizer, Range, tune
from bbkb.orchestrator.bandit.arms import Arms, as_arms, feature_extents
from bbkb.orchestrator.bandit.arrays import Recent, blas_threads, first_largest, read_only, same
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import LARGEST_REWARD
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.uniform import ModelFreeState, Uniform
from bbkb.orchestrator.bandit.strategy import Choose, Decision, Observation


def test_feature_is_its_own_parameter_by_default() -> None:
    assert Arms.of(np.random.default_rng(0).random((5, 3))).layout.parameters.tolist() == [0, 1, 2]
    assert Arms.of(np.eye(3), (0, 0, 1)).layout.parameter_count == 2


def test_array_means_arms_that_may_repeat() -> None:
    features = np.random.default_rng(0).random((5, 3))
    assert as_arms(features) == Arms.of(features)
    assert as_arms(features).layout.repeats
    assert as_arms(arms := Arms.of(features, repeats=False)) is arms
    assert arms != Arms.of(features)


def test_extent_is_the_range_of_a_feature_and_the_distance_of_two_choices() -> None:
    choice = np.eye(3)[[0, 1, 2, 0]] / np.sqrt(2)
    features = np.column_stack((np.linspace(0, 50, 4), choice, np.full(4, 7.0)))
    np.testing.assert_allclose(feature_extents(features, np.array([0, 1, 1, 1, 2])), [50.0, 1.0, 1.0])


def test_single_outlier_hardly_changes_an_extent() -> None:
    values = np.append(np.linspace(0, 1, 1000), 1000.0)[:, None]
    assert feature_extents(values, np.array([0]))[0] < 200


@pytest.mark.parametrize(
    ("features", "parameters", "message"),
    [
        (np.zeros((0, 2)), None, "A, d >= 1"),
        (np.array([[0.0], [np.nan]]), None, "row 1 is"),
        (np.zeros((3, 2)), (0,), "one number a feature"),
        (np.zeros((3, 2)), (0, 2), "must be the indices"),
    ],
)
def test_parts_that_do_not_fit_together_are_rejected(features: Any, parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arms.of(features, parameters)


@dataclass(frozen=True, eq=False)
class Value:
    array: Any
    number: float = 0.0


def test_read_only_array_is_a_copy_of_a_writeable_one() -> None:
    owned = np.arange(3.0)
    array = read_only(owned, np.float64)
    owned[0] = 7.0
    assert array.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0


def test_read_only_array_is_not_copied_again() -> None:
    array = read_only([1, 2], np.intp)
    assert read_only(array, np.intp) is array
    assert read_only(array, np.float64).dtype == np.float64


def test_values_are_equal_if_their_types_and_fields_are_equal() -> None:
    assert same(Value(np.arange(3)), Value(np.arange(3)))
    assert not same(Value(np.arange(3)), Value(np.arange(4)))
    assert not same(Value(np.arange(3)), Value(np.arange(3), 1.0))
    assert not same(Value(np.arange(3)), np.arange(3))


def test_read_only_view_of_an_array_that_can_change_is_copied() -> None:
    array = np.zeros(3)
    view = array[:]
    view.flags.writeable = False
    copy = read_only(view, np.float64)
    array[0] = 1.0
    assert copy.tolist() == [0.0, 0.0, 0.0]
    assert read_only(copy[1:], np.float64).base is copy  # no copy of a read-only array
    buffer = np.frombuffer(bytes(16), np.float64)
    assert read_only(buffer, np.float64) is buffer
    assert read_only(np.frombuffer(bytearray(16), np.float64), np.float64).base is None


@given(st.lists(st.integers(0, 5)), st.integers(1, 4))
def test_values_used_last_are_cached_and_others_recomputed(keys: list[int], capacity: int) -> None:
    recent: Recent[int, int] = Recent(capacity)
    used: list[int] = []
    for key in keys:
        made_keys: list[int] = []

        def make(key: int = key, made_keys: list[int] = made_keys) -> int:
            made_keys.append(key)
            return 10 * key

        assert recent.get(key, make) == 10 * key
        assert bool(made_keys) == (key not in list(dict.fromkeys(reversed(used)))[:capacity])
        used.append(key)


def test_removed_value_is_no_longer_cached() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("one", 1)
    assert recent.take("one") == 1
    assert recent.take("one") is None


@given(
    scores=st.lists(st.sampled_from([-np.inf, -3.0, 0.0, 1.0, 1.0 + 1e-9, 250.0]), min_size=1),
    seed=st.integers(0, 99),
)
def test_rounding_of_scores_does_not_change_the_largest(scores: list[float], seed: int) -> None:
    exact = np.array(scores)
    rounded = exact * (1.0 + np.random.default_rng(seed).uniform(-2.0, 2.0, len(exact)) * np.finfo(float).eps / 2.0)
    assert first_largest(rounded) == int(np.argmax(exact))


@pytest.mark.parametrize("name", ["bbkb", "bkb", "gp_ucb", "gp_bucb", "expected_improvement", "compressed_ucb"])
def test_mirrored_arms_are_ties(name: str) -> None:
    """A grid around a single observation: both neighbors of equal distance have equal bounds."""
    arms = np.linspace(-1.0, 1.0, 41)[:, None] * np.sqrt(2.0) / 3.0
    strategy = STRATEGIES[name](kernel=RBF(0.37), **({} if name.startswith("comp") else {"regularization": 0.01}))
    rng = np.random.default_rng(0)
    state = strategy.tell(strategy.init(arms, rng), [Observation(20, 0.3)], rng)
    while not isinstance(decision := strategy.ask(state, (), 1), Choose) or decision.reason in (
        "warm start",
        "initial point",
    ):
        assert isinstance(decision, Choose)
        state = strategy.tell(state, [Observation(decision.picks[0].arm, None)], rng)
    assert decision.picks[0].arm < 20


def test_uncertainty_sampling_takes_the_first_of_mirrored_arms() -> None:
    arms = np.linspace(-1.0, 1.0, 41)[:, None] * np.sqrt(2.0) / 3.0
    strategy = STRATEGIES["bbkb"](kernel=RBF(0.37), regularization=0.01, warm_start=UncertaintyStart(max_pulls=2))
    assert strategy.init(arms, np.random.default_rng(0)).initial == (0, 40)


limit_threads = functools.partial(threadpool_limits, user_api="blas")


def threads_now() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_limit_may_be_entered_again() -> None:
    with limit_threads(2):
        with blas_threads(1):
            with blas_threads(1):
                assert threads_now() == {1}
            assert threads_now() == {1}
        assert threads_now() == {2}


def test_limit_restores_the_threads_after_callers_in_several_threads() -> None:
    def enter_often() -> None:
        for _ in range(50):
            with blas_threads(1):
                inside.add(frozenset(threads_now()))

    inside: set[frozenset[int]] = set()
    program = threads_now()
    in_thread(limit_threads, 2)
    try:
        threads = [threading.Thread(target=enter_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert inside == {frozenset({1})}
        assert threads_now() == {2}
    finally:
        in_thread(limit_threads, max(program))


def in_thread(function: Callable[[int], object], number: int) -> None:
    """Call a function in a thread that ends, because a live thread keeps the right to set limits."""
    thread = threading.Thread(target=function, args=(number,))
    thread.start()
    thread.join()


class Watching(Uniform):
    """Records the threads of BLAS at each choice."""

    def ask(self, state: ModelFreeState, pending: Sequence[int], limit: int) -> Decision:
        seen.append(threads_now())
        return super().ask(state, pending, limit)


seen: list[set[int]] = []


def test_optimizer_chooses_with_one_thread_and_leaves_the_threads_of_the_program() -> None:
    seen.clear()
    optimizer = Optimizer({"a": Range(0.0, 1.0)}, direction="minimize", strategy=Watching())
    with limit_threads(2):
        optimizer.tell(optimizer.ask(1), [1.0])
        assert seen == [{1}]
        assert threads_now() == {2}


def test_campaign_limits_the_threads_of_its_strategy_and_not_those_of_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen.clear()

    def evaluate(a: float) -> float:
        assert threads_now() == {2}
        return a

    with limit_threads(2):
        result = tune(
            evaluate,
            {"a": Range(0.0, 1.0)},
            direction="minimize",
            evaluations=3,
            strategy=Watching(),
            executor="inline",
        )
    assert len(result.trials) == 3
    assert {number for numbers in seen for number in numbers} == {1}


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
