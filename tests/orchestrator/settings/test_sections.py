"""Names of campaigns, and budgets with their stop
rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bbkb.orchestrator.campaign.settings import Name, StopWhen, name_from, plain, without_implied
from bbkb.orchestrator.cli.plan import _facts
from bbkb.orchestrator.settings.loading import from_mapping
from tests.orchestrator.settings.small import SMALL

NAMES: TypeAdapter[str] = TypeAdapter(Name)


@given(st.text("aZ0_.-< é…\n", max_size=100))
def test_name_from_any_text_is_allowed_and_allowed_names_are_unchanged(text: str) -> None:
    name = name_from(text)
    assert NAMES.validate_python(name) == name
    assert name_from(name) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("train", "train"),
        ("my_train-2.1", "my_train-2.1"),
        ("<lambda>", "lambda"),
        ("my größe", "my-gr-e"),
        ("__init__", "init"),
        ("a" * 70, "a" * 64),
        ("…", "campaign"),
    ],
)
def test_letters_that_are_not_allowed_become_a_hyphen(text: str, name: str) -> None:
    assert name_from(text) == name


def test_without_implied_removes_evaluations_that_follow_from_steps() -> None:
    tree = {"name": "demo", "budget": {"steps": 800, "evaluations": 800, "hours": 2.0}}
    assert without_implied(tree) == {"name": "demo", "budget": {"steps": 800, "hours": 2.0}}
    for budget in ({"steps": 800, "evaluations": 50}, {"steps": None, "evaluations": 50}, {}):
        assert without_implied({"budget": budget}) == {"budget": budget}


def test_stop_rules_are_read_written_and_read_again() -> None:
    rules = {"no_gain_of": 0.001, "in": 64, "expected_gain_below": "noise"}
    settings = from_mapping({**SMALL, "budget": {"evaluations": 5, "stop_when": rules}})
    assert from_mapping(plain(settings)) == settings
    expected = StopWhen(no_gain_of=0.001, within=64, expected_gain_below="noise")
    assert settings.budget.stop_when == expected
    assert from_mapping(SMALL).budget.stop_when is None
    ends = "5 evaluations or no gain of 0.001 in 64 evaluations or an expected gain below noise"
    assert dict(_facts(settings, None))["ends after"] == ends
