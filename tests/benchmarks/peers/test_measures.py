"""Measures against values worked out by hand."""

import math

import numpy as np
import pytest

from benchmarks.peers import measures
from benchmarks.peers.search import MARKS, Record


def record(
    method: str = "m",
    problem: str = "p",
    seed: int = 0,
    order: tuple[int, ...] = (0, 1, -1, 2, -2, -3),
    regrets: tuple[float, ...] = (1.0, 0.5, 20.0),
    recommended: float = 0.25,
) -> Record:
    """Two workers; durations 1, 2, 3; every ask costs 1 s, every tell 2 s."""
    return Record(
        problem=problem,
        method=method,
        workers=2,
        evaluations=3,
        seed=seed,
        order=order,
        regrets=regrets,
        durations=(1.0, 2.0, 3.0),
        ask_seconds=(1.0, 1.0, 1.0),
        tell_seconds=(2.0, 2.0, 2.0),
        recommended=[1.0] * (MARKS // 2) + [recommended] * (MARKS - MARKS // 2),
    )


def test_results_come_when_their_workers_are_done_when_suggesting_takes_no_time() -> None:
    assert record().tell_times() == pytest.approx([1.0, 2.0, 4.0])


def test_counted_suggestions_delay_what_comes_after_them() -> None:
    # evaluations of 10 s: ask 0.1, tell 0.2. Evaluation 0 runs 0.1 to 1.1; 1 from 0.2 to 2.2; 0's
    # tell begins at 1.1 until 1.3, the third is asked for until 1.4 and ends at 4.4
    assert record().tell_times(seconds=10.0) == pytest.approx([1.1, 2.2, 4.4])


def test_a_slow_method_is_the_bottleneck_when_its_time_counts() -> None:
    # evaluations of 1 s: ask 1, tell 2. Evaluation 0 ends at 2, when both are asked for, and its
    # tell ends at 4; the third starts at 5; 1 ended at 4 but its tell runs from 5 to 7; the third
    # ended at 8
    assert record().tell_times(seconds=1.0) == pytest.approx([2.0, 5.0, 8.0])


def test_the_regret_at_a_share_is_that_of_the_recommendation_then() -> None:
    assert [measures.regret_at_share(record(), share) for share in (0.25, 0.5, 1.0)] == [1.0, 1.0, 0.25]


def test_the_regret_at_a_time_is_that_of_the_last_recommendation_before_it() -> None:
    # T / W = 1.5 mean evaluations: one result of three is in by then
    assert measures.regret_at_time(record(), 1.0, None) == 1.0
    assert measures.regret_at_time(record(), 4.0 / 1.5, None) == 0.25


def test_one_diverged_evaluation_counts_at_most_the_cut() -> None:
    assert measures.mean_regret(record()) == pytest.approx((1.0 + 0.5 + measures.WORST) / 3)


def test_milliseconds_are_of_asking_and_telling() -> None:
    assert measures.milliseconds(record()) == pytest.approx(3000.0)


def test_logarithms_are_cut_where_the_regret_is_nought() -> None:
    assert measures.log10(0.0) == math.log10(measures.SMALLEST)


def test_only_searches_that_all_methods_finished_are_compared() -> None:
    one, other = record(seed=0), record(seed=1)
    assert measures.common({"a": {("p", 0): one, ("p", 1): other}, "b": {("p", 1): other}}) == [("p", 1)]


def test_ranks_are_shared_by_equals() -> None:
    records = {name: {("p", 0): record(recommended=value)} for name, value in {"a": 0.1, "b": 0.2, "c": 0.2}.items()}
    ranked = measures.ranks(records, [("p", 0)], lambda run: measures.regret_at_share(run, 1.0))
    assert {name: run.mean for name, run in ranked.items()} == {"a": 1.0, "b": 2.5, "c": 2.5}


def test_differences_are_paired_search_by_search() -> None:
    keys = [("p", 0), ("p", 1), ("q", 0)]
    theirs = {key: record(recommended=value) for key, value in zip(keys, (0.5, 0.9, 0.1), strict=True)}
    ours = {key: record(recommended=value - 0.05) for key, value in zip(keys, (0.5, 0.9, 0.1), strict=True)}
    difference = measures.difference(ours, theirs, keys, lambda run: measures.regret_at_share(run, 1.0))
    assert (difference.mean, difference.low, difference.high) == pytest.approx((-0.05, -0.05, -0.05))


def test_the_interval_holds_the_mean_and_is_wider_when_problems_differ() -> None:
    keys = [(problem, seed) for problem in "pqrs" for seed in range(5)]
    alike = measures.estimate(np.tile([0.0, 1.0, 2.0, 3.0, 4.0], 4), keys)
    apart = measures.estimate(np.repeat([0.0, 1.0, 3.0, 4.0], 5), keys)
    assert alike.low < alike.mean < alike.high
    assert apart.high - apart.low > alike.high - alike.low
