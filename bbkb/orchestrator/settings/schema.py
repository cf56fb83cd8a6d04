"""The campaign file as JSON Schema (draft 2020-12), for editors.

pydantic creates the schema of the sections; strategies, kernels, objectives and parameter kinds are
added as alternatives, one for each name. It covers keys, types and ranges; `bbkb validate` checks
rules between several keys.
"""

from typing import Any

from pydantic import TypeAdapter

from bbkb.objectives.parameters import Comparison
from bbkb.objectives.reference import OBJECTIVES, find_objective
from bbkb.orchestrator.annotations import documentation_of
from bbkb.orchestrator.bandit.kernels import KERNELS
from bbkb.orchestrator.bandit.start.warm_start import WARM_STARTS
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import Preset
from bbkb.orchestrator.campaign.goals import Constraint
from bbkb.orchestrator.campaign.settings import DEFAULT_STRATEGY, PARAMETERS, Settings
from bbkb.orchestrator.settings.options import EXTERNAL, adapter
from bbkb.orchestrator.settings.spaces import REPEAT

Schema = dict[str, Any]

_REFERENCE = {"type": "string", "pattern": "^[^:]+:[^:]+$", "description": "package.module:Name of a dataclass."}

_PRESET = "The source of options that are not given: one calibrated model for all strategies, or the paper."


def schema() -> Schema:
    """Return the JSON Schema of a campaign file, with a description of every key."""
    objectives: dict[str, type] = {name: find_objective(name) for name in OBJECTIVES}
    classes = [
        *STRATEGIES.values(),
        *PARAMETERS.values(),
        *objectives.values(),
        *(cls for cls, _, _ in EXTERNAL.values()),
    ]
    adapters = {cls: adapter(cls) for cls in (Settings, *classes)}
    schemas, document = TypeAdapter.json_schemas([(cls, "validation", each) for cls, each in adapters.items()])
    definitions: dict[str, Schema] = document["$defs"]
    by_class: dict[type, Schema] = {cls: schemas[cls, "validation"] for cls in adapters}
    for cls in (*classes, *KERNELS.values(), *WARM_STARTS.values(), Comparison):
        definition = definitions.get(cls.__name__, {})
        definition["additionalProperties"] = False
        for name, text in documentation_of(cls).items():
            definition.get("properties", {}).get(name, {})["description"] = text
        if "description" in definition:
            definition["description"] = definition["description"].partition("\n\nArgs:")[0]
    for definition in definitions.values():
        # a kernel or a warm start is selected by its name, although its class has a default
        named = definition.get("properties", {}).get("name", {})
        if "const" in named:
            definition["required"] = ["name", *definition.get("required", [])]
            named.setdefault("description", f"Picks {named['const']}.")
    for name, cls in STRATEGIES.items():
        definition = definitions[_target(by_class[cls])]
        picks: Schema = {"const": name, "description": f"Picks {name}."}
        definition["properties"] = {"name": picks, **definition.get("properties", {})}
        if name != DEFAULT_STRATEGY:
            definition["required"] = ["name", *definition.get("required", [])]
        if "model" in definition["properties"]:
            definition["properties"]["preset"] = {"enum": list(Preset), "description": _PRESET}
    for cls, field, _ in EXTERNAL.values():  # a key of the section `objective`, not an option
        definition = definitions[_target(by_class[cls])]
        del definition["properties"][field]
        definition["required"] = [name for name in definition.get("required", []) if name != field]

    settings = definitions.pop(_target(by_class[Settings]))
    sections: dict[str, Schema] = settings["properties"]
    budget = definitions[_target(sections["budget"])]
    budget["anyOf"] = [{"required": [key]} for key in ("evaluations", "steps")]
    del budget["required"]
    sections["strategy"] |= _strategy({name: by_class[cls] for name, cls in STRATEGIES.items()})
    named = {"type": "object", "additionalProperties": _parameter(by_class)}
    file = {"type": "string", "pattern": r"\.(json|yaml|yml)$", "description": "A file written by ConfigSpace."}
    sections["space"] |= {"if": {"type": "string"}, "then": file, "else": named}
    definitions[Constraint.__name__]["anyOf"] = [{"required": ["at_most"]}, {"required": ["at_least"]}]
    # `rule`, which defaults to `model`, selects the alternative in which mistakes are reported
    stopping = sections["early_stopping"]
    rules = next(kind for kind in stopping.pop("anyOf") if "oneOf" in kind)["discriminator"]["mapping"]
    stopping["type"] = ["object", "null"]
    stopping["properties"] = {"rule": {"enum": list(rules), "description": "The rule that stops trials."}}
    stopping["allOf"] = [
        _when({"rule": {"const": rule}}, {"$ref": reference}, is_default=rule == "model")
        for rule, reference in rules.items()
    ]
    mappings = {"type": "array", "items": {"type": "object", "minProperties": 1}}
    sections["forbid"] |= mappings
    sections["enqueue"] |= mappings
    # any options, which depend on the objective that the section names
    objective = definitions[_target(sections["objective"])]
    objective["properties"]["name"]["anyOf"] = [{"enum": list(objectives)}, _REFERENCE, {"type": "null"}]
    objective["properties"]["options"]["type"] = "object"
    options = [({"name": {"const": name}}, cls) for name, cls in objectives.items()]
    options += [({key: {"type": "string"}}, cls) for key, (cls, _, _) in EXTERNAL.items()]
    objective["allOf"] = [_when(given, {"properties": {"options": by_class[cls]}}) for given, cls in options]
    return {
        **settings,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "bbkb campaign file",
        "description": "One campaign: its objective, its search and its resources.",
        "$defs": definitions,
    }


def _target(reference: Schema) -> str:
    """Return the name of the definition to which `{"$ref": "#/$defs/name"}` refers."""
    return str(reference["$ref"]).rpartition("/")[2]


def _strategy(by_name: dict[str, Schema]) -> Schema:
    """Return the strategies with their options. The name selects one, so that a mistake is reported
    at its option, not as the failure of every strategy."""
    listed: Schema = {"enum": list(by_name), "description": "The name of a listed strategy."}
    named = [
        _when({"name": {"const": name}}, options, is_default=name == DEFAULT_STRATEGY)
        for name, options in by_name.items()
    ]
    name = {"anyOf": [listed, _REFERENCE]}
    with_options = {"type": "object", "properties": {"name": name}, "allOf": named}
    return {"if": {"type": "string"}, "then": name, "else": with_options}


def _parameter(by_class: dict[type, Schema]) -> Schema:
    """Return a parameter; its keys select the kind, as in `bbkb.orchestrator.settings.spaces`."""
    *keys, last = PARAMETERS
    schema = by_class[PARAMETERS[last]]
    for key in reversed(keys):
        schema = {"if": {"required": [key]}, "then": by_class[PARAMETERS[key]], "else": schema}
    block: Schema = {
        "properties": {
            REPEAT: {"type": "string", "description": "The integer parameter that gives the number of repetitions."},
            "space": {
                "type": "object",
                "additionalProperties": {"type": "object"},
                "description": "Parameters of the block: `units` of `layer` becomes `layer_1_units`, …",
            },
        },
        "required": [REPEAT, "space"],
        "additionalProperties": False,
    }
    return {"type": "object", "if": {"required": [REPEAT]}, "then": block, "else": schema}


def _when(given: Schema, then: Schema, is_default: bool = False) -> Schema:
    """Return an alternative for objects whose properties `given` have these schemas. The default
    also applies if they are missing."""
    return {"if": {"type": "object", "properties": given, "required": [] if is_default else list(given)}, "then": then}
