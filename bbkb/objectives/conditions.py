"""Conditions between parameters: when a parameter exists, and which combinations are forbidden.

A *clause* maps parameter names to tests, and holds if all of its tests hold. A list of clauses
holds if any of them holds. A test is a tuple of allowed values, or a `Comparison` with a number or
with another parameter. A test of a parameter that does not exist in a configuration (because its
own condition does not hold) never holds. Campaign files may contain a single value instead of a
tuple with one value, and a single clause instead of a list with one clause.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc, TypedDict  # pydantic needs this variant before Python 3.12

Scalar = str | int | float | bool | None


class Comparison(TypedDict, total=False):
    """Bounds on a number, each of which is a number or the name of another parameter."""

    above: Annotated[float | str, Doc("The value exceeds this value, or that of the parameter with this name.")]
    below: Annotated[float | str, Doc("The value is below this value, or that of the parameter with this name.")]
    at_least: Annotated[float | str, Doc("The value is at least this value, or that of the parameter with this name.")]
    at_most: Annotated[float | str, Doc("The value is at most this value, or that of the parameter with this name.")]
    equals: Annotated[str, Doc("The value equals that of the parameter with this name.")]


Test = tuple[Scalar, ...] | Comparison
Clause = Mapping[str, Test]
Written = Mapping[str, Scalar | Sequence[Scalar] | Comparison]  # a clause as in a campaign file
When = Written | Sequence[Written]

OPERATORS = ("above", "below", "at_least", "at_most", "equals")


def clauses_of(written: When) -> tuple[Clause, ...]:
    """Return clauses in this module's form. Raises ValueError if they are invalid."""
    several = written if isinstance(written, list | tuple) else (written,)
    for clause in several:
        if not isinstance(clause, Mapping) or not clause:
            raise ValueError(f"must map parameters to values, such as {{model: [svm]}}, got {clause!r}")
    if not several:
        raise ValueError("must hold at least one condition, got none")
    return tuple({str(name): _test(str(name), test) for name, test in clause.items()} for clause in several)


def _test(name: str, test: object) -> Test:
    if isinstance(test, Mapping):
        return _comparison(name, test)
    values = tuple(test) if isinstance(test, list | tuple) else (test,)
    if not values:
        raise ValueError(f"{name} must be compared with at least one value, got none")
    for value in values:
        if not isinstance(value, str | int | float | bool | None):
            raise ValueError(f"{name} must be compared with plain values, got {value!r}")
    return values


def _comparison(name: str, test: Mapping[object, object]) -> Comparison:
    if not test or not set(test) <= set(OPERATORS):
        raise ValueError(
            f"{name} must be compared by {', '.join(OPERATORS)}, got {', '.join(map(str, test)) or 'none'}"
        )
    comparison = Comparison()
    for operator in filter(test.__contains__, OPERATORS):
        bound = test[operator]
        is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
        if operator == "equals":
            if not isinstance(bound, str):
                raise ValueError(
                    f"{name}.equals must name another parameter, got {bound!r}; write a value as {name}: …"
                )
            comparison["equals"] = bound
        elif isinstance(bound, str) or is_number:
            comparison[operator] = bound  # type: ignore[literal-required]  # one of OPERATORS
        else:
            raise ValueError(f"{name}.{operator} must be a number or name a parameter, got {bound!r}")
    return comparison


@dataclass(frozen=True, slots=True)
class Operand:
    """A test in a clause: a parameter, an operator and a bound."""

    name: str  # the compared parameter
    operator: str  # `in` or one of `OPERATORS`
    bound: tuple[Scalar, ...] | float | str  # a value, a parameter, or the values for `in`

    @property
    def other(self) -> str | None:
        """The parameter in `bound`; None if `bound` is a value."""
        return self.bound if isinstance(self.bound, str) else None


def operands(clause: Clause) -> Iterator[Operand]:
    """Yield the individual tests of `clause`."""
    for name, test in clause.items():
        if isinstance(test, tuple):
            yield Operand(name, "in", test)
        else:
            for operator, bound in test.items():
                yield Operand(name, operator, bound)  # type: ignore[arg-type]  # values of the TypedDict


def names_in(clauses: Sequence[Clause]) -> list[str]:
    """Return the distinct parameters in `clauses`, in order."""
    names = [name for clause in clauses for operand in operands(clause) for name in (operand.name, operand.other)]
    return list(dict.fromkeys(name for name in names if name is not None))


def wording(clauses: Sequence[Clause]) -> str:
    """Return `clauses` as text: `model is svm and depth > 3, or …`."""
    return ", or ".join(" and ".join(map(_words, operands(clause))) for clause in clauses)


_SIGNS = {"above": ">", "below": "<", "at_least": ">=", "at_most": "<=", "equals": "="}


def _words(operand: Operand) -> str:
    if isinstance(operand.bound, tuple):
        return f"{operand.name} is {' or '.join(map(str, operand.bound))}"
    return f"{operand.name} {_SIGNS[operand.operator]} {operand.bound}"
