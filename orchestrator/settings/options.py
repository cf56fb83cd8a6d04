"""Frozen dataclasses built from a campaign file's mappings: a strategy, an objective's options.

Where a field may be one of several dataclasses (`kernel`, `warm_start`) the mapping's `name` picks one before pydantic
looks, so that a message is about the one that was meant.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from objectives.command import ShellCommand
from objectives.external import PythonCallable
from objectives.names import ObjectiveOptions, ReadsFiles, find_objective
from objectives.objective import ObjectiveError
from objectives.pickled import PickledFunction
from objectives.reference import import_reference
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategies.presets import with_preset
from orchestrator.bandit.strategy import AnyStrategy
from orchestrator.errors import ConfigError
from orchestrator.settings.file import Document, Plain, Tree
from orchestrator.settings.problems import Problem, describe, failure, shown, suggestion, unknown_key

DEFAULT_STRATEGY = "bbkb"
External = PythonCallable | ShellCommand | PickledFunction  # objectives that the campaign file names or writes itself
AnyObjective = ObjectiveOptions | External
OBJECTIVE_KEYS = ("name", "callable", "command", "function")
RETIRED = {"fillers": "picks for idle workers raised the regret and kept fewer workers busy"}

# key in the file → class, the field that holds the key's value, and fields that name folders with their defaults
_EXTERNAL: Mapping[str, tuple[type, str, Mapping[str, Callable[[], object]]]] = {
    "callable": (PythonCallable, "path", {"search_paths": lambda: [".", str(Path.cwd())]}),
    "command": (ShellCommand, "command", {"working_directory": lambda: "."}),
    "function": (PickledFunction, "path", {}),
}


@functools.cache
def adapter(cls: type) -> TypeAdapter[Any]:
    """pydantic's view of a dataclass."""
    return TypeAdapter(cls)


def dump(options: object) -> Plain:
    """A dataclass as plain values, all defaults filled in; `build(type(options), dump(options)) == options`."""
    cls: type = type(options)
    dumped: Plain = adapter(cls).dump_python(options, mode="json")
    return dumped


def build(cls: type, options: Tree) -> Any:
    """`cls(**options)`, checked. Raises pydantic's ValidationError holding everything that is wrong."""
    hints = get_type_hints(cls, include_extras=True)
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    problems = [unknown_key(key, known) for key in options if key not in known]
    values: Plain = {}
    for key in filter(options.__contains__, known):
        try:
            values[key] = _build_value(hints[key], options[key])
        except ValidationError as error:
            problems += [problem.below(key) for problem in describe(error, options[key])]
    try:
        built = adapter(cls).validate_python(values)
    except ValidationError as error:
        # a part that could not be built is missing here, but that was said already
        said = set(options) - set(values)
        problems += [problem for problem in describe(error, values) if problem.keys[:1] not in {(key,) for key in said}]
    except ObjectiveError as error:
        raise ValueError(str(error)) from error
    if problems:
        raise failure(problems)
    return built


def build_strategy(options: object, folder: Path | None = None) -> AnyStrategy:
    """The strategy that `options` names, with its fields; relative paths of existing data are below `folder`.

    Raises ValidationError.
    """
    fields = as_mapping(options, "{name: bbkb, …}")
    chosen = _strategy_class(fields.pop("name", DEFAULT_STRATEGY))
    start = fields.get("warm_start")
    if folder is not None and isinstance(start, Mapping) and start.get("name") == "data" and start.get("path"):
        fields["warm_start"] = {**start, "path": _locate(folder, start["path"])}
    try:
        fields = with_preset(chosen, _drop_retired(fields))
    except ValueError as error:
        raise failure([Problem(("preset",), str(error).removeprefix("strategy.preset "))]) from error
    strategy: AnyStrategy = build(chosen, fields)
    return strategy


def _drop_retired(fields: Tree) -> Plain:
    """`fields` without options of older versions that are off, as resolved files of older runs have them."""
    for name, reason in RETIRED.items():
        if fields.get(name):
            raise failure([Problem((name,), f"is not an option any longer: {reason}; remove it", shown(fields[name]))])
    return {key: value for key, value in fields.items() if key not in RETIRED}


def with_model_in_strategy(document: Document) -> Document:
    """The document with its section `model`, which all model-based strategies share, in `strategy`.

    It is left out where the strategy is none of these. Raises ConfigError when the model is in both places.
    """
    tree = dict(document.tree)
    model, strategy = tree.pop("model", None), tree.get("strategy", {})
    if model is None or not isinstance(strategy, Mapping):
        return replace(document, tree=tree)
    if strategy.get("model") is not None:
        raise ConfigError(f"{document.place(('model',))}: model must not be given beside strategy.model")
    known = STRATEGIES.get(strategy.get("name", DEFAULT_STRATEGY))
    if known is not None and "model" not in {field.name for field in dataclasses.fields(known)}:
        return replace(document, tree=tree)
    moved = {("strategy", *keys): place for keys, place in document.places.items() if keys[:1] == ("model",)}
    tree["strategy"] = {**strategy, "model": model}
    return replace(document, tree=tree, places={**document.places, **moved})


def dump_strategy(strategy: object) -> Plain:
    """The mapping that `build_strategy` turns into `strategy`."""
    cls = type(strategy)
    listed = (name for name, candidate in STRATEGIES.items() if candidate is cls)
    return {"name": next(listed, f"{cls.__module__}:{cls.__qualname__}"), **dump(strategy)}


def find_options(name: str) -> type[ObjectiveOptions]:
    """The options class of a listed objective. Raises ValueError, which is what a validator may raise."""
    try:
        return find_objective(name)
    except ObjectiveError as error:
        raise ValueError(str(error)) from error


def build_objective(key: str, value: str, options: object, folder: Path) -> AnyObjective:
    """The dataclass that `objective.<key>: value` and its options make; relative folders are below `folder`."""
    if key == "name":
        named: ObjectiveOptions = build(find_options(value), as_mapping(options, "{epochs: 3}"))
        return named.located(folder) if isinstance(named, ReadsFiles) else named
    cls, field, places = _EXTERNAL[key]
    given = as_mapping(options, f"{{{next(iter(places), 'sha256')}: …}}")
    if field in given:
        raise failure([Problem((field,), f"is not an option; write it as objective.{key}")])
    defaults = {name: default() for name, default in places.items() if given.get(name) is None}
    located = {name: _join(folder, place) for name, place in {**given, **defaults}.items() if name in places}
    external: External = build(cls, {**given, **located, field: value})
    return external


def dump_objective(options: object) -> Plain:
    """The mapping of options that `build_objective` turns into `options`; empty for None."""
    fields = {} if options is None else dump(options)
    for cls, field, _ in _EXTERNAL.values():
        if isinstance(options, cls):
            del fields[field]
    return fields


def alternatives(annotation: object) -> dict[str, type]:
    """The dataclasses that a union offers, by the `name` each of them carries; empty for any other annotation."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return {name: member for member in members for name in _names(member)}


def _locate(folder: Path, path: object) -> object:
    """A path below `folder`; a database URL as it is, but for the file that a SQLite URL names."""
    scheme, slashes, file = path.partition(":///") if isinstance(path, str) else ("", "", "")
    if slashes and scheme.startswith("sqlite"):
        return f"{scheme}{slashes}{_join(folder, file)}"
    return path if isinstance(path, str) and "://" in path else _join(folder, path)


def _join(folder: Path, place: object) -> object:
    if isinstance(place, list | tuple):
        return [_join(folder, one) for one in place]
    return str((folder / Path(place).expanduser()).resolve()) if isinstance(place, str) else place


def _names(member: object) -> tuple[str, ...]:
    if not (isinstance(member, type) and dataclasses.is_dataclass(member)):
        return ()
    hint = get_type_hints(member).get("name")
    return get_args(hint) if get_origin(hint) is Literal else ()


def _build_value(annotation: object, value: object) -> object:
    choices = alternatives(annotation)
    if isinstance(value, Mapping) and Model in get_args(annotation):
        return build(Model, value)
    if not choices or not isinstance(value, Mapping):
        return value
    listed = ", ".join(choices)
    if "name" not in value:
        raise failure([Problem(("name",), f"is required: one of {listed}")])
    name = value["name"]
    if not isinstance(name, str) or name not in choices:
        raise failure([Problem(("name",), f"must be one of {listed}", shown(name))])
    return build(choices[name], value)


def as_mapping(options: object, example: str) -> Plain:
    """`options` as a dict. Raises ValidationError naming `example` when it is no mapping."""
    if not isinstance(options, Mapping):
        raise failure([Problem((), f"must be a mapping such as {example}", shown(options))])
    return dict(options)


def _strategy_class(name: object) -> type:
    if isinstance(name, str) and name in STRATEGIES:
        return STRATEGIES[name]
    if not isinstance(name, str) or ":" not in name:
        rule = f"must be a listed strategy or package.module:Name, got {shown(name)}"
        raise failure([Problem(("name",), f"{rule}; {suggestion(str(name), list(STRATEGIES))}")])
    try:
        cls: Any = import_reference(name)
    except ObjectiveError as error:
        raise failure([Problem(("name",), f"cannot be imported: {error}")]) from error
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise failure([Problem(("name",), "must name a dataclass of hyper-parameters", shown(name))])
    return cls
