"""A search space: parameters, their conditions, and forbidden combinations.

A sampler draws a position in the unit interval for each parameter. Positions become codes, and
codes become values and features (`bbkb.objectives.coding`). Configurations are rows of codes (A, P), with
one column for each parameter in the space's order. Parameters whose conditions do not hold are
removed, as are forbidden and repeated configurations. `mistakes` finds values that a parameter cannot
have, names that are not parameters, and cycles of conditions.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives import coding
from bbkb.objectives.coding import Codes
from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import (
    Choice,
    Clause,
    Parameter,
    Range,
    Scalar,
    Space,
    clauses_of,
    conditions,
    first_value,
    names_in,
    operands,
    with_default,
    wording,
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


Column = NDArray[np.generic] | NDArray[np.object_]  # values (A,) of one parameter

# A finite space with at most this many configurations is enumerated if no size is given
LARGEST_WHOLE_SET = 100_000
LARGEST_CELLS = 500_000_000  # the number of entries in the matrix of features: 4 GB
LARGEST_INTEGER = 2**53  # larger integers have no exact float64 feature

LEAST_DRAWS = 4096
# The largest number of intermediate arms of an enumeration, in multiples of the largest result
_SLACK = 4


@dataclass(frozen=True)
class SearchSpace:
    """Parameters by name, and forbidden clauses (`bbkb.objectives.parameters`).

    Raises ObjectiveError if conditions or forbidden clauses do not match the parameters, or if no
    parameter varies.
    """

    parameters: Space
    forbid: tuple[Clause, ...] = ()

    def __post_init__(self) -> None:
        try:
            forbid = clauses_of(self.forbid) if self.forbid else ()
        except ValueError as error:
            raise ObjectiveError(f"forbid: {error}") from error
        object.__setattr__(self, "forbid", forbid)
        for mistake in mistakes(self.parameters, forbid):
            raise ObjectiveError(f"{'.'.join(map(str, mistake.keys))} {mistake.rule}")
        if all(coding.count(parameter) == 1 for parameter in self.parameters.values()):
            raise ObjectiveError("space must hold a parameter that varies; add a range ({low: …, high: …}) or choices")
        for name, parameter in self.parameters.items():
            if not isinstance(parameter, Range):
                continue
            if parameter.integer and max(-parameter.low, parameter.high) > LARGEST_INTEGER:
                raise ObjectiveError(f"space.{name} must stay within ±2^53 for integers, got {parameter}")
            if parameter.stride is not None and coding.count(parameter) > LARGEST_INTEGER:
                raise ObjectiveError(
                    f"space.{name} must have at most 2^53 values, got {parameter.wording}; "
                    + ("narrow the range or add a step" if parameter.step is None else "raise its step or drop it")
                )

    @cached_property
    def order(self) -> list[str]:
        """The parameters, each after the parameters in its conditions."""
        return order_parameters(self.parameters)

    @cached_property
    def is_finite(self) -> bool:
        """Whether no parameter is a range of real numbers."""
        return not any(map(coding.is_real, self.parameters.values()))

    @cached_property
    def width(self) -> int:
        """The number of features."""
        return sum(map(coding.width, self.parameters.values()))

    @property
    def conditional(self) -> frozenset[str]:
        """The parameters that do not exist in every configuration."""
        return frozenset(name for name, parameter in self.parameters.items() if parameter.when is not None)

    def is_allowed(self, codes: Codes) -> Mask:
        """Return a mask (A,) of the configurations `codes` (A, P) that no clause forbids."""
        return ~holds(self.parameters, self.forbid, codes)

    def existing(self, codes: Codes) -> Codes:
        """Return `codes` (A, P) with NaN for parameters whose conditions do not hold."""
        return without_inactive(self.parameters, self.order, codes)

    def count(self, most: int) -> int | None:
        """Return the number of configurations; None if it exceeds `most` or is infinite."""
        codes = enumerate_space(self, dict.fromkeys(self.parameters, math.inf), most)
        return None if codes is None else len(codes)

    def candidates(self, codes: Codes) -> Candidates:
        """Return arms of these configurations (A, P), which must be allowed and distinct."""
        return self.candidates_of(self.columns_of(codes))

    def candidate(self, configuration: Mapping[str, object]) -> Candidates:
        """Return the arm of a user's configuration, with exactly the given numbers.

        Raises the errors of `code_of`.
        """
        columns = self.columns_of(self.code_of(configuration))
        self.put(columns, 0, configuration)
        return self.candidates_of(columns)

    def beyond(self, configuration: Mapping[str, object]) -> Candidates:
        """Return the arm of a configuration that cannot be evaluated, but is comparable with the others:
        a number is beyond the bounds of its range, or a clause forbids the combination.

        Raises ObjectiveError, like `code_of`, for other configurations.
        """
        codes, missing = self._given_codes(configuration, is_bounded=False)
        if missing is not None:
            raise ObjectiveError(f"{missing} is missing")
        columns = self.columns_of(codes)
        self.put(columns, 0, configuration)
        return self.candidates_of(columns)

    @cached_property
    def first_codes(self) -> Codes:
        """The codes (≤ 1, P) of the first evaluation: of each parameter the user's `default` or `prior`, or
        else the center. If a clause forbids it, the allowed configuration nearest to it, of some drawn
        ones with the same defaults; none if all of these are forbidden.

        Raises ObjectiveError if hardly any allowed configuration has the defaults.
        """
        parameters = list(self.parameters.values())
        center = np.array([[coding.first_code(parameter) for parameter in parameters]])
        codes = self.existing(center)
        if self.is_allowed(codes)[0]:
            return codes
        defaults = with_default(self.parameters)
        positions = np.random.default_rng(0).random((LEAST_DRAWS, len(parameters)))
        drawn = draw_codes(self.parameters, dict(zip(self.parameters, positions.T, strict=True)), LEAST_DRAWS)
        codes = self.existing(np.where([name in defaults for name in self.parameters], center, drawn))
        codes = codes[self.is_allowed(codes)]
        if defaults and not len(codes):
            raise ObjectiveError(
                f"forbid must allow the default of {', '.join(defaults)}, but a search found no such configuration"
            )
        distances = np.zeros(len(codes))
        for parameter, column, value in zip(parameters, codes.T, center.T, strict=True):
            exists = ~np.isnan(column)
            if isinstance(parameter, Choice):
                distances[exists] += column[exists] != value
            else:
                distances[exists] += (coding.places(parameter, column[exists]) - coding.places(parameter, value)) ** 2
        return codes[np.argsort(distances, kind="stable")[:1]]

    @property
    def first(self) -> Mapping[str, Scalar] | None:
        """The configuration of `first_codes`, with exactly the user's numbers."""
        if not len(self.first_codes):
            return None
        columns = self.columns_of(self.first_codes)
        given = {name: first_value(parameter) for name, parameter in self.parameters.items()}
        self.put(columns, 0, {name: given[name] for name, column in columns.items() if column[0] is not None})
        return self.candidates_of(columns).parameters(0)

    def columns_of(self, codes: Codes) -> dict[str, Column]:
        """Return the values (A,) of each parameter in these configurations (A, P)."""
        return {
            name: coding.values(parameter, codes[:, index])
            for index, (name, parameter) in enumerate(self.parameters.items())
        }

    def put(self, columns: Mapping[str, Column], row: int, configuration: Mapping[str, object]) -> None:
        """Restore the exact real numbers of a configuration, because codes have rounding errors."""
        for name, parameter in self.parameters.items():
            value = configuration.get(name)
            if coding.is_real(parameter) and isinstance(value, int | float):
                columns[name][row] = float(value)

    def candidates_of(self, columns: Mapping[str, Column]) -> Candidates:
        """Return arms with these values (A,), None if inactive. Equal values give equal bits."""
        widths = [coding.width(parameter) for parameter in self.parameters.values()]
        codes = self.encode(columns)
        features = np.empty((len(codes), self.width))
        for column, parameter, end, width in zip(
            codes.T, self.parameters.values(), np.cumsum(widths), widths, strict=True
        ):
            features[:, end - width : end] = coding.features(parameter, column)
        numbers = np.repeat(np.cumsum([width > 0 for width in widths]) - 1, widths)
        density = coding.log_density(self.parameters, codes)
        return Candidates(features, columns, numbers, self.is_finite, self.conditional, log_prior=density)

    def rebuild(self, columns: Mapping[str, Sequence[Scalar]]) -> Candidates:
        """Rebuild the arms, bit for bit, from the values of each parameter in JSON."""
        return self.candidates_of({name: self._column(name, columns[name]) for name in self.parameters})

    def _column(self, name: str, values: Sequence[Scalar]) -> Column:
        column = np.array(values, dtype=object)
        parameter = self.parameters[name]
        if coding.is_real(parameter):
            return column if None in values else column.astype(np.float64)
        # through codes, which restore the column's type
        return coding.values(parameter, coding.encode(parameter, column))

    def encode(self, columns: Mapping[str, Column]) -> Codes:
        """Return the codes (A, P) of the values (A,) of each parameter."""
        return np.stack(
            [coding.encode(parameter, columns[name]) for name, parameter in self.parameters.items()], axis=1
        )

    def code_of(self, configuration: object) -> Codes:
        """Return the codes (1, P) of a user's configuration.

        It may omit inactive parameters and those with a single level. Raises ObjectiveError if a parameter is
        unknown, missing or has an invalid value, or if the configuration is forbidden.
        """
        codes, missing = self._given_codes(configuration)
        if missing is not None:
            raise ObjectiveError(f"{missing} is missing")
        if not self.is_allowed(codes)[0]:
            broken = next(clause for clause in self.forbid if holds(self.parameters, [clause], codes)[0])
            raise ObjectiveError(f"the configuration is forbidden by the clause: {wording([broken])}")
        return codes

    def _given_codes(self, configuration: object, is_bounded: bool = True) -> tuple[Codes, str | None]:
        """Return the codes (1, P) of a configuration up to its first missing parameter, and that one."""
        if not isinstance(configuration, Mapping):
            names = ", ".join(self.parameters)
            raise ObjectiveError(f"a configuration must be a mapping of the parameters {names}, got {configuration!r}")
        for name in configuration:
            if name not in self.parameters:
                raise ObjectiveError(f"{name} is not a parameter of the space, which has {', '.join(self.parameters)}")
        codes = np.full((1, len(self.parameters)), np.nan)
        column = {name: index for index, name in enumerate(self.parameters)}
        for name in self.order:
            parameter = self.parameters[name]
            clauses = conditions(parameter)
            if clauses and not holds(self.parameters, clauses, codes)[0]:
                if configuration.get(name) is not None:
                    raise ObjectiveError(
                        f"{name} must be left out: it exists only when {wording(clauses)}, got {configuration[name]!r}"
                    )
            elif name in configuration:
                codes[0, column[name]] = self._code(name, configuration[name], is_bounded)
            elif len(parameter.levels) == 1:
                codes[0, column[name]] = 0.0
            else:
                return codes, name
        return codes, None

    def complete(self, configuration: Mapping[str, Scalar], rng: np.random.Generator) -> Mapping[str, Scalar]:
        """Draw the missing parameters of a configuration such that it is allowed.

        They are drawn like those of candidates. Raises ObjectiveError like `code_of`, and if no
        allowed configuration with the given values was found.
        """
        if self._given_codes(configuration)[1] is None:
            self.code_of(configuration)
            return configuration
        codes = self.draw_with(configuration, rng)
        values = self.columns_of(codes[:1])
        drawn_values = {name: column[0] for name, column in values.items() if column[0] is not None}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in drawn_values.items()}
        named = {name: value for name, value in configuration.items() if value is not None}
        return {**plain, **named}

    def draw_with(
        self, configuration: Mapping[str, Scalar], rng: np.random.Generator, others: Codes | None = None
    ) -> Codes:
        """Return allowed configurations (n, P), n ≥ 1, with these values; None: the parameter does not exist.

        The values of other parameters are those of `others` (m, P), then randomly drawn. Raises ObjectiveError
        if a value is invalid or nothing was found.
        """
        numbers = {name: index for index, name in enumerate(self.parameters)}
        if unknown := [name for name in configuration if name not in numbers]:
            raise ObjectiveError(
                f"{unknown[0]} is not a parameter of the space, which has {', '.join(self.parameters)}"
            )
        positions = rng.random((LEAST_DRAWS, len(numbers)))
        columns = draw_codes(self.parameters, dict(zip(numbers, positions.T, strict=True)), LEAST_DRAWS)
        if others is not None:
            columns = np.concatenate((np.where(np.isnan(others), columns[: len(others)], others), columns))
        named = [name for name, value in configuration.items() if value is not None]
        for name in named:
            columns[:, numbers[name]] = self._code(name, configuration[name])
        codes = self.existing(columns)
        fits = self.is_allowed(codes) & ~np.isnan(codes[:, [numbers[name] for name in named]]).any(axis=1)
        left_out = [numbers[name] for name, value in configuration.items() if value is None]
        fits &= np.isnan(codes[:, left_out]).all(axis=1)
        if not fits.any():
            raise ObjectiveError(
                "hardly any allowed configuration has these values: a search found none; give all of them"
            )
        return codes[fits]

    def _code(self, name: str, value: object, is_bounded: bool = True) -> float:
        try:
            return coding.code_of(self.parameters[name], value, is_bounded)
        except ValueError as error:
            raise ObjectiveError(f"{name} {error}") from error


def enumerate_space(space: SearchSpace, levels: Mapping[str, float], most: int) -> Codes | None:
    """Return all allowed configurations (A, P). The last parameter of `space.order` varies fastest.

    The memory is at most a few times that of the result. None if there are more than about `most`.
    `levels`: the largest number of values of each parameter.
    """
    due = {clause: set(names_in([space.forbid[clause]])) for clause in range(len(space.forbid))}
    rows = np.full((1, len(space.parameters)), np.nan)
    defined = set[str]()
    for name in space.order:
        clauses = conditions(space.parameters[name])
        exists = holds(space.parameters, clauses, rows) if clauses else np.ones(len(rows), bool)
        # a parameter that never exists adds no row, no matter how many values it has
        number = min(coding.count(space.parameters[name]), levels[name]) if exists.any() else 1
        count = len(rows) + exists.sum() * (number - 1.0)
        if count > _SLACK * most:
            return None  # before the rows are computed
        check_cells(int(count) * rows.shape[1])
        codes = coding.spread_codes(space.parameters[name], int(number))
        times = np.where(exists, len(codes), 1)  # each row in which the parameter exists is repeated for all levels
        rows = np.repeat(rows, times, axis=0)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        has = np.repeat(exists, times)
        rows[has, list(space.parameters).index(name)] = codes[within[has]]
        defined.add(name)
        complete = [clause for clause, names in due.items() if names <= defined]
        rows = rows[~holds(space.parameters, [space.forbid[clause] for clause in complete], rows)]
        due = {clause: names for clause, names in due.items() if clause not in complete}
    return rows if len(rows) <= most else None


def first_occurrences(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the ascending indices of `rows` (A, d) that equal no earlier row; NaN equals NaN."""
    first = np.zeros(min(1, len(rows)), dtype=np.intp)
    group = np.zeros(len(rows), dtype=np.intp)
    for column in rows.T:
        values = np.unique(column)
        if len(values) == len(rows):  # all differ, the usual case with a real range
            return np.arange(len(rows))
        rank = values.searchsorted(column)
        _, first, group = np.unique(group * len(values) + rank, return_index=True, return_inverse=True)
        if len(first) == len(rows):  # all differ already
            break
    return np.sort(first)


def draw_codes(parameters: Space, positions: Mapping[str, NDArray[np.float64]], size: int) -> Codes:
    """Return codes (size, P) of points at `positions` (size,) of the parameters that vary,
    including inactive ones."""
    columns = [coding.draw(parameter, positions.get(name, np.zeros(size))) for name, parameter in parameters.items()]
    return np.stack(columns, axis=1)


def check_cells(cells: int) -> None:
    """Raise ObjectiveError if a matrix of features would have more than `LARGEST_CELLS` entries."""
    if cells > LARGEST_CELLS:
        raise ObjectiveError(
            f"candidates.size must be smaller: this many candidates take {8e-9 * cells:.3g} GB, "
            f"at most {8e-9 * LARGEST_CELLS:.3g} are allowed"
        )


def explain(space: SearchSpace, candidates: Candidates) -> list[str]:
    """Return a line for each parameter and forbidden clause, and one with the number of arms."""
    lines = []
    for name, parameter in space.parameters.items():
        when = conditions(parameter)
        lines.append(f"{name}: {parameter.wording}{f'; only when {wording(when)}' if when else ''}")
    lines += [f"forbidden: {wording([clause])}" for clause in space.forbid]
    number = len(space.conditional)
    conditional = f", {number} of them conditional" if number else ""
    noun = "parameter" if len(space.parameters) == 1 else "parameters"
    count = len(candidates)
    total = space.count(max(count, LARGEST_WHOLE_SET)) if space.is_finite else None
    if total == count:
        arms = f"all {count} configurations are candidates"
    else:
        more = f"more than {max(count, LARGEST_WHOLE_SET)}" if space.is_finite else "infinitely many"
        arms = f"{count} candidates drawn from {more if total is None else total} configurations"
    return [*lines, f"{len(space.parameters)} {noun}{conditional}; {arms}"]
