"""Picks for coverage: levels of choices that lack evaluations get some, by bound and by variance."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.parameters import Choice, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.state import LEAST_RISE, Peak
from bbkb.orchestrator.bandit.start.coverage import (
    EACH,
    MOST_FAILED,
    NO_LEVEL,
    ON_PLATEAU,
    PLATEAU,
    LevelPicker,
    Levels,
    is_coverage_due,
)
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick
from tests.orchestrator.bandit.sequential_runs import choice
from tests.orchestrator.bandit.start.conditional_space import ARMS, CANDIDATES, KINDS, WAYS

LEVELS = Levels.of(ARMS.features, ARMS.layout)


def strategy(**options: Any) -> BBKB:
    return BBKB(**with_preset(BBKB, options))


def search(chooser: BBKB, count: int, open_pulls: int = 3) -> tuple[Any, list[Pick]]:
    """The state after `count` results with others open, and all picks; the level b fails."""
    state, rng = chooser.init(ARMS, np.random.default_rng(0)), np.random.default_rng(1)
    picks: list[Pick] = []
    for done in range(count):
        while len(picks) < done + open_pulls:
            decision = choice(chooser.ask(state, [pick.arm for pick in picks[done:]], 1))
            picks += decision.picks
        arm = picks[done].arm
        reward = None if KINDS[arm] == "b" else float(KINDS[arm] == "a") + float(CANDIDATES.columns["x"][arm]) / 10
        state = chooser.tell(state, [Observation(arm, reward)], rng)
    return state, picks


def test_coverage_gets_its_share_of_picks_and_half_of_them_on_a_plateau() -> None:
    state = search(strategy(), 20)[0]
    rising = [is_coverage_due(state, open_pulls, 0.25) for open_pulls in range(8)]
    assert sum(rising) == 2
    flat = replace(state, peak=replace(state.peak, results=state.pulls.total - PLATEAU))
    assert sum(is_coverage_due(flat, open_pulls, 0.25) for open_pulls in range(8)) == 8 * ON_PLATEAU
    assert not is_coverage_due(flat, 0, 0.0)


@pytest.mark.parametrize(("rewards", "risen"), [([0.0, 1.0, 1.0 + LEAST_RISE / 4], 2), ([0.0, 1.0, 1.2], 3)])
def test_small_rise_is_a_plateau(rewards: list[float], risen: int) -> None:
    peak, pulls = Peak(), Pulls.none(len(rewards))
    for arm, reward in enumerate(rewards):
        pulls = pulls.add([arm], [reward])
        peak = peak.after(pulls)
    assert peak.results == risen


def test_level_that_can_be_evaluated_gets_its_quota() -> None:
    state, picks = search(strategy(coverage=0.25), 60)
    assert {pick.reason for pick in picks} == {"", "coverage"}
    counts = {kind: int(state.pulls.counts[kind == KINDS].sum()) for kind in "abc"}
    assert min(counts["a"], counts["c"]) >= 2 * EACH
    plain, without = search(strategy(coverage=0.0), 60)
    assert {pick.reason for pick in without} == {""}
    assert int(plain.pulls.counts[KINDS == "c"].sum()) < counts["c"]


@pytest.mark.parametrize("by_bound", [True, False])
def test_pick_has_the_best_bound_or_variance_of_its_level(by_bound: bool) -> None:
    chooser = strategy(coverage=0.25)
    state, picks = search(chooser, 24)
    open_pulls = [pick.arm for pick in picks[24:]]
    arms = np.flatnonzero((KINDS == "c") & (state.pulls.counts == 0))
    width = chooser.width_at(state)
    best = LevelPicker(state, width).best_arm(arms, open_pulls, by_bound=by_bound)
    pairs = [np.array([best, arm]) for arm in arms if arm != best]
    assert {LevelPicker(state, width).best_arm(pair, open_pulls, by_bound=by_bound) for pair in pairs} == {best}


def test_picker_updated_with_open_pulls_picks_like_a_new_one() -> None:
    chooser = strategy(coverage=0.25)
    state, picks = search(chooser, 24)
    open_pulls, width = [pick.arm for pick in picks[24:]], chooser.width_at(state)
    follower = LevelPicker(state, width)
    for number in range(30):
        arm = follower.lacking_arm(open_pulls)
        assert arm == LevelPicker(state, width).lacking_arm(open_pulls)
        open_pulls += [number % 7, number % 7] if arm is None else [arm, number]


def test_spaces_without_choices_have_the_same_picks() -> None:
    features = np.random.default_rng(3).random((200, 3))

    def picked(chooser: BBKB) -> list[int]:
        state, rng, arms = chooser.init(Arms.of(features), np.random.default_rng(0)), np.random.default_rng(1), []
        for _ in range(40):
            decision = choice(chooser.ask(state, [], 1))
            arms.append(decision.picks[0].arm)
            state = chooser.tell(state, [Observation(arms[-1], float(features[arms[-1]].sum()))], rng)
        return arms

    assert picked(strategy(coverage=0.25)) == picked(strategy(coverage=0.0))


def test_choice_for_coverage_alone_promises_the_gain_of_the_model() -> None:
    """Otherwise, the patience of `expected_gain_below` would restart at each such choice."""
    chooser, coverage_picks = strategy(), 0
    for count in range(20, 44, 4):
        state, _ = search(chooser, count)
        for open_arms in ([], [int(state.available[7])], state.available[:6].tolist()):
            decision, plain = chooser.ask(state, open_arms, 1), strategy(coverage=0.0).ask(state, open_arms, 1)
            assert isinstance(decision, Choose)
            assert isinstance(plain, Choose)
            assert decision.prospect is not None
            assert plain.prospect is not None
            assert decision.prospect.gain == pytest.approx(plain.prospect.gain, abs=1e-6)
            coverage_picks += decision.picks[0].reason == "coverage"
    assert coverage_picks


def results_until_the_edge(seed: int, most: int) -> int:
    """Return the number of results before a search evaluates the best region, at most `most`.

    The best region is level b with x above 0.9. Elsewhere, values fall with x, and those of level b
    are lower.
    """
    space: Space = {
        "kind": Choice(("a", "b")),
        "x": Range(0.0, 1.0),
        "y": Range(0.0, 1.0),
        "b_z": Range(0.0, 1.0, when={"kind": "b"}),
    }
    candidates = make_candidates(space, 400, "sobol", seed)
    arms = Arms.of(candidates.features, candidates.parameter_of, repeats=False, is_sequence=True)
    is_b = candidates.columns["kind"] == "b"
    x, y = (candidates.columns[name].astype(float) for name in "xy")
    is_best = is_b & (x > 0.9)
    rewards = np.where(is_best, 2.0, -x - (y - 0.5) ** 2 - 0.5 * is_b)
    chooser = strategy()
    state, rng = chooser.init(arms, np.random.default_rng(seed)), np.random.default_rng(1)
    for count in range(most):
        arm = choice(chooser.ask(state, [], 1)).picks[0].arm
        if is_best[arm]:
            return count
        state = chooser.tell(state, [Observation(arm, float(rewards[arm]))], rng)
    return most


@pytest.mark.parametrize("seed", [1, 3, 6, 8])
def test_coverage_finds_the_good_edge_of_a_poor_level(seed: int) -> None:
    """With picks by bound only, these searches need 27 results, more than 60, 27 and 31."""
    assert results_until_the_edge(seed, most=25) < 25


def test_levels_are_those_of_the_choices_and_none_for_an_absent_choice() -> None:
    assert KINDS.tolist() == [("a", "b", "c")[level] for level in LEVELS.of_arms[:, 0]]
    expected = [NO_LEVEL if way is None else ("up", "down").index(way) for way in WAYS]
    assert LEVELS.of_arms[:, 1].tolist() == expected


def test_quota_grows_with_the_numbers_that_exist_in_the_level() -> None:
    assert LEVELS.quotas[0].tolist() == [2 * EACH, 3 * EACH, 2 * EACH]
    assert LEVELS.quotas[1].tolist() == [3 * EACH, 3 * EACH]


def test_level_that_lacks_the_largest_share_of_its_quota_is_next() -> None:
    arms, nothing = np.arange(len(KINDS)), np.empty(0, np.intp)
    by_kind = {kind: np.flatnonzero(kind == KINDS) for kind in "abc"}
    pulled = np.concatenate((by_kind["a"][:4], by_kind["b"][: 6 * EACH], by_kind["c"][:2]))
    lacking, count = LEVELS.lacking(pulled, nothing, np.setdiff1d(arms, pulled))
    assert (set(KINDS[lacking].tolist()), count) == ({"c"}, 2)
    assert not np.isin(lacking, pulled).any()
    enough = np.concatenate([by_kind[kind][: 12 * EACH] for kind in "abc"])
    assert not len(LEVELS.lacking(enough, nothing, np.setdiff1d(arms, enough))[0])


def test_level_in_which_everything_failed_needs_no_more_nor_do_choices_within_it() -> None:
    failing = np.flatnonzero(KINDS == "b")[:MOST_FAILED]
    others = np.concatenate([np.flatnonzero(kind == KINDS)[: 2 * EACH] for kind in "ac"])
    pulled = np.concatenate((failing, others))
    eligible = np.setdiff1d(np.arange(len(KINDS)), pulled)
    assert not len(LEVELS.lacking(pulled, failing, eligible)[0])
    assert set(KINDS[LEVELS.lacking(pulled, failing[1:], eligible)[0]].tolist()) == {"b"}
