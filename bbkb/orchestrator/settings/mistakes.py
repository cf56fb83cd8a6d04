"""The mistakes in a campaign file, in plain words.

pydantic finds the mistakes. This module converts them to predicates about a dotted path ("must be >
0, got -1"), without class names, links, or one line for every member of a union. The checks of this
project have messages of the same form.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from itertools import chain
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bbkb.objectives.errors import did_you_mean, meaning, nearest, suggestion
from bbkb.orchestrator.annotations import annotations_of, dataclasses_in
from bbkb.orchestrator.bandit.options import REFUSED
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.yaml_file import Document, Keys, dotted_key

# pydantic's error types → the rule; {…} is filled in from the error's context
_RULES = {
    "missing": "is required",
    "greater_than": "must be > {gt:.12g}",
    "greater_than_equal": "must be >= {ge:.12g}",
    "less_than": "must be < {lt:.12g}",
    "less_than_equal": "must be <= {le:.12g}",
    "multiple_of": "must be a multiple of {multiple_of:.12g}",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    **dict.fromkeys(
        ("dict_type", "mapping_type", "dataclass_type", "dataclass_exact_type"),
        "must be a mapping",
    ),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
}
_NAMED_KEYS = 4  # of a section, listed in a message
_TYPES = {"int": "a whole number", "float": "a number", "string": "text", "bool": "true or false", "none": "null"}
# a duration as text, such as 10m → its unit in seconds
_DURATION = re.compile(r"^\s*([0-9.]+)\s*(s|sec|m|min|h|d)\w*\s*$")
_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
# the ending of a key that holds a duration → its unit in seconds
_UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
_QUOTED = re.compile("'([^']*)'")
_VERBS = ("must", "needs", "is", "has")  # words that begin a predicate
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass(frozen=True)
class Refusal:
    """A mistake in the settings."""

    keys: Keys  # the path of the value
    rule: str  # a predicate that follows the place, or a sentence after `: `
    got: str = ""  # the rejected value; empty if the rule does not need it
    meant: Keys = ()  # of an unknown key: the path of the key that was probably meant

    def __str__(self) -> str:
        got = f", got {self.got}" if self.got else ""
        return f"{dotted_key(self.keys)}{'' if self.rule.startswith(':') else ' '}{self.rule}{got}"

    def below(self, *keys: str | int) -> "Refusal":
        """Return the same mistake, with `keys` before its own keys."""
        return replace(self, keys=(*keys, *self.keys), meant=self.meant and (*keys, *self.meant))


class RefusalError(ValueError):
    """The mistakes in a value."""

    def __init__(self, problems: Iterable[Refusal]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def describe(error: ValidationError, tree: object, model: type | None = None) -> list[Refusal]:
    """Return the mistakes in `tree` that pydantic found. The dataclass `model` defines the valid
    keys."""
    found = [each for details in error.errors(include_url=False) for each in _describe_details(details, tree, model)]
    # only the mistakes of a union's member that was validated furthest; if several got equally far: A or B
    problems: dict[tuple[Keys, str | None], Refusal] = {}
    for problem, union in found:
        rivals = [rival.keys for rival, other in found if union is not None and other == union]
        if rivals and len(problem.keys) < max(map(len, rivals)):
            continue
        key = (problem.keys, problem.rule if union is None else None)
        first = problems.setdefault(key, problem)
        alternative = problem.rule.removeprefix("must be ")
        if alternative != problem.rule and alternative not in first.rule:
            problems[key] = replace(first, rule=f"{first.rule} or {alternative}")
    return without_meant([*problems.values()])


def without_meant(problems: Sequence[Refusal]) -> list[Refusal]:
    """Return the problems without those of keys that are missing because they are misspelled."""
    meant = {each.meant[: depth + 1] for each in problems for depth in range(len(each.meant))}
    return [each for each in problems if each.rule != "is required" or each.keys not in meant]


def config_error(document: Document, problems: Iterable[Refusal]) -> ConfigError:
    """Return one line for each mistake, with its place, in the order of the file."""
    order = {place: index for index, place in enumerate(document.places.values())}
    ordered = sorted(problems, key=lambda problem: order.get(document.place(problem.keys), -1))
    lines = [f"{document.place(problem.keys)}: {problem}" for problem in ordered]
    return ConfigError("\n".join(dict.fromkeys(lines)))


def align(keys: Keys, message: str, value: object = None) -> Refusal:
    """Return the problem at `keys` from a message that has its own path (`kernel.x must be …`)."""
    subject, _, rule = message.partition(" ")
    if subject in _VERBS:
        is_plain = isinstance(value, str | int | float) and ", got " not in message
        return Refusal(keys, message, excerpt(value) if is_plain else "")
    path: Keys = tuple(subject.rstrip(":").split("."))
    rule = f": {rule}" if subject.endswith(":") else rule
    if isinstance(value, Mapping) and path[0] in value:
        return Refusal(keys + path, rule)
    if path[0] in keys:
        start = len(keys) - 1 - keys[::-1].index(path[0])
        return Refusal(keys[:start] + path, rule)
    return Refusal(keys, f": {message}")


def unknown_key(key: str | int, choices: Sequence[str]) -> Refusal:
    """Return the problem of an unknown key, with a similar one or, if known, all valid ones."""
    if key == "type" and "low" in choices:
        return Refusal((key,), "is not a known key; leave it out, or write integer: true")
    section, dot, rest = str(key).partition(".")
    if dot and section in choices:
        rule = f"is not a known key; write {section}: {{{rest}: …}}"
        return Refusal((key,), rule, meant=(section, rest))
    meant = nearest(str(key), choices)
    hint = f"; {suggestion(str(key), choices)}" if choices else ""
    return Refusal((key,), f"is not a known key{hint}", meant=(meant,) if meant else ())


def unknown_in(model: type | None, keys: Keys, loc: Keys) -> Refusal:
    """Return the problem of an unknown key, which may belong to a section if it is at the top.
    `loc` is pydantic's path of the key, with the names of the members of unions; `keys` is the path
    in the file."""
    key = str(keys[-1])
    sections = _sections_at(model, keys[:-1])
    chosen = [section for section in sections if _selector(section)[1] in loc] or sections
    existing = _names_in(chosen)
    fields = {} if model is None else annotations_of(model)
    names = {
        name: _names_in(dataclasses_in(annotation))
        for name, annotation in fields.items()
        if get_origin(_bare(annotation)) is not tuple
    }
    if len(keys) == 1:
        # such as `time`, which means budget.hours; or the same key of a section, unless a section has this meaning
        owned = ((section, name) for section, inner in names.items() if (name := meaning(key, inner)))
        same = ((section, key) for section, inner in names.items() if key in inner and not meaning(key, list(fields)))
        if meant := next(chain(owned, same), ()):
            return Refusal(keys, f"is not a known key; did you mean {'.'.join(meant)!r}?", meant=meant)
    owners = [_selector(section) for section in sections if key in _names_in([section])]
    if owners and all(name for name, _ in owners):
        return Refusal(keys, f"needs {' or '.join(map(': '.join, owners))}")
    is_in_list = any(isinstance(each, int) for each in keys)  # an entry of a list has keys of its own
    if len(keys) > 1 and not is_in_list and meaning(key, existing) is None:
        # the key of another section, or of the top, in a wrong place
        places: dict[str, tuple[str, ...]] = {
            name: (section, name)
            for section, inner in names.items()
            for name in inner
            if section not in ("space", keys[0])
        }
        places |= {name: (name,) for name in fields if name != keys[0]}
        if place := places.get(meaning(key, [*places]) or key):
            hint = f"did you mean {'.'.join(place)!r}{'' if len(place) > 1 else ' at the top level'}?"
            return Refusal(keys, f"is not a known key; {hint}", meant=place)
    return unknown_key(key, existing).below(*keys[:-1])


def _duration_hint(key: str, value: object) -> str:
    """Return `; write 600` for the value `10m` of a key such as `timeout_seconds`."""
    unit = next((seconds for ending, seconds in _UNITS.items() if key.endswith(ending)), None)
    duration = _DURATION.match(value) if isinstance(value, str) else None
    if unit is None or duration is None:
        return ""
    number, name = duration.groups()
    try:
        return f"; write {float(number) * _SECONDS[name] / unit:.6g}"
    except ValueError:  # such as 1.2.3h
        return ""


def excerpt(value: object) -> str:
    """Return a value as written in a file, cut at 60 characters."""
    text = redact(json.dumps(value, ensure_ascii=False, default=repr))
    return text if len(text) <= 60 else text[:57] + "…"


# a problem, and the path of the union whose members pydantic tried, if there is one
_Found = tuple[Refusal, Keys | None]


def _describe_details(details: ErrorDetails, tree: object, model: type | None) -> list[_Found]:
    loc = details["loc"]  # with the names of the members of unions
    kind = details["type"]
    ctx = details.get("ctx", {})
    keys, union = _place_in_file(loc, tree, kind)
    if kind in ("value_error", "assertion_error"):
        error = ctx["error"]
        if isinstance(error, RefusalError):
            return [(problem.below(*keys), None) for problem in error.problems]
        return [(align(keys, str(error), details["input"]), union)]
    if kind == REFUSED:
        return [(Refusal(keys, details["msg"]), None)]
    if kind in ("union_tag_invalid", "union_tag_not_found"):  # a key such as `rule` selects no member
        key = ctx["discriminator"].strip("'")
        if "tag" not in ctx:
            tags = [_selector(section)[1] for section in _sections_at(model, keys)]
            return [(Refusal((*keys, key), f"is required: one of {', '.join(tags)}"), None)]
        *first, last = map(repr, _QUOTED.findall(ctx["expected_tags"]))
        return [(Refusal((*keys, key), f"must be {', '.join(first)} or {last}", excerpt(ctx["tag"])), None)]
    if kind in _UNKNOWN:
        return [(unknown_in(model, keys, loc), union)]
    got = "" if kind == "missing" else excerpt(details["input"])
    if kind == "model_attributes_type":  # of a union that a key of a mapping selects
        examples = [": ".join(_selector(section)) for section in _sections_at(model, keys)]
        return [(Refusal(keys, f"must be a mapping such as {{{next(iter(examples), '…')}}}", got), None)]
    if keys and kind in ("float_type", "float_parsing", "int_type"):
        got += _duration_hint(str(keys[-1]), details["input"])
    if kind == "literal_error":
        got += did_you_mean(str(details["input"]), _QUOTED.findall(ctx["expected"]))
    rule = re.sub(r"^(Input|Value|String) should", "must", details["msg"])
    if kind in _RULES:
        rule = _RULES[kind].format_map(ctx)
    elif (family := kind.partition("_")[0]) in _TYPES and kind.endswith(("_type", "_parsing", "_parsing_size")):
        rule = f"must be {_TYPES[family]}"
    existing = _names_in(_sections_at(model, keys))
    if kind == "dataclass_type" and existing:
        ending = ["…"] * (len(existing) > _NAMED_KEYS)
        rule += f" with keys such as {', '.join([*existing[:_NAMED_KEYS], *ending])}"
    return [(Refusal(keys, rule, got), union)]


def _place_in_file(loc: Keys, tree: Any, kind: str) -> tuple[Keys, Keys | None]:
    """Return the part of `loc` that is written in the file, without the names of a union's
    members, and the path of that union."""
    keys: list[str | int] = []
    union: Keys | None = None
    for depth, part in enumerate(loc):
        is_list = isinstance(tree, Sequence) and not isinstance(tree, str) and isinstance(part, int)
        if (isinstance(tree, Mapping) and part in tree) or (is_list and int(part) < len(tree)):
            tree = tree[part]
        elif not (kind == "missing" and depth == len(loc) - 1):
            union = tuple(keys) if union is None else union
            continue
        keys.append(part)
    return tuple(keys), union


def _sections_at(model: type | None, keys: Keys) -> list[type]:
    """List the possible sections at `keys`. A number in `keys` is an index in a list."""
    models = [model] if model else []
    for key in keys:
        if isinstance(key, str):
            annotations = [annotations_of(model)[key] for model in models if key in annotations_of(model)]
            models = [section for annotation in annotations for section in dataclasses_in(annotation)]
    return models


def _names_in(sections: Iterable[type]) -> list[str]:
    return list(dict.fromkeys(key for section in sections for key in annotations_of(section)))


def _selector(section: type) -> tuple[str, str]:
    """Return the key, such as `rule`, and its only value that select a section of a union.

    Without such a key, return an empty text and the tag of a source of known results.
    """
    for key, annotation in annotations_of(section).items():
        plain = _bare(annotation)
        match get_args(plain):
            case (str(value),) if get_origin(plain) is Literal:
                return key, value
    required = (field.name for field in fields(section) if field.default is field.default_factory is MISSING)
    return "", next((f"a {name}" for name in required), "")


def _bare(annotation: object) -> object:
    """Return the type of an annotation, without its metadata."""
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
