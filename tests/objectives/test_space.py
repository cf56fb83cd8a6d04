"""A search space becomes the finite set of arms of a bandit, which grows around the best ones; priors on values."""

import enum
import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bbkb.objectives import coding, sampling
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import (
    Choice,
    Clause,
    Constant,
    Ordered,
    Parameter,
    Range,
    Sampler,
    Scalar,
    Space,
    as_given,
    as_levels,
    index_of,
)
from bbkb.objectives.sampling import grow, join, make_candidates
from bbkb.objectives.space import SearchSpace, enumerate_space
from bbkb.orchestrator.campaign.settings import plain_space
from tests.examples import examples
from tests.objectives import random_spaces
from tests.objectives.random_spaces import discrete, is_valid, spaces
from tests.orchestrator.events import settings_from
from tests.present import present

levels = st.lists(st.integers(-5, 5) | st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5, unique=True)
ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)
nested = st.recursive(
    st.none() | st.booleans() | st.integers(2, 5) | st.sampled_from(["a", "[1]", "tuple"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner)
    ),
    max_leaves=8,
)
SAMPLERS = st.sampled_from(["sobol", "random", "grid"])


@given(st.dictionaries(st.sampled_from("abc"), st.builds(Choice, levels) | st.builds(Ordered, levels)), SAMPLERS)
def test_finite_space_is_enumerated_completely(space: Mapping[str, Choice | Ordered], sampler: Sampler) -> None:
    whole: dict[str, Parameter] = {**space, "n": Range(1, 9, integer=True, log=True)}
    candidates = make_candidates(whole, None, sampler)
    values = [list(space[name].levels) if name in space else range(1, 10) for name in candidates.columns]
    expected = set(itertools.product(*(map(repr, levels) for levels in values)))
    configurations = [tuple(map(repr, candidates.parameters(arm).values())) for arm in range(len(candidates))]
    assert set(configurations) == expected
    assert len(configurations) == len(expected)
    assert len(make_candidates(whole, len(expected), sampler)) == len(expected)


@settings(max_examples=examples(30))
@given(random_spaces.reals | random_spaces.integers)
def test_range_maps_its_value_on_its_own_scale(parameter: Range) -> None:
    candidates = make_candidates({"x": parameter}, 50, "random")
    values = candidates.columns["x"].astype(float)
    scale = np.log if parameter.log else lambda x: x
    low, high = scale(parameter.low), scale(parameter.high)
    # the subtraction loses as many digits as low and width differ in size
    np.testing.assert_allclose(candidates.features[:, 0], (scale(values) - low) / (high - low), atol=1e-6)


def test_choices_are_at_distance_one_and_ordinals_equally_spaced() -> None:
    candidates = make_candidates({"c": Choice(("a", "b", "c")), "o": Ordered((1, 10, 1000))})
    for i, j in itertools.combinations(range(len(candidates)), 2):
        a, b = candidates.parameters(i), candidates.parameters(j)
        steps = abs([1, 10, 1000].index(a["o"]) - [1, 10, 1000].index(b["o"]))
        squared = float(((candidates.features[i] - candidates.features[j]) ** 2).sum())
        assert squared == pytest.approx((a["c"] != b["c"]) + (steps / 2) ** 2)


def test_constant_is_a_parameter_but_not_a_feature_and_need_not_be_given() -> None:
    space: Space = {"x": Range(0, 1), "c": Constant("adam"), "one": Choice((True,))}
    given = {"x": 0.5, "c": "adam", "one": True}
    assert np.array_equal(SearchSpace(space).code_of({"x": 0.5}), SearchSpace(space).code_of(given))
    candidates = make_candidates(space, 4)
    assert candidates.features.shape == (4, 1)
    assert candidates.parameters(0) | {"x": 0} == {"x": 0, "c": "adam", "one": True}


def test_equal_levels_of_different_types_keep_their_types() -> None:
    candidates = make_candidates({"c": Choice((True, 2, 0.5, None, "x"))})
    values = sorted((candidates.parameters(arm)["c"] for arm in range(5)), key=repr)
    assert values == [0.5, 2, None, True, "x"] or values == ["x", 0.5, 2, None, True]
    assert {type(value) for value in values} == {bool, int, float, type(None), str}


def test_ends_of_an_integer_range_get_their_full_share() -> None:
    space = {"n": Range(1, 4, integer=True), "x": Range(0, 1)}
    values = make_candidates(space, 4000, "random").columns["n"]
    assert np.bincount(values)[1:].min() > 800  # 1000 each expected; half a share would be 667 at the ends


def test_sobol_pool_is_balanced_and_a_prefix_of_every_larger_pool() -> None:
    features = make_candidates({"x": Range(0, 1), "y": Range(0, 1)}, 64).features
    assert (np.bincount((features[:, 0] * 64).astype(int), minlength=64) == 1).all()
    longer = make_candidates({"x": Range(0, 1), "y": Range(0, 1)}, 100).features
    np.testing.assert_array_equal(features, longer[:64])


@pytest.mark.parametrize("sampler", ["sobol", "random"])
@pytest.mark.parametrize("forbid", [(), ({"n": {"above": 3}}, {"k": "a", "x": {"below": 0.9}})])
def test_points_drawn_in_parts_equal_those_drawn_at_once(
    sampler: Sampler, forbid: tuple[Clause, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters: dict[str, Parameter] = {
        "n": Range(1, 9, integer=True, log=True),
        "x": Range(0.0, 1.0),
        "k": Choice(("a", "b")),
    }
    space, sets = SearchSpace(parameters, forbid), []
    for rows in (16, 2**16):
        monkeypatch.setattr(sampling, "DRAWN", rows)
        sets.append([make_candidates(space, size, sampler, seed=3) for size in (1, 15, 16, 300)])
    for some, once in zip(*sets, strict=True):
        np.testing.assert_array_equal(some.features, once.features)
        assert [some.parameters(arm) for arm in range(len(some))] == [once.parameters(arm) for arm in range(len(once))]


def test_grid_has_both_ends_and_the_most_levels_that_fit() -> None:
    candidates = make_candidates({"x": Range(1, 100, log=True), "n": Range(0, 2, integer=True)}, 16, "grid")
    assert sorted(set(candidates.columns["n"])) == [0, 1, 2]
    np.testing.assert_allclose(sorted(set(candidates.columns["x"])), np.geomspace(1, 100, 5))
    assert len(candidates) == 15


@pytest.mark.parametrize(
    ("space", "size", "sampler", "message"),
    [
        ({}, 8, "sobol", "space must hold a parameter that varies"),
        ({"c": Constant(1), "d": Choice((1,))}, 8, "sobol", "space must hold a parameter that varies"),
        ({"x": Range(0, 1)}, 10**11, "sobol", "candidates.size must be <= 10000000, got 100000000000"),
        ({f"c{at}": Choice(tuple(range(100))) for at in range(60)}, 10**5, "sobol", "candidates.size must be smaller"),
        ({"x": Range(0, 1)}, 0, "sobol", "candidates.size must be >= 1, got 0"),
        ({"x": Range(0, 1)}, 8, "lhs", "candidates.sampler must be sobol, random or grid, got 'lhs'"),
        ({"x": Range(0, 1), "c": Choice((1, 2, 3))}, 5, "grid", "candidates.size must be >= 6 for a grid"),
        ({"x": Range(0, 1e300, integer=True)}, 8, "sobol", "space.x must stay within"),
    ],
)
def test_candidates_that_cannot_be_created_are_rejected_with_a_remedy(
    space: Mapping[str, Parameter], size: int, sampler: Sampler, message: str
) -> None:
    with pytest.raises(ObjectiveError, match=message):
        make_candidates(space, size, sampler)


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: Range(1, 1), "low must be < high, got low=1, high=1; write a fixed value"),
        (lambda: Range(2, 1), "low must be < high, got low=2, high=1; swap the two"),
        (lambda: Range(0, 1, when="m"), "when: must map parameters to values"),  # type: ignore[arg-type]
        (lambda: Choice(({64}, {32})), r"lists and mappings of these, got \{64\}; name each other object"),
        (lambda: Choice(((1, 2), [1, 2])), r"choices must differ from each other, got \[1, 2\] twice"),
        (lambda: Choice(({"a": 1, "b": [2]}, {"b": [2.0], "a": 1})), "choices must differ from each other"),
        (lambda: Choice(([math.inf],)), "choices must not be infinite or NaN, got inf"),
        (lambda: Choice((["a\0"],)), r"neither NUL nor unpaired surrogates, got 'a\\x00'"),
        (lambda: Choice(({1: 2},)), "choices: the keys of a mapping must be texts, got 1"),
        (lambda: Constant(ENDLESS), "constant: a value must not be nested more than 10 deep"),
        (lambda: Range(0, float("inf")), "low and high must be finite"),
        (lambda: Range(-1e308, 1e308), "high - low must be a finite number"),
        (lambda: Range(0, 1, log=True), "low must be > 0 on a log scale, got 0"),
        (lambda: Range(0.5, 2, integer=True), "low and high of integers must be whole, got low=0.5"),
        (lambda: Choice((1, math.nan)), "choices must not be infinite or NaN, got nan; write the text 'nan'"),
        (lambda: Choice(()), "choices must hold at least one value"),
        (lambda: Choice(("a", "a\0")), r"neither NUL nor unpaired surrogates, got 'a\\x00'"),
        (lambda: Ordered(("a", "\ud800")), r"neither NUL nor unpaired surrogates"),
        (lambda: Choice(("a", "b", "a")), "choices must differ from each other, got 'a' twice"),
        (lambda: Ordered((1, 1.0)), "ordered must differ from each other, got 1.0 twice"),
    ],
)
def test_wrong_parameter_is_rejected_with_its_rule(build: Callable[[], object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        build()


@given(st.lists(nested, min_size=1, max_size=6, unique_by=lambda value: json.dumps(value, sort_keys=True)))
@example([((((((((((1,),),),),),),),),),)])  # the deepest tuple
def test_nested_values_have_distinct_names_and_come_back_from_them_and_from_json(values: list[Any]) -> None:
    choice = Choice(tuple(values))
    assert len(set(choice.levels)) == len(values)
    assert all(isinstance(level, Scalar) for level in choice.levels)
    space = {"p": choice}
    assert settings_from({"space": json.loads(json.dumps(plain_space(space)))}).space == space
    for level, value in zip(choice.levels, values, strict=True):
        given = as_given(space, {"p": level})["p"]
        assert (given, type(given)) == (value, type(value))
        for same in (value, level, json.loads(json.dumps(value))):
            assert as_levels(space, {"p": same}) == {"p": level}


def test_name_of_a_value_does_not_depend_on_the_order_of_the_values() -> None:
    values = (list(range(50)), list(range(51)), "[1]", [1])
    names = Choice(values).levels
    assert Choice(values[::-1]).levels == names[::-1]
    assert all(len(str(name)) <= 40 for name in names)


def test_members_of_enumerations_and_numbers_of_numpy_are_plain_values() -> None:
    class Size(enum.IntEnum):
        SMALL = 1

    class Kind(enum.StrEnum):
        A = "a"

    choice = Choice((Size.SMALL, Kind.A, (Size.SMALL, np.float32(0.5))), default=(np.int64(1), 0.5))
    assert repr(choice.choices) == "(1, 'a', (1, 0.5))"
    assert choice.default == (1, 0.5)
    assert [index_of(choice, value) for value in (Kind.A, {"tuple": [1, 0.5]}, [np.int64(1), 0.5])] == [1, 2, 2]
    itself: list[object] = []
    itself.append(itself)
    assert [index_of(choice, value) for value in (itself, object(), (2,))] == [None, None, None]


def test_first_configuration_has_the_users_values_and_is_the_center_otherwise() -> None:
    space: dict[str, Parameter] = {
        "lr": Range(1e-4, 1.0, log=True),
        "momentum": Range(0.0, 0.9, default=0.123, prior=0.8),
        "dropout": Range(0.0, 0.5, prior=0.3),
        "layers": Range(1, 9, integer=True),
        "kind": Choice(("a", "b", "c"), weights=(1, 3, 3)),
        "batch": Ordered((16, 32, 64), default=64),
        "only_a": Range(0.0, 1.0, default=0.7, when={"kind": "a"}),
    }
    expected = {"lr": pytest.approx(0.01), "momentum": 0.123, "dropout": 0.3, "layers": 5, "kind": "b", "batch": 64}
    assert SearchSpace(space).first == expected
    allowed = SearchSpace(space, ({"kind": ("b",)}, {"momentum": {"above": 0.1}, "layers": (5,)})).first
    assert allowed is not None
    assert (allowed["momentum"], allowed["batch"]) == (0.123, 64)
    assert allowed["kind"] != "b"
    assert allowed["layers"] != 5


@given(random_spaces.spaces(random_spaces.discrete, 3))
def test_first_configuration_is_the_allowed_one_nearest_to_the_center(space: SearchSpace) -> None:
    everything = enumerate_space(space, dict.fromkeys(space.parameters, math.inf), 300)
    assume(everything is not None and len(everything) > 0)  # neither too many nor all forbidden
    assert everything is not None

    def distance(codes: coding.Codes) -> float:
        total = 0.0
        for parameter, code in zip(space.parameters.values(), codes, strict=True):
            if math.isnan(code):
                continue
            if isinstance(parameter, Choice):
                total += code != np.argmax(parameter.weights or (1,))
            else:
                assert isinstance(parameter, Range | Ordered)
                middle = coding.nearest(parameter, np.array([0.5]))
                total += float(coding.places(parameter, np.array([code]))[0] - coding.places(parameter, middle)[0]) ** 2
        return total

    least = min(map(distance, everything))
    assert [distance(codes) for codes in space.first_codes] == pytest.approx([least])
    assert make_candidates(space, at_center=True).parameters(0) == space.first


def test_center_replaces_the_first_point_of_a_sequence_only_on_request() -> None:
    space = {"x": Range(0.0, 1.0), "n": Range(0, 400, integer=True)}
    with_center = make_candidates(space, 64, at_center=True)
    without = make_candidates(space, 64)
    assert with_center.log_prior is None
    assert with_center.parameters(0) == {"x": 0.5, "n": 200}
    assert np.array_equal(with_center.features[1:], without.features[1:])


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


@settings(max_examples=examples(80))
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


SPACE = SearchSpace(
    {
        "lr": Range(1e-4, 1.0, log=True, prior=0.01, confidence="high"),
        "model": Choice(("svm", "forest", "knn"), prior="forest"),
        "depth": Range(1, 9, integer=True, when={"model": "forest"}, prior=3, confidence="low"),
        "x": Range(0.0, 1.0),
    }
)


@pytest.mark.parametrize(
    "parameter",
    [
        Range(0.0, 1.0, prior=0.9),
        Range(1, 40, integer=True, prior=4, confidence="high"),
        Ordered((1, 2, 4, 8, 16), prior=8, confidence="low"),
    ],
    ids=["real", "integer", "ordered"],
)
def test_numbers_are_drawn_by_their_density(parameter: Parameter) -> None:
    codes = coding.draw_near_prior(parameter, (np.arange(20_000) + 0.5) / 20_000)
    bins = np.unique(codes) if not coding.is_real(parameter) else np.linspace(0.025, 0.975, 20)
    counts = np.array([np.isclose(codes, code, atol=0.025).mean() for code in bins])
    density = present(coding.log_density({"x": parameter}, bins[:, None]))
    expected = np.exp(density)
    if not coding.is_real(parameter):  # a value at an end has half of the room of the others
        expected[[0, -1]] /= 2
    assert counts / counts.sum() == pytest.approx(expected / expected.sum(), abs=0.01)


def test_expected_choice_is_drawn_more_often_by_its_ratio() -> None:
    codes = coding.draw_near_prior(Choice(("a", "b"), weights=(2, 1), prior="b"), (np.arange(600) + 0.5) / 600)
    assert np.bincount(codes.astype(int)).tolist() == [200, 400]


def test_log_density_is_relative_to_the_expected_configuration() -> None:
    best = present(SPACE.candidate({"lr": 0.01, "model": "forest", "depth": 3, "x": 0.2}).log_prior)
    assert best == pytest.approx(0.0)
    tenth = present(SPACE.candidate({"lr": 0.1, "model": "forest", "depth": 3, "x": 0.9}).log_prior)
    assert tenth == pytest.approx(-0.5 * (0.25 / coding.DEVIATIONS["high"]) ** 2)
    without_depth = present(SPACE.candidate({"lr": 0.01, "model": "svm", "x": 0.2}).log_prior)
    assert without_depth == pytest.approx(-np.log(4.0) - 0.5)


def test_central_density_falls_with_the_distance_from_the_first_evaluation() -> None:
    space = SearchSpace(
        {
            "rate": Range(1e-4, 1.0, log=True, default=1e-3),
            "depth": Range(0, 10, integer=True),
            "size": Ordered(("s", "m", "l"), when={"model": "net"}),
            "model": Choice(("net", "tree")),
        }
    )

    def density(**changed: object) -> float:
        codes = space.code_of({"rate": 1e-3, "depth": 5, "size": "m", "model": "net", **changed})
        return float(present(coding.central_log_density(space.parameters, codes))[0])

    assert density() == pytest.approx(0.0)
    for changed, step in (({"rate": 1e-2}, 0.25), ({"depth": 2}, 0.3), ({"size": "l"}, 0.5)):
        assert density(**changed) == pytest.approx(-0.5 * 3 * (step / coding.CENTRAL) ** 2)
    without_size = space.code_of({"rate": 1e-3, "depth": 5, "model": "tree"})
    assert coding.central_log_density(space.parameters, without_size) == pytest.approx(
        -0.5 * 3 / 12 / coding.CENTRAL**2
    )
    assert coding.central_log_density({"model": Choice(("net", "tree"))}, np.zeros((1, 1))) is None


def test_candidates_begin_with_the_expected_values_and_half_of_them_are_near() -> None:
    candidates = make_candidates(SPACE, 512)
    first = candidates.parameters(0)
    assert (first["lr"], first["model"], first["depth"]) == (pytest.approx(0.01), "forest", 3)
    is_near = np.abs(np.log10(candidates.columns["lr"].astype(float)) + 2.0) < 0.5  # one deviation
    assert 0.4 < is_near.mean() < 0.55  # half of 68 %, and half of 25 %
    kinds = candidates.columns["model"].tolist()
    assert 0.4 < kinds.count("forest") / 512 < 0.58


def test_finite_space_begins_near_the_expected_values_and_has_all_configurations() -> None:
    space: Space = {"n": Range(1, 50, integer=True, prior=7, confidence="high"), "c": Choice(("a", "b"), prior="a")}
    candidates = make_candidates(space)
    assert len(candidates) == 100
    assert candidates.parameters(0) == {"n": 7, "c": "a"}
    assert np.abs(candidates.columns["n"][:10].astype(int) - 7).mean() < 15


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (Range(0.0, 1.0, prior=2.0), r"space\.p\.prior must be from 0 to 1, got 2\.0"),
        (Range(1, 9, integer=True, prior=2.5), r"space\.p\.prior must be a whole number, got 2\.5"),
        (Choice(("a", "b"), prior="c"), r"space\.p\.prior must be one of 'a', 'b', got 'c'"),
        (Ordered((1, 2), prior=3), r"space\.p\.prior must be one of 1, 2, got 3"),
    ],
)
def test_prior_is_a_value_of_its_parameter(parameter: Parameter, words: str) -> None:
    with pytest.raises(ObjectiveError, match=words):
        SearchSpace({"p": parameter, "x": Range(0.0, 1.0)})


def test_confidence_is_one_of_three_words_beside_a_prior() -> None:
    with pytest.raises(ValueError, match="confidence needs prior"):
        Range(0.0, 1.0, confidence="high")
    with pytest.raises(ValueError, match="confidence must be low, medium or high, got 'sure'"):
        Range(0.0, 1.0, prior=0.5, confidence="sure")  # type: ignore[arg-type]
    assert Range(0.0, 1.0, prior=0.5).confidence == "medium"
