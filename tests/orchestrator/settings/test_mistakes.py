"""Tests of orchestrator/settings/mistakes.py: pydantic's findings in plain words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import TypeAdapter, ValidationError

from bbkb.objectives.keywords import suggestion
from bbkb.orchestrator.settings.file import Document, Keys
from bbkb.orchestrator.settings.mistakes import (
    Refusal,
    config_error,
    describe,
    excerpt,
    unknown_key,
)


@dataclass(frozen=True)
class _Inner:
    size: float | tuple[float, ...] | None = None


@dataclass(frozen=True)
class _Outer:
    inner: _Inner
    kind: Literal["a", "b"] = "a"


def _problems_of(tree: Mapping[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as error:
        TypeAdapter(_Outer).validate_python(tree)
    return [str(problem) for problem in describe(error.value, tree, _Outer)]


def test_list_with_two_wrong_entries_has_two_mistakes() -> None:
    assert _problems_of({"inner": {"size": ["x", "y"]}}) == [
        'inner.size.0 must be a number, got "x"',
        'inner.size.1 must be a number, got "y"',
    ]


def test_lines_are_in_the_order_of_the_file_without_repetitions() -> None:
    places: dict[Keys, str] = {("a",): "f:1", ("b",): "f:2"}
    mistakes = [Refusal(("b",), "is odd"), Refusal(("a",), "is odd"), Refusal(("b",), "is odd")]
    error = config_error(Document({"a": 1, "b": 2}, places, "f"), mistakes)
    assert str(error).splitlines() == ["f:1: a is odd", "f:2: b is odd"]


def test_suggestions_name_similar_words_or_all() -> None:
    assert suggestion("budgett", ["budget", "seed"]) == "did you mean 'budget'?"
    assert suggestion("zzz", ["budget", "seed"]) == "valid names: budget, seed"


def test_synonym_is_reported_with_the_right_word() -> None:
    @dataclass
    class Sense:
        direction: Literal["maximize", "minimize"]

    for word, meant in (("min", "minimize"), ("max", "maximize"), ("minimise", "minimize")):
        with pytest.raises(ValidationError) as error:
            TypeAdapter(Sense).validate_python({"direction": word})
        (problem,) = describe(error.value, {"direction": word})
        assert str(problem) == (f"direction must be 'maximize' or 'minimize', got \"{word}\"; did you mean '{meant}'?")


def test_unknown_key_of_an_unknown_section_gets_no_list() -> None:
    assert str(unknown_key("x", [])) == "x is not a known key"


@pytest.mark.parametrize("value", ["x" * 1000, {"a": object()}, None, [1.5, "é"]])
def test_values_are_shown_on_one_short_line(value: object) -> None:
    assert 0 < len(excerpt(value)) <= 60
    assert "\n" not in excerpt(value)
