"""Writes `orchestrator/settings/typed_sections.py` from the campaign file's models:
`python -m tests.orchestrator.settings.typed_sections_source`."""

import json
import keyword
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from bbkb.orchestrator.settings.model import Settings

FILE = Path(__file__).parents[3] / "bbkb" / "orchestrator" / "settings" / "typed_sections.py"
HEAD = '''"""The sections of a campaign file as typed dictionaries, so that editors complete `settings=`.

Written by `python -m tests.orchestrator.settings.typed_sections_source` from the models in
`bbkb.orchestrator.settings`; a test compares the two. `space` and `known_results` are arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict
'''


def source() -> str:
    """The text of the module."""
    return "\n\n".join([HEAD, *_classes(Settings, set())])


def _classes(model: type[BaseModel], written: set[type[BaseModel]]) -> Iterator[str]:
    """Yield the class of each section, those that others refer to first."""
    written.add(model)
    fields = [(field.alias or name, field.annotation) for name, field in model.model_fields.items()]
    keys = {key: annotation for key, annotation in fields if key not in ("space", "known_results")}
    for section in [section for annotation in keys.values() for section in _sections_in(annotation)]:
        if section not in written:
            yield from _classes(section, written)
    name = _name(model)
    if any(map(keyword.iskeyword, keys)):
        items = "".join(f'        "{key}": {_text(annotation)},\n' for key, annotation in keys.items())
        yield f'{name} = TypedDict(\n    "{name}",\n    {{\n{items}    }},\n    total=False,\n)\n'
    else:
        lines = "".join(f"    {key}: {_text(annotation)}\n" for key, annotation in keys.items())
        yield f"class {name}(TypedDict, total=False):\n{lines}"


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
        return " | ".join(dict.fromkeys(map(_text, parts)))
    if origin is tuple:
        return f"Sequence[{_text(parts[0])}]"
    if annotation is NoneType:
        return "None"
    if annotation in (int, float, str, bool):
        return str(annotation.__name__)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _name(annotation)
    return "Mapping[str, object]"


if __name__ == "__main__":
    FILE.write_text(source(), encoding="utf-8")
