"""Frozen dataclasses built from the mappings of a campaign file: the options of an objective and,
with `strategies`, of a strategy.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.objectives.objective import Objective, ObjectiveError
from bbkb.objectives.parameters import Space
from bbkb.objectives.pickled import LIVE, LiveFunction, PickledFunction
from bbkb.objectives.reference import DataSource, ObjectiveOptions, ReadsFiles, find_objective
from bbkb.orchestrator.campaign.settings import Data, ObjectiveSettings
from bbkb.orchestrator.settings.mistakes import Refusal, RefusalError, align, describe, excerpt, unknown_key
from bbkb.orchestrator.yaml_file import Plain, Tree

# objectives that are defined in the campaign file
External = PythonCallable | ShellCommand | PickledFunction | LiveFunction
AnyObjective = ObjectiveOptions | External

# key in the file → class, the field that holds the key's value, and fields that name folders with
# their defaults
EXTERNAL: Mapping[str, tuple[type, str, Mapping[str, Callable[[], object]]]] = {
    "callable": (PythonCallable, "path", {"search_paths": lambda: [".", str(Path.cwd())]}),
    "command": (ShellCommand, "command", {"working_directory": lambda: "."}),
    "function": (PickledFunction, "path", {}),
}


@functools.cache
def adapter(cls: type) -> TypeAdapter[Any]:
    """Return pydantic's adapter for a dataclass. Raises RefusalError if a campaign file cannot
    express the values of a field."""
    try:
        return TypeAdapter(cls)
    except PydanticSchemaGenerationError as error:
        hints = get_type_hints(cls, include_extras=True)
        problems = []
        for field in dataclasses.fields(cls):
            try:
                TypeAdapter(hints[field.name])
            except PydanticSchemaGenerationError:
                kind = getattr(hints[field.name], "__name__", hints[field.name])
                rule = f"is a field of {cls.__name__} with a type that no campaign file has, {kind}"
                remedy = "take plain values, a dataclass of them, or bbkb.strategy.KernelOption for a kernel"
                problems.append(Refusal((field.name,), f"{rule}; {remedy}"))
        raise RefusalError(problems) from error


def dump(options: object) -> Plain:
    """Return a dataclass as plain values with defaults; `build` reads them."""
    cls: type = type(options)
    live = {field.name for field in dataclasses.fields(cls) if not field.init}
    dumped: Plain = adapter(cls).dump_python(options, mode="json", exclude=live)
    return dumped


def build(cls: type, options: Tree) -> Any:
    """Return `cls(**options)`, checked. Raises RefusalError with all mistakes."""
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    problems = [unknown_key(key, names) for key in options if key not in names]
    values = {key: value for key, value in options.items() if key in names}
    try:
        instance = adapter(cls).validate_python(values)
    except ValidationError as error:
        problems += describe(error, values, cls)
    except ObjectiveError as error:
        raise ValueError(str(error)) from error
    if problems:
        raise RefusalError(problems)
    return instance


def check_sources(section: ObjectiveSettings) -> None:
    """Check the names and files in the section `objective`. Raises ValueError."""
    if section.name is not None:
        try:
            find_objective(section.name)
        except ObjectiveError as error:
            raise ValueError(str(error)) from error
    if section.function is not None and not section.function.endswith(".pkl") and not section.function.startswith(LIVE):
        rule = "is for functions that are passed in Python: name a function with callable"
        raise RefusalError([Refusal(("function",), rule)])


def own_space(options: object) -> Space | None:
    """Return a listed objective's space; None if it is not listed or has its own candidates."""
    return None if isinstance(options, External | None) else options.default_space()  # type: ignore[attr-defined]


def load_objective(
    section: ObjectiveSettings, data: Data, function: Callable[..., object] | None = None
) -> Objective | None:
    """Return the objective with its data; None if it is a table. Raises ObjectiveError.

    `function`: the user's own function if this process called `tune`, for evaluations here.
    """
    options = objective_of(section)
    if isinstance(options, LiveFunction) and function is not None:
        return options.holding(function)
    if isinstance(options, External | None):
        return options
    return options.load(DataSource.find(Path(data.folder) if data.folder else None, data.download))


def objective_of(section: ObjectiveSettings) -> AnyObjective | None:
    """Return the dataclass that recorded settings name, with absolute paths; None for a table."""
    if len(section.sources) != 1:
        return None
    (source,) = section.sources
    return build_objective(source, getattr(section, source), section.options, Path.cwd())


def build_objective(key: str, value: str, options: object, folder: Path) -> AnyObjective:
    """Return the dataclass of `objective.<key>: value` and options; folders below `folder`. Raises
    RefusalError, with the keys of the section."""
    options = {} if options is None else options
    try:
        if key == "name":
            named: ObjectiveOptions = build(find_objective(value), as_mapping(options, "{epochs: 3}"))
            return named.with_absolute_paths(folder) if isinstance(named, ReadsFiles) else named
        cls, field, places = EXTERNAL[key]
        if key == "function" and value.startswith(LIVE):
            cls = LiveFunction
        values = as_mapping(options, f"{{{next(iter(places), 'sha256')}: …}}")
        if field in values:
            raise RefusalError([Refusal((field,), f"is not an option; write it as objective.{key}")])
        located = {name: join(folder, place) for name, place in values.items() if name in places}
        for name, default_of in places.items():
            if values.get(name) is None:
                default = join(folder, default_of())
                located[name] = list(dict.fromkeys(default)) if isinstance(default, list) else default
        external: External = build(cls, {**values, **located, field: value})
        return external
    except RefusalError as error:
        raise RefusalError(problem.below("options") for problem in error.problems) from None
    except ValueError as error:
        problem = align(("objective", "options"), str(error), options)
        raise RefusalError([dataclasses.replace(problem, keys=problem.keys[1:])]) from None


def dump_objective(options: object) -> Plain:
    """Return the mapping of options that `build_objective` turns into `options`; empty for None."""
    fields = {} if options is None else dump(options)
    if isinstance(options, External):
        fields.pop("command" if isinstance(options, ShellCommand) else "path")
    return fields


def join(folder: Path, place: object) -> object:
    """Return the path below `folder`, or each path of a list; other values unchanged."""
    if isinstance(place, list | tuple):
        return [join(folder, path) for path in place]
    return str((folder / Path(place).expanduser()).resolve()) if isinstance(place, str) else place


def as_mapping(options: object, example: str) -> Plain:
    """Return `options` as a dict. Raises RefusalError, with `example` in the message, if it is
    not a mapping."""
    if not isinstance(options, Mapping):
        raise RefusalError([Refusal((), f"must be a mapping such as {example}", excerpt(options))])
    return dict(options)
