"""Hypothesis strategies: search spaces of all kinds of parameters, with conditions and forbidden
clauses."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Clause, Ordered, Parameter, Range, Scalar
from bbkb.objectives.space import SearchSpace

_words = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=2, max_size=4, unique=True)
_numbers = st.lists(st.integers(-5, 5), min_size=2, max_size=5, unique=True)

reals = st.builds(
    lambda low, width, log: Range(low, low + width, log=log), st.floats(0.1, 9), st.floats(0.5, 90), st.booleans()
)
integers = st.builds(
    lambda low, width, log: Range(low, low + width, log=log, integer=True),
    st.integers(1, 50),
    st.integers(1, 300),
    st.booleans(),
)
steps = st.builds(
    lambda low, count, step: Range(low, low + count * step, step=step),
    st.integers(-3, 3),
    st.integers(1, 20),
    st.sampled_from([0.05, 0.1, 0.25, 3.0]),
)
weighted = st.lists(st.floats(0.1, 5), min_size=3, max_size=3).map(
    lambda weights: Choice(("a", "b", "c"), tuple(weights))
)
discrete = integers | steps | st.builds(Choice, _words) | st.builds(Ordered, _numbers) | weighted
parameters = reals | discrete


@st.composite
def conditions(draw: st.DrawFn, name: str, parameter: Parameter) -> Any:
    """A clause about one parameter that may hold or not."""
    if isinstance(parameter, Choice):
        return {name: draw(st.lists(st.sampled_from(parameter.choices), min_size=1, max_size=2, unique=True))}
    if isinstance(parameter, Ordered):
        return {name: draw(st.sampled_from(parameter.ordered))}
    assert isinstance(parameter, Range)
    middle = parameter.low + draw(st.floats(0.2, 0.8)) * (parameter.high - parameter.low)
    return {name: {draw(st.sampled_from(["above", "below", "at_least", "at_most"])): middle}}


@st.composite
def spaces(draw: st.DrawFn, kinds: st.SearchStrategy[Parameter] = parameters, most: int = 5) -> SearchSpace:
    """A search space; later parameters may depend on earlier ones, and two of them may be forbidden
    together."""
    space: dict[str, Parameter] = {}
    for name in "uvwxyz"[: draw(st.integers(1, most))]:
        parameter = draw(kinds)
        if space and draw(st.integers(0, 2)) == 0:
            parent = draw(st.sampled_from(sorted(space)))
            when = draw(conditions(parent, space[parent]))
            parameter = replace(parameter, when=when)
        space[name] = parameter
    forbid: tuple[Clause, ...] = ()
    if len(space) > 1 and draw(st.booleans()):
        first_name, other = draw(st.permutations(sorted(space)))[:2]
        forbid = ({**draw(conditions(first_name, space[first_name])), **draw(conditions(other, space[other]))},)
    return SearchSpace(space, forbid)


def is_valid(space: SearchSpace, configuration: Mapping[str, Scalar]) -> bool:
    """Return whether a configuration belongs to the space, by the rules for users'
    configurations."""
    try:
        space.code_of(configuration)
    except ObjectiveError:
        return False
    return True
