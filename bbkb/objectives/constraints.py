"""Evaluates clauses in a space: which parameters exist in a configuration, and which configurations
are forbidden.

Configurations are rows of codes (A, P), with one column for each parameter in the space's order
(`bbkb.objectives.coding`). `mistakes` finds values that a parameter cannot have, names that are not
parameters, and cycles of conditions.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives import coding
from bbkb.objectives.coding import Codes
from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.parameters import (
    Clause,
    Parameter,
    Space,
    conditions,
    names_in,
    operands,
)

Mask = NDArray[np.bool_]

_COMPARE: Mapping[str, Callable[[Codes, Codes], Mask]] = {
    "above": np.greater,
    "below": np.less,
    "at_least": np.greater_equal,
    "at_most": np.less_equal,
    "equals": np.equal,
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a space."""

    keys: tuple[str | int, ...]  # the path in the campaign file, from `space` or `forbid`
    rule: str  # a predicate or a sentence


def mistakes(space: Space, forbid: Sequence[Clause]) -> list[Mistake]:
    """Return all mistakes in `space` and in `forbid`."""
    problems = [
        Mistake(("space", name, "when", *keys), rule)
        for name, parameter in space.items()
        for clause in conditions(parameter)
        for keys, rule in _wrong(space, clause)
    ]
    for name, parameter in space.items():
        for key in ("prior", "default"):
            if (value := getattr(parameter, key, None)) is not None:
                try:
                    coding.code_of(parameter, value)
                except ValueError as error:
                    problems.append(Mistake(("space", name, key), str(error)))
    for number, clause in enumerate(forbid):
        problems += [Mistake(("forbid", number, *keys), rule) for keys, rule in _wrong(space, clause)]
    if problems:
        return problems
    free = set(order_parameters(space))
    circle = [name for name in space if name not in free]
    if circle:
        names = ", ".join(circle)
        problems.append(
            Mistake(("space", circle[0], "when"), f"must not depend on itself, these form a cycle: {names}")
        )
    return problems


def _wrong(space: Space, clause: Clause) -> Iterator[tuple[tuple[str, ...], str]]:
    for operand in operands(clause):
        names = [*operand.summed, *([] if operand.other is None else [operand.other])]
        unknown = [name for name in names if name not in space]
        if unknown:
            rule = f"must name a parameter of the space ({', '.join(space)}), got {unknown[0]!r}"
            is_sum = unknown[0] == "sum" and operand.operator == "in"
            remedy = "; a sum needs a bound, such as {sum: [a, b], above: 1}" if is_sum else ""
            yield (operand.name,), rule + (remedy or did_you_mean(unknown[0], space))
        elif not isinstance(operand.bound, tuple):
            for name in names:
                if not all(
                    isinstance(level, int | float) and not isinstance(level, bool) for level in space[name].levels
                ):
                    yield (operand.name,), f"is compared by {operand.operator}, but {name} has no numeric values"
        elif coding.is_real(space[operand.name]):
            rule = "is a range of real numbers, which no value matches; compare it by above, below, at_least or at_most"
            yield (operand.name,), rule
        else:
            for value in operand.bound:
                try:
                    coding.code_of(space[operand.name], value)
                except ValueError as error:
                    levels = [str(level) for level in space[operand.name].levels]
                    yield (operand.name,), f"{error}{did_you_mean(str(value), levels)}"


def order_parameters(space: Space) -> list[str]:
    """Return the parameters in an order in which each one follows the parameters in its conditions;
    otherwise, the space's order is kept.

    Parameters in a cycle are omitted. All conditions must name parameters of the space.
    """
    names = list(space)
    index_of = {name: index for index, name in enumerate(space)}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, parameter in enumerate(space.values()):
        sorter.add(index, *(index_of[needed] for needed in names_in(conditions(parameter))))
    with suppress(CycleError):
        sorter.prepare()
    ready = sorted(sorter.get_ready())  # ascending, which makes it a heap
    ordered: list[str] = []
    while ready:
        first = heapq.heappop(ready)  # the smallest index, to keep the space's order
        ordered.append(names[first])
        sorter.done(first)
        for index in sorter.get_ready():
            heapq.heappush(ready, index)
    return ordered


def holds(space: Space, clauses: Sequence[Clause], codes: Codes) -> Mask:
    """Return a mask (A,) of the configurations `codes` (A, P) in which any of `clauses` holds."""
    column = {name: index for index, name in enumerate(space)}
    matching = np.zeros(len(codes), dtype=bool)
    for clause in clauses:
        every = np.ones(len(codes), dtype=bool)
        for operand in operands(clause):
            if isinstance(operand.bound, tuple):
                allowed = [coding.code_of(space[operand.name], value) for value in operand.bound]
                every &= np.isin(codes[:, column[operand.name]], allowed)
                continue
            if isinstance(operand.bound, str):
                bound = _numbers(space[operand.bound], codes[:, column[operand.bound]])
            else:
                bound = np.full(len(codes), float(operand.bound))
            terms = [_numbers(space[name], codes[:, column[name]]) for name in operand.summed]
            every &= _COMPARE[operand.operator](np.sum(terms, axis=0), bound)  # NaN is false
        matching |= every
    return matching


def _numbers(parameter: Parameter, codes: Codes) -> Codes:
    """Return the values of the codes as floats; NaN remains NaN."""
    exists = ~np.isnan(codes)
    numbers = np.full(len(codes), np.nan)
    numbers[exists] = coding.values(parameter, codes[exists]).astype(np.float64)
    return numbers


def without_inactive(space: Space, order: Sequence[str], codes: Codes) -> Codes:
    """Return `codes` (A, P) with NaN for parameters whose conditions do not hold."""
    column = {name: index for index, name in enumerate(space)}
    pruned = codes.copy()
    for name in order:
        clauses = conditions(space[name])
        if clauses:
            pruned[~holds(space, clauses, pruned), column[name]] = np.nan
    return pruned
