"""`bbkb.objectives.parameters`: The kinds of parameters of a search space."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from bbkb.objectives.parameters import Choice, Constant, Ordered, Parameter, Range

ADAPTER: TypeAdapter[Parameter] = TypeAdapter(Parameter)


@pytest.mark.parametrize(
    ("mapping", "parameter"),
    [
        ({"low": 1e-4, "high": 1, "log": True}, Range(1e-4, 1.0, log=True)),
        ({"low": 16, "high": 512, "log": True, "integer": True}, Range(16, 512, log=True, integer=True)),
        ({"choices": ["relu", True, 2, 0.5, None]}, Choice(("relu", True, 2, 0.5, None))),
        ({"ordered": [8, 16, 32]}, Ordered((8, 16, 32))),
        ({"constant": "adam"}, Constant("adam")),
    ],
)
def test_campaign_files_mapping_becomes_a_parameter(mapping: dict[str, Any], parameter: Parameter) -> None:
    built = ADAPTER.validate_python(mapping)
    assert built == parameter
    levels = getattr(built, "choices", ())
    assert [type(level) for level in levels] == [type(level) for level in mapping.get("choices", ())]


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: Range(1, 1), "low must be < high, got low=1, high=1; write a fixed value"),
        (lambda: Range(2, 1), "low must be < high, got low=2, high=1; swap the two"),
        (lambda: Range(0, 1, when="m"), "when: must map parameters to values"),  # type: ignore[arg-type]
        (lambda: Choice([[64, 64], [32]]), r"got \[64, 64\]; name each one"),  # type: ignore[arg-type]
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
