"""Rules of the campaign file that pydantic's schema leaves out, as JSON Schema.

What needs several keys stands here as `if` and `then`. What JSON Schema cannot say stays with `bbkb validate`: that
`low` is below `high` and a whole number of steps below it, one weight a choice, names and values of parameters in
another section (`forbid`, `enqueue`, `when`, a command's placeholders), quotes in a command, what lies in files, and
names that an optional package defines.
"""

from typing import Any

from objectives.conditions import OPERATORS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}
_ROW: Schema = {"type": "object", "minProperties": 1, "additionalProperties": _SCALAR}
_SOURCES = ("name", "callable", "command", "function")
_STORE = r"^(sqlite$|\$\{|sqlite(\+[^:]*)?:///.|postgres(ql)?(\+[^:]*)?://)"
_NAME = r"^[^\s\d!-/:-@\[-\^`{-~][^\s!-,/;-@\[-\^`{-~]*$"  # as in `spaces`, in the syntax of all dialects


def _numbers_of(field: Schema) -> list[Schema]:
    """The parts of a field's schema that are plain numbers without a bound."""
    parts = [field, *field.get("anyOf", [])]
    return [part for part in parts if part.get("type") in ("integer", "number") and "const" not in part]


def add_parameter_rules(definitions: Schema) -> None:
    """Add the checks of the kinds of parameters."""
    integer: Schema = {"type": "integer"}
    _extend(definitions["Range"], "step", {"exclusiveMinimum": 0})
    definitions["Range"]["allOf"] = [
        _when({"log": {"const": True}}, {"low": {"exclusiveMinimum": 0}}),
        _when({"integer": {"const": True}}, {"low": integer, "high": integer}),
    ]
    for kind, values in (("Choice", "choices"), ("Ordered", "ordered")):
        definitions[kind]["properties"][values] |= {"minItems": 1, "uniqueItems": True}
    for part in definitions["Choice"]["properties"]["weights"].get("anyOf", []):
        if part.get("type") == "array":
            part["items"] |= {"exclusiveMinimum": 0}


def add_section_rules(sections: Schema, definitions: Schema) -> list[Schema]:
    """Add the rules inside the sections; returns those between sections, for the top level."""
    test = {"anyOf": [_SCALAR, {"type": "array", "minItems": 1, "items": _SCALAR}, _comparison()]}
    sections["forbid"]["items"] |= {"additionalProperties": test}
    sections["enqueue"]["items"] = _ROW
    sections["store"]["pattern"] = _STORE
    sections["existing_data"] |= {"anyOf": [*_existing_forms(), {"type": "null"}]}
    definitions["WorkerSettings"]["allOf"] = [
        _when({"retry_memory_factor": {"type": "number"}}, {"memory_gb": {"type": "number"}}, ("memory_gb",))
    ]
    definitions["NotifySettings"]["anyOf"] = [_having("command"), _having("webhook")]
    return [_objective_or_target(), _space_or_table(), _space_of_ones_own()]


def name_rule() -> Schema:
    """What parameters may be named: letters of any language, which the dialects of patterns do not agree on."""
    return {"pattern": _NAME}


def _comparison() -> Schema:
    values: Schema = {"type": ["string", "number"]}
    names = dict.fromkeys(OPERATORS, values)
    return {"type": "object", "minProperties": 1, "properties": names, "additionalProperties": False}


def _existing_forms() -> list[Schema]:
    row = {
        "type": "object",
        "properties": {"parameters": _ROW, "value": {"type": "number"}},
        "required": ["parameters", "value"],
        "additionalProperties": False,
    }
    results: Schema = {"type": "array", "minItems": 1, "items": row}
    return [
        _close({"optuna": _TEXT, "study": _TEXT}, ["optuna"]),
        _close({"ray_tune": _TEXT, "metric": _TEXT}, ["ray_tune", "metric"]),
        _close({"results": results, "source": _TEXT}, ["results"]),
    ]


def _close(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _having(key: str) -> Schema:
    """The key is given, and is text."""
    return {"properties": {key: _TEXT}, "required": [key]}


def _with_table(key: str) -> Schema:
    """The section `candidates` gives this key."""
    return {"properties": {"candidates": _having(key)}, "required": ["candidates"]}


def _objective_or_target() -> Schema:
    """A table with a target is the objective; else exactly one source is."""
    alternatives = [
        {"allOf": [_having(key), *({"not": _having(other)} for other in _SOURCES if other != key)]} for key in _SOURCES
    ]
    none = {"allOf": [{"not": _having(key)} for key in _SOURCES]}
    return {
        "if": _with_table("target"),
        "then": {"properties": {"candidates": _having("table"), "objective": none}},
        "else": {"properties": {"objective": {"anyOf": alternatives}}, "required": ["objective"]},
    }


def _space_or_table() -> Schema:
    return {"if": _with_table("table"), "then": {"properties": {"space": {"type": "object", "maxProperties": 0}}}}


def _space_of_ones_own() -> Schema:
    """A callable, a command and a function bring no space."""
    bare = [{"properties": {"objective": _having(key)}, "required": ["objective"]} for key in _SOURCES[1:]]
    filled = {"anyOf": [_TEXT, {"type": "object", "minProperties": 1}]}
    return {
        "if": {"anyOf": bare, "not": _with_table("table")},
        "then": {"properties": {"space": filled}, "required": ["space"]},
    }


def _when(condition: Schema, properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    then: Schema = {"properties": properties, "required": list(required)}
    return {"if": {"properties": condition, "required": list(condition)}, "then": then}


def _extend(definition: Schema, name: str, rule: Schema) -> None:
    """Add a rule to the numbers that a field may be."""
    for number in _numbers_of(definition["properties"][name]):
        number |= rule
