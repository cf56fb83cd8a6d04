"""Any returned or raised value of an objective gives an outcome that can be stored and read
again."""

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.objectives.returned import as_evaluation
from bbkb.orchestrator.campaign.events import SessionClosed, SessionOutcome, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.orchestrator.store.store import EventStore
from bbkb.workers.evaluate import evaluate
from bbkb.workers.messages import Attempt, Limits
from tests.fuzz.examples import check_examples, few_or_many, values


class Hostile:
    """Fails at every operation."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __float__(self) -> float:
        raise KeyboardInterrupt

    def __repr__(self) -> str:
        raise SystemExit(3)

    def __str__(self) -> str:
        raise RecursionError


class Endless(dict[Any, Any]):
    """A mapping with inconsistent methods."""

    def items(self) -> Any:
        raise ValueError("\ud800 no text")

    def __iter__(self) -> Iterator[Any]:
        return iter(["value", 3, None])


class Raised(BaseException):
    """An exception of an objective; its message is any text."""


ODDITIES: list[Any] = [
    Hostile(), Endless(value=1.0), np.float32(0.5), np.array(2.0), np.array([1.0, 2.0]),
    np.bool_(True), 1j, Decimal("NaN"), Decimal("1e400"), Fraction(1, 3), b"1", bytearray(b"x"),
    object(), type, 10**5000, -0.0, math.nan, math.inf, "0.5", np.datetime64("now"), {1, 2},
    range(3), iter([1]), memoryview(b"x"),
]  # fmt: skip
# by number, since a failing example is shown
ODD = st.integers(0, len(ODDITIES) - 1).map(lambda number: ("odd", number))
ACTED = st.tuples(
    st.sampled_from(["return", "raise", "evaluation"]),
    ODD | values | st.dictionaries(st.text(max_size=8) | ODD, ODD | values, max_size=4),
    st.booleans(),
    st.text(max_size=40),
)


def resolve(example: Any) -> Any:
    """The example with the objects themselves instead of their numbers."""
    match example:
        case ("odd", int() as number):
            return ODDITIES[number]
        case dict():
            return {resolve(key) if is_hashable(resolve(key)) else "key": resolve(example[key]) for key in example}
        case _:
            return example


def is_hashable(value: Any) -> bool:
    """Return whether the value can be a key of a mapping."""
    return type(value).__hash__ is not None


class Objective:
    """An objective that acts as an example specifies."""

    def __init__(self, acted: tuple[str, Any, bool, str]) -> None:
        self.how, what, has_value, self.text = acted
        self.what = resolve(what)
        if has_value:
            self.what = {**(self.what if type(self.what) is dict else {"other": self.what}), "value": 1.0}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        report(self.what, seed)
        if self.how == "raise":
            raise Raised(self.text, self.what)
        if self.how == "evaluation":
            return Evaluation(self.what, self.what)
        return as_evaluation(self.what, self.text)


@few_or_many
def test_attempt_has_an_outcome_that_can_be_stored(tmp_path: Path, examples: int) -> None:
    store = EventStore(f"sqlite:///{tmp_path / 'c.sqlite'}")
    store.create("c", [SessionClosed(time=0.0, outcome=SessionOutcome.FINISHED, reason="")])
    writer = store.claim("c", "test")
    outcomes: list[TrialFailed | TrialSucceeded] = []

    def check(acted: Any) -> None:
        outcome = evaluate(Objective(acted), Attempt(0, 0, {}, 1), Limits())
        assert not isinstance(outcome, TrialStopped)
        assert isinstance(outcome, TrialFailed) or math.isfinite(outcome.value)
        outcomes.append(outcome)

    check_examples(examples, ACTED, check)
    writer.append(outcomes)
    # as texts, because a report may hold NaN, which differs from itself
    assert [repr(event) for event in store.read("c", after=1)] == [repr(outcome) for outcome in outcomes]
    store.close()
