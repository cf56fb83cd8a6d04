"""Tests of orchestrator/settings/schema.py: the schema accepts exactly the files that load."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bbkb.orchestrator.annotations import Section
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign import settings as campaign_settings
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.settings.loading import load
from bbkb.orchestrator.settings.schema import schema
from bbkb.orchestrator.yaml_file import read
from tests.orchestrator.settings.small import SMALL

CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_schema_follows_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_campaign_conforms_as_written_and_as_resolved(path: Path) -> None:
    VALIDATOR.validate(read(path).tree)
    VALIDATOR.validate(plain(load(path)))


@pytest.mark.parametrize(
    "change",
    [
        {"worker": {}},
        {"budget": {}},
        {"seed": -1},
        {"strategy": {"name": "bbkbb"}},
        {"strategy": {"name": "bbkb", "regularisation": 1}},
        {"strategy": {"kernel": {"lengthscale": 1}}},
        {"strategy": {"kernel": {"name": "rfb"}}},
        {"strategy": {"name": "uniform", "kernel": {"name": "rbf"}}},
        {"space": {"a": {"low": 1}}},
        {"space": {"a": {"low": 1, "high": 2, "choices": [1]}}},
        {"objective": {"name": "brannin"}},
        {"objective": {"name": "branin", "options": {"noise": 1}}},
        {"objective": {"callable": "m:f", "direction": "maximize", "options": {"path": "m"}}},
        {"objective": {"command": "ls", "direction": "maximize", "options": {"command": "m", "direction": "maximize"}}},
        {"workers": {"executor": "cloud"}},
        {"budget": {"hours": 5}},
        {"constraints": [{"metric": "a"}]},
        {"objectives": [{"metric": "a", "direction": "up"}]},
    ],
)
def test_wrong_campaign_does_not_conform(change: dict[str, Any]) -> None:
    VALIDATOR.validate(SMALL)
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({**SMALL, **change})


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"space": {"a": {"low": 0, "high": 1}, "b": {"low": 1, "hihg": 2}}}, ["space", "b"], "hihg"),
        ({"space": {"a": {"choices": [1], "weights": "x"}}}, ["space", "a", "weights"], "'x'"),
        ({"space": {"a": {"constant": 1, "log": True}}}, ["space", "a"], "log"),
        ({"space": [1]}, ["space"], "'object'"),
        ({"strategy": {"name": "gp_ucb", "deltaa": 1}}, ["strategy"], "deltaa"),
        ({"strategy": {"delta": "x"}}, ["strategy", "delta"], "'x'"),
        ({"strategy": "nothing"}, ["strategy"], "nothing"),
        ({"early_stopping": {"rule": "median", "after": 0}}, ["early_stopping", "after"], "minimum"),
        ({"early_stopping": {"rule": "hyperband"}}, ["early_stopping", "rule"], "hyperband"),
        ({"early_stopping": {"reduction": 2}}, ["early_stopping"], "reduction"),
    ],
)
def test_mistake_is_shown_at_its_key_and_not_at_the_section(
    change: dict[str, Any], place: list[str], words: str
) -> None:
    errors = list(VALIDATOR.iter_errors({**SMALL, **change}))
    assert {tuple(error.absolute_path) for error in errors} == {tuple(place)}
    assert any(words in error.message for error in errors)


@pytest.mark.parametrize(
    "change",
    [
        {"budget": {"steps": 5}},
        {"budget": {"evaluations": 5, "stop_when": {"no_gain_of": 0.001, "in": 64}}},
        {"objectives": [{"metric": "a"}, {"metric": "b", "direction": "minimize"}]},
        {"constraints": [{"metric": "a", "at_least": 1}]},
        {"strategy": {"name": "mine:Strategy", "whatever": 1}},
        {"objective": {"name": "mine:Objective", "options": {"whatever": 1}}},
    ],
)
def test_campaign_conforms(change: dict[str, Any]) -> None:
    VALIDATOR.validate({**SMALL, **change})


def _undocumented_fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        target = field.get("$ref", "").rpartition("/")[2]
        if not (field.get("description") or SCHEMA["$defs"].get(target, {}).get("description")):
            yield f"{path}.{name}"


def test_schema_describes_every_key_of_the_sections() -> None:
    sections = [name for name in SCHEMA["$defs"] if issubclass(getattr(campaign_settings, name, object), Section)]
    assert len(sections) >= 9
    missing = [
        *_undocumented_fields(SCHEMA, ""),
        *(m for name in sections for m in _undocumented_fields(SCHEMA["$defs"][name], name)),
    ]
    assert missing == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_schema_describes_every_hyper_parameter_of_a_strategy(name: str) -> None:
    (definition,) = [
        d for d in SCHEMA["$defs"].values() if d.get("properties", {}).get("name", {}).get("const") == name
    ]
    assert list(_undocumented_fields(definition, name)) == []
