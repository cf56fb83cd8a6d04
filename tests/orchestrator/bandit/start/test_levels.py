"""Levels of choices: their quotas, and which of them lack evaluations."""

import numpy as np

from orchestrator.bandit.start.levels import EACH, MOST_FAILED, NO_LEVEL, Levels
from tests.orchestrator.bandit.start.conditional_space import ARMS, KINDS, WAYS

LEVELS = Levels.of(ARMS.features, ARMS.layout)


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
