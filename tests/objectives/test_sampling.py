"""`bbkb.objectives.sampling`: a pool of arms grows around the best ones."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import Choice, Ordered, Range
from bbkb.objectives.sampling import grow, join, make_candidates
from bbkb.objectives.space import SearchSpace
from tests.examples import examples
from tests.objectives.random_spaces import discrete, is_valid, spaces


def grow_some(*arguments: Any) -> Candidates:
    """Return the result of `grow`, which must not be None."""
    grown = grow(*arguments)
    assert grown is not None
    return grown


def first_pool(space: SearchSpace, seed: int = 0, size: int = 40) -> Candidates | None:
    try:
        return make_candidates(space, size, "random", seed)
    except ObjectiveError:
        return None  # nearly everything is forbidden, or nothing varies


def lengthscales_of(candidates: Candidates, value: float = 0.5) -> list[float]:
    return [value] * (int(candidates.parameter_of.max()) + 1)


@settings(max_examples=examples(80), deadline=None)
@given(spaces() | spaces(kinds=discrete), st.integers(0, 1000), st.floats(0.02, 30))
def test_growth_gives_valid_new_arms_without_duplicates(space: SearchSpace, seed: int, lengthscale: float) -> None:
    pool = first_pool(space, seed)
    assume(pool is not None)
    assert pool is not None
    rng = np.random.default_rng(seed)
    for _ in range(2):
        around = rng.integers(len(pool), size=5).tolist()
        grown = grow(space, pool, around, lengthscales_of(pool, lengthscale), 64, rng)
        if grown is None:
            continue
        assert 1 <= len(grown) <= 64
        for arm in range(len(grown)):
            assert is_valid(space, grown.parameters(arm)), grown.parameters(arm)
        larger = join(space, pool, grown)
        assert len(np.unique(larger.features, axis=0)) == len(larger) == len(pool) + len(grown)
        for arm in range(len(pool)):
            assert larger.parameters(arm) == pool.parameters(arm)
        pool = larger


@settings(max_examples=examples(60), deadline=None)
@given(spaces(), st.integers(0, 1000))
def test_appended_arms_are_rebuilt_bit_for_bit_from_json(space: SearchSpace, seed: int) -> None:
    pool = first_pool(space, seed)
    assume(pool is not None)
    assert pool is not None
    grown = grow(space, pool, [0], lengthscales_of(pool), 32, np.random.default_rng(seed))
    assume(grown is not None)
    assert grown is not None
    written = json.loads(json.dumps({name: column.tolist() for name, column in grown.columns.items()}))
    again = space.rebuild(written)
    np.testing.assert_array_equal(again.features, grown.features)
    assert [again.parameters(arm) for arm in range(len(again))] == [grown.parameters(arm) for arm in range(len(grown))]


def test_short_lengthscales_keep_real_steps_short() -> None:
    space = SearchSpace({"x": Range(0, 1), "y": Range(0, 1)})
    pool = make_candidates({"x": Range(0, 1), "y": Range(0, 1)}, 16)
    grown = grow_some(space, pool, [4], [0.02, 1.0], 400, np.random.default_rng(0))
    stepped = grown.features[:200]  # the first half are Gaussian steps
    distance = np.abs(stepped - pool.features[4])
    assert distance[:, 0].max() < 0.05
    assert distance[:, 1].max() > 0.5
    assert 0.001 < np.median(distance[:, 1]) < 0.2


def test_growth_on_a_grid_moves_one_or_two_parameters() -> None:
    names = "abcdef"
    space = SearchSpace({name: Ordered(tuple(range(10))) for name in names})
    pool = make_candidates(space, 50, "random")
    grown = grow_some(space, pool, [7], [0.02] * 6, 200, np.random.default_rng(1))
    parent = pool.parameters(7)
    for arm in range(min(40, len(grown))):
        moved = [name for name in names if grown.parameters(arm)[name] != parent[name]]
        assert len(moved) in (1, 2), "the first half are steps"


def test_growth_can_draw_every_value_of_a_choice() -> None:
    space = SearchSpace({"m": Choice(tuple("abcde")), "x": Range(0, 1)})
    pool = make_candidates(space, 8)
    grown = grow_some(space, pool, [0], [0.5, 0.5], 300, np.random.default_rng(2))
    assert set(grown.columns["m"]) == set("abcde")


def test_exhausted_space_gives_no_new_arms() -> None:
    space = SearchSpace({"m": Choice(("a", "b")), "n": Range(1, 3, integer=True)})
    assert grow(space, make_candidates(space), [0, 1], [0.5, 0.5], 100, np.random.default_rng(0)) is None


@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_narrow_forbidden_space_still_grows(weight: float) -> None:
    space = SearchSpace({"x": Range(0, 1), "y": Range(0, weight)}, ({"x": {"above": 0.05}},))
    pool = make_candidates(space, 20)
    grown = grow_some(space, pool, [0, 1, 2], [1.0, 1.0], 64, np.random.default_rng(0))
    assert len(grown) > 32
    assert (grown.columns["x"].astype(float) <= 0.05).all()
