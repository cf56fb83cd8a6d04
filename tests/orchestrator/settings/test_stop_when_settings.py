"""`budget.stop_when` in campaign files."""

from typing import Any

import jsonschema
import pytest

from orchestrator.campaign.stop_when import StopWhen
from orchestrator.cli.plan import _facts
from orchestrator.errors import ConfigError
from orchestrator.session.rules import rules_of
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.settings.schema import schema


def settings_with(stop_when: Any, **sections: Any) -> Settings:
    budget = {"evaluations": 5, "stop_when": stop_when}
    return from_mapping({"name": "x", "objective": {"name": "branin"}, "budget": budget, **sections})


def test_stop_rules_are_read_written_and_read_again() -> None:
    settings = settings_with({"no_gain_of": 0.001, "in": 64, "expected_gain_below": "noise"})
    assert from_mapping(settings.resolved()) == settings
    expected = StopWhen(no_gain_of=0.001, within=64, expected_gain_below="noise", patience=2)
    assert rules_of(settings).stop_when == expected
    assert dict(_facts(settings, None))["ends after"] == (
        "5 evaluations or no gain of 0.001 in 64 evaluations or an expected gain below noise"
    )


def test_stop_when_is_not_resolved_without_a_rule() -> None:
    assert rules_of(settings_with(None)).stop_when is None


@pytest.mark.parametrize(
    ("stop_when", "message"),
    [
        ({"no_gain_of": 0.1}, "budget.stop_when must have in too, such as {no_gain_of: 0.001, in: 64}"),
        ({"in": 64}, "budget.stop_when must have no_gain_of too"),
        ({"patience": 3}, "budget.stop_when must have no_gain_of and in, or expected_gain_below"),
        ({"no_gain_of": 0, "in": 4}, "budget.stop_when.no_gain_of must be > 0"),
        ({"expected_gain_below": "nothing"}, "budget.stop_when.expected_gain_below"),
        ({"no_gain": 1}, "budget.stop_when.no_gain is not a known key"),
    ],
)
def test_mistake_is_named_with_its_place(stop_when: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_with(stop_when)
    assert message in str(error.value)


def test_no_gain_is_refused_with_several_objectives() -> None:
    with pytest.raises(ConfigError, match=r"budget.stop_when must not be given beside several objectives"):
        settings_with({"expected_gain_below": 1}, objectives=[{"metric": "a"}, {"metric": "b"}])


def test_schema_accepts_the_stop_rules() -> None:
    file = {
        "name": "x",
        "objective": {"name": "branin"},
        "budget": {"evaluations": 5, "stop_when": {"no_gain_of": 0.001, "in": 64}},
    }
    jsonschema.validate(file, schema())
