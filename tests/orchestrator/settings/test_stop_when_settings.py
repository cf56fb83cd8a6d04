"""`budget.stop_when` in campaign files."""

from typing import Any

import jsonschema

from orchestrator.campaign.stop_when import StopWhen
from orchestrator.cli.plan import _facts
from orchestrator.session.rules import rules_of
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.settings.schema import schema
from tests.orchestrator.settings.small import SMALL


def settings_with(stop_when: Any) -> Settings:
    return from_mapping({**SMALL, "budget": {"evaluations": 5, "stop_when": stop_when}})


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


def test_schema_accepts_the_stop_rules() -> None:
    budget = {"evaluations": 5, "stop_when": {"no_gain_of": 0.001, "in": 64}}
    jsonschema.validate({**SMALL, "budget": budget}, schema())
