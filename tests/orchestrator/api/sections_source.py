"""Writes `orchestrator/api/sections.py` from the campaign file's models:
`python -m tests.orchestrator.api.sections_source`."""

import json
import keyword
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from orchestrator.settings.model import Settings
from orchestrator.settings.worker_sections import WorkerSettings

FILE = Path(__file__).parents[3] / "orchestrator" / "api" / "sections.py"
HEAD = '''"""The sections of a campaign file as typed dictionaries, so that editors complete `settings=`.

Written by `python -m tests.orchestrator.api.sections_source` from the models in
`orchestrator.settings`; a test compares the two.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict
'''
# the keys of a large section that belong together: the name of their class, its docstring, the keys
GROUPS: dict[type[BaseModel], tuple[tuple[str, str, str], ...]] = {
    WorkerSettings: (
        (
            "ResourceKeys",
            "The resources of one evaluation.",
            "machines machines_from spread ray_train cpus gpus cpus_from gpus_from memory_gb",
        ),
        (
            "AttemptKeys",
            "The attempts at one evaluation.",
            "timeout_seconds timeout_factor retry_memory_factor retries trial_folders",
        ),
    ),
    Settings: (
        (
            "ProblemSections",
            "The objective, its goals, and the candidates.",
            "objective objectives constraints candidates forbid enqueue data",
        ),
        (
            "RunSections",
            "The name of a run, its files, and its messages.",
            "name tags note log notify store runs run",
        ),
    ),
}
PLAIN: dict[Any, str] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    NoneType: "None",
}


def source() -> str:
    """The text of `orchestrator/api/sections.py`."""
    return "\n\n".join([HEAD, *_classes(Settings, set())])


def _classes(model: type[BaseModel], written: set[type[BaseModel]]) -> Iterator[str]:
    """Yield the class of each section, those that others refer to first."""
    written.add(model)
    keys = {
        field.alias or name: field.annotation
        for name, field in model.model_fields.items()
        if model is not Settings or name not in ("space", "known_results")
    }
    for annotation in keys.values():
        for section in _sections_in(annotation):
            if section not in written:
                yield from _classes(section, written)
    document = (
        "The sections of a campaign file; `space` and `known_results` are arguments."
        if model is Settings
        else "Keys of a campaign file."
    )
    if any(keyword.iskeyword(key) for key in keys):
        items = "".join(f'        "{key}": {_text(annotation)},\n' for key, annotation in keys.items())
        name = _name(model)
        yield f'{name} = TypedDict(\n    "{name}",\n    {{\n{items}    }},\n    total=False,\n)\n'
        return
    groups = GROUPS.get(model, ())
    for name, meaning, members in groups:
        yield _class(name, "TypedDict", meaning, {key: keys.pop(key) for key in members.split()})
    bases = ", ".join([name for name, _, _ in groups] or ["TypedDict"])
    yield _class(_name(model), bases, document, keys)


def _class(name: str, bases: str, document: str, keys: dict[str, Any]) -> str:
    lines = "".join(f"    {key}: {_text(annotation)}\n" for key, annotation in keys.items())
    return f'class {name}({bases}, total=False):\n    """{document}"""\n\n{lines}'


def _name(model: type[BaseModel]) -> str:
    return "CampaignSections" if model is Settings else model.__name__.removesuffix("Settings") + "Section"


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


def _text(annotation: Any) -> str:
    """Write the type of a plain value that the model accepts."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _text(parts[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, parts))}]"
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(_text(part) for part in parts))
    if origin is tuple:
        return f"Sequence[{_text(parts[0])}]"
    if annotation in PLAIN:
        return PLAIN[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _name(annotation)
    return "Mapping[str, object]"


if __name__ == "__main__":
    FILE.write_text(source(), encoding="utf-8")
