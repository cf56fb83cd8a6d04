"""Conditions and forbidden clauses, with ConfigSpace as the oracle of existing parameters and
allowed configurations."""

from collections.abc import Mapping
from typing import Any

import ConfigSpace
import numpy as np
import pytest
from ConfigSpace.exceptions import (
    ActiveHyperparameterNotSetError,
    ForbiddenValueError,
    InactiveHyperparameterSetError,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Clause, Constant, Parameter, Range, Sampler, clauses_of
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace, mistakes, order_parameters
from tests.examples import examples
from tests.objectives.random_spaces import is_valid, spaces

TREE: dict[str, Parameter] = {
    "model": Choice(("svm", "forest", "knn")),
    "C": Range(1e-3, 1e3, log=True, when={"model": "svm"}),
    "kernel": Choice(("rbf", "poly"), when={"model": "svm"}),
    "degree": Range(2, 5, integer=True, when={"model": "svm", "kernel": "poly"}),
    "depth": Range(1, 9, integer=True, when=[{"model": "forest"}, {"model": "knn"}]),
    "extra": Choice(("on", "off"), when={"depth": {"at_least": 5}}),
}


def oracle() -> ConfigSpace.ConfigurationSpace:
    """TREE as a ConfigSpace, without the forbidden clause, which ConfigSpace rejects in some
    spaces."""
    space = ConfigSpace.ConfigurationSpace()
    model = ConfigSpace.CategoricalHyperparameter("model", ["svm", "forest", "knn"])
    c = ConfigSpace.UniformFloatHyperparameter("C", 1e-3, 1e3, log=True)
    kernel = ConfigSpace.CategoricalHyperparameter("kernel", ["rbf", "poly"])
    degree = ConfigSpace.UniformIntegerHyperparameter("degree", 2, 5)
    depth = ConfigSpace.UniformIntegerHyperparameter("depth", 1, 9)
    extra = ConfigSpace.CategoricalHyperparameter("extra", ["on", "off"])
    space.add(model, c, kernel, degree, depth, extra)
    space.add(ConfigSpace.EqualsCondition(c, model, "svm"), ConfigSpace.EqualsCondition(kernel, model, "svm"))
    svm, poly = ConfigSpace.EqualsCondition(degree, model, "svm"), ConfigSpace.EqualsCondition(degree, kernel, "poly")
    space.add(ConfigSpace.AndConjunction(svm, poly), ConfigSpace.InCondition(depth, model, ["forest", "knn"]))
    space.add(ConfigSpace.GreaterThanCondition(extra, depth, 4))
    forest = ConfigSpace.ForbiddenEqualsClause(model, "forest")
    space.add(ConfigSpace.ForbiddenAndConjunction(forest, ConfigSpace.ForbiddenInClause(depth, [8, 9])))
    return space


FORBID = clauses_of([{"model": "forest", "depth": [8, 9]}])


@given(
    st.fixed_dictionaries(
        {"model": st.sampled_from(["svm", "forest", "knn"])},
        optional={
            "C": st.just(1.0),
            "kernel": st.sampled_from(["rbf", "poly"]),
            "degree": st.just(3),
            "depth": st.integers(1, 9),
            "extra": st.sampled_from(["on", "off"]),
        },
    )
)
def test_configuration_is_accepted_exactly_if_configspace_accepts_it(configuration: dict[str, Any]) -> None:
    try:
        ConfigSpace.Configuration(oracle(), values=configuration)
        accepted = True
    except (ForbiddenValueError, InactiveHyperparameterSetError, ActiveHyperparameterNotSetError):
        accepted = False
    assert is_valid(SearchSpace(TREE, FORBID), configuration) == accepted


@settings(max_examples=examples(100))
@given(spaces(), st.sampled_from(["sobol", "random", "grid"]), st.integers(0, 1000))
def test_candidates_are_valid_distinct_and_determined_by_the_seed(
    space: SearchSpace, sampler: Sampler, seed: int
) -> None:
    try:
        candidates, again = (make_candidates(space, 64, sampler, seed) for _ in range(2))
    except ObjectiveError:  # nearly everything is forbidden, or the smallest grid is larger
        assume(False)
    assert 1 <= len(np.unique(candidates.features, axis=0)) == len(candidates) <= 64
    assert candidates.features.min() >= 0
    assert candidates.features.max() <= 1
    np.testing.assert_array_equal(candidates.features, again.features)
    for arm in range(len(candidates)):
        parameters = candidates.parameters(arm)
        assert is_valid(space, parameters), parameters
        for name, value in parameters.items():
            parameter = space.parameters[name]
            if isinstance(parameter, Range):
                assert type(value) is (int if parameter.integer else float)
            else:
                assert repr(value) in map(repr, parameter.levels)


def test_configurations_of_a_finite_conditional_space_are_enumerated_once() -> None:
    space: dict[str, Parameter] = {name: parameter for name, parameter in TREE.items() if name != "C"}
    candidates = make_candidates(SearchSpace(space, FORBID))
    configurations = {tuple(sorted(candidates.parameters(arm).items())) for arm in range(len(candidates))}

    def depths(most: int) -> int:
        return sum(2 if depth >= 5 else 1 for depth in range(1, most + 1))

    assert len(configurations) == len(candidates) == (1 + 4) + depths(7) + depths(9)
    assert SearchSpace(space, FORBID).count(1000) == len(candidates)
    assert SearchSpace(space, FORBID).count(len(candidates) - 1) is None


def test_space_of_many_branches_is_enumerated_although_its_product_is_too_large() -> None:
    branches = {f"p{number}": Range(1, 10, integer=True, when={"model": number}) for number in range(50)}
    space = SearchSpace({"model": Choice(tuple(range(50))), **branches})
    assert len(make_candidates(space)) == 500


def test_too_large_space_is_abandoned_before_memory_is_exhausted() -> None:
    wide = {f"p{number}": Range(1, 10**9, integer=True) for number in range(30)}
    assert SearchSpace(wide).count(100_000) is None
    assert len(make_candidates(wide, 50)) == 50


def test_inactive_features_are_constant_and_half_of_the_largest() -> None:
    space: dict[str, Parameter] = {
        "model": Choice(("a", "b")),
        "x": Range(1, 9, when={"model": "a"}),
        "c": Choice(("p", "q", "r"), when={"model": "a"}),
    }
    candidates = make_candidates(space, 50)
    inactive = np.array([candidates.parameters(arm)["model"] == "b" for arm in range(len(candidates))])
    assert inactive.sum() == 1, "without x and c there is one configuration of model b"
    assert candidates.features[inactive][0, 2:].tolist() == pytest.approx([0.5] + [0.5 / 2**0.5] * 3)
    assert candidates.parameter_of.tolist() == [0, 0, 1, 2, 2, 2]
    assert set(candidates.parameters(int(np.flatnonzero(inactive)[0]))) == {"model"}


def test_clause_can_bound_a_sum_of_parameters() -> None:
    parameters: dict[str, Parameter] = {name: Range(0.0, 1.0) for name in "abc"}
    forbid = clauses_of([{"sum": ["a", "b", "c"], "above": 1, "at_most": 2}])
    assert clauses_of(forbid) == forbid  # as in a saved file
    space = SearchSpace(parameters, forbid)
    sums = np.sum(list(make_candidates(space, 200).columns.values()), axis=0)
    assert (len(sums), bool(((sums <= 1) | (sums > 2)).all())) == (200, True)
    with pytest.raises(ObjectiveError, match=r"forbidden by the clause: a \+ b \+ c > 1"):
        space.code_of({"a": 0.5, "b": 0.5, "c": 0.5})


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ({"sum": ["a"], "above": 1}, "sum must be a list of two or more parameters.*got ..a.."),
        ({"sum": ["a", "z"], "above": 1}, r"a \+ z must name a parameter of the space \(a, b\), got 'z'"),
        ({"sum": ["a", "b"], "above": True}, r"a \+ b.above must be a number"),
        ({"a + b": 1}, r"a \+ b must be compared by above"),
    ],
)
def test_mistake_in_a_sum_is_named(clause: Mapping[str, Any], message: str) -> None:
    with pytest.raises((ObjectiveError, ValueError), match=message):
        SearchSpace({"a": Range(0.0, 1.0), "b": Range(0.0, 1.0)}, (clause,))


def test_clause_can_compare_two_parameters() -> None:
    space = SearchSpace(
        {"low": Range(0, 9, integer=True), "high": Range(0, 9, integer=True)}, ({"low": {"above": "high"}},)
    )
    pairs = [make_candidates(space).parameters(arm) for arm in range(55)]
    assert len(make_candidates(space)) == 55
    assert all(pair["low"] <= pair["high"] for pair in pairs)


X, M = Range(0, 1), Choice(("a", "b"))
UNKNOWN = {"x": Range(0, 1, when={"modl": 1}), "model": M}
WRONG_VALUE = {"x": Range(0, 1, when={"m": "svn"}), "m": Choice(("svm", "knn"))}
CYCLE = {"a": Choice((1, 2), when={"b": 1}), "b": Choice((1, 2), when={"a": 1}), "c": Constant(1)}


@pytest.mark.parametrize(
    ("space", "forbid", "keys", "rule"),
    [
        (UNKNOWN, (), ("space", "x", "when", "modl"), "mean 'model'"),
        (WRONG_VALUE, (), ("space", "x", "when", "m"), "mean 'svm'"),
        ({"x": X, "y": Range(0, 1, when={"x": 0.5})}, (), ("space", "y", "when", "x"), "range of real numbers"),
        ({"x": X, "m": M}, ({"m": {"above": 1}},), ("forbid", 0, "m"), "m has no numeric values"),
        ({"x": X}, ({"x": {"above": "y"}},), ("forbid", 0, "x"), "must name a parameter of the space"),
        (CYCLE, (), ("space", "a", "when"), "must not depend on itself, these form a cycle: a, b"),
    ],
)
def test_mistake_between_parameters_has_a_position(
    space: Mapping[str, Parameter], forbid: tuple[Clause, ...], keys: tuple[str, ...], rule: str
) -> None:
    problems = mistakes(space, forbid)
    assert [problem.keys for problem in problems] == [keys]
    assert rule in problems[0].rule
    with pytest.raises(ObjectiveError, match=r"when|forbid"):
        SearchSpace(space, forbid)


@given(
    parents=st.lists(st.lists(st.integers(0, 6), max_size=2), max_size=7).map(
        lambda all_: [[one for one in some if one < len(all_)] for some in all_]
    )
)
def test_order_repeatedly_takes_the_first_ready_parameter(parents: list[list[int]]) -> None:
    space: dict[str, Parameter] = {
        f"p{index}": Choice(("a", "b"), when={f"p{parent}": "a" for parent in some} or None)
        for index, some in enumerate(parents)
    }
    done: list[int] = []
    while ready := [index for index in range(len(parents)) if index not in done and set(parents[index]) <= {*done}]:
        done.append(ready[0])
    assert order_parameters(space) == [f"p{index}" for index in done]


def test_space_of_a_thousand_parameters_is_checked_without_a_walk_over_all_for_each() -> None:
    space: dict[str, Parameter] = {
        f"p{index}": Choice(("a", "b"), when={f"p{index + 1}": "a"} if index < 999 else None) for index in range(1000)
    }
    assert mistakes(space, ()) == []
    assert order_parameters(space)[:2] == ["p999", "p998"]


def test_forbidding_everything_is_rejected() -> None:
    with pytest.raises(ObjectiveError, match="forbid: its clauses leave hardly any configuration"):
        make_candidates(SearchSpace({"m": Choice((1, 2))}, ({"m": (1, 2)},)))
