"""An extension of griffe: the reference shows the options of a class from the annotations of its
fields.

A field such as `delta: Annotated[float, Gt(0), Doc("the failure probability")] = 0.01` becomes a
row of the table of parameters. Annotations may be names that another module defines, so the class
is imported and its annotations resolved.
"""

import inspect
import typing
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import griffe

from bbkb.orchestrator.annotations import documentation_of


class OptionsFromAnnotations(griffe.Extension):
    """Adds the table of options to each class of the project whose fields have a `Doc`."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the parameters in the docstring of `cls` by its documented fields, if it has
        any."""
        if not cls.path.startswith("bbkb.") or not _has_fields(cls):
            return
        try:
            options = parameters(griffe.dynamic_import(cls.path))
        except (ImportError, NameError):  # optional library, or a type imported for type checkers only
            return
        if not options:
            return
        if cls.docstring is None:
            cls.docstring = griffe.Docstring("", parent=cls)
        kind = griffe.DocstringSectionKind.parameters
        sections = [section for section in cls.docstring.parsed if section.kind != kind]
        cls.docstring.parsed[:] = [*sections[:1], griffe.DocstringSectionParameters(options), *sections[1:]]


def parameters(cls: type) -> list[griffe.DocstringParameter]:
    """List the documented fields of a dataclass with type, default and meaning."""
    hints = typing.get_type_hints(cls, include_extras=True)
    signature = inspect.signature(cls).parameters
    return [
        griffe.DocstringParameter(
            name, description=text, annotation=type_text(hints[name]), value=_default(signature[name].default)
        )
        for name, text in documentation_of(cls).items()
        if name in signature
    ]


def type_text(annotation: object) -> str:
    """Write a type without metadata: `float | None`, `'arms' | 'pulls'`, a class by its name."""
    if hasattr(annotation, "__metadata__"):
        return type_text(get_args(annotation)[0])
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return " | ".join(type_text(member) for member in get_args(annotation))
    if origin is Literal:
        return " | ".join(repr(value) for value in get_args(annotation))
    if annotation is type(None):
        return "None"
    return getattr(annotation, "__name__", str(annotation))


def _has_fields(cls: griffe.Class) -> bool:
    return "dataclass" in cls.labels or any("dataclass" in str(decorator.value) for decorator in cls.decorators)


def _default(value: object) -> str | None:
    return None if value is inspect.Parameter.empty else str(value) if isinstance(value, float) else repr(value)
