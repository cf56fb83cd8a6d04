"""`bbkb.types`: each type of a public annotation can be imported."""

import functools
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pandas
import plotly.graph_objects
import pytest

import bbkb

OWN = ("objectives", "orchestrator", "workers")
MODULES = (bbkb, bbkb.types, bbkb.strategies, bbkb.strategy)
EXPORTED = [getattr(module, name) for module in MODULES for name in module.__all__]
RETURNED = (bbkb.Result, bbkb.Submitted)  # users do not call their constructors


def annotated_parts(cls: type) -> Iterator[Any]:
    """Yield the class if it has public fields, its public methods and the functions of its properties."""
    if hasattr(cls, "__dataclass_fields__") or typing.is_typeddict(cls):
        yield cls
    for name in dir(cls):
        if name.startswith("_") and (name != "__init__" or cls in RETURNED):
            continue
        value: Any = inspect.getattr_static(cls, name)
        for wrapper, attribute in ((property, "fget"), (functools.cached_property, "func"), (classmethod, "__func__")):
            value = getattr(value, attribute) if isinstance(value, wrapper) else value
        if inspect.isfunction(value):
            yield inspect.unwrap(value)


def types_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation."""
    if isinstance(annotation, type):
        yield annotation
    for part in (typing.get_origin(annotation), *typing.get_args(annotation)):
        if part is not None and part is not annotation:
            yield from types_in(part)


@pytest.mark.parametrize("public", [each for each in EXPORTED if isinstance(each, type) or inspect.isfunction(each)])
def test_every_type_of_a_public_annotation_can_be_imported(public: Any) -> None:
    modules = {"pandas": pandas, "plotly": plotly}
    for part in annotated_parts(public) if isinstance(public, type) else [public]:
        hints = typing.get_type_hints(part, localns=modules)
        named = [(name, cls) for name, hint in hints.items() if name[0] != "_" for cls in types_in(hint)]
        own = [(name, cls) for name, cls in named if cls.__module__.partition(".")[0] in OWN]
        assert [(name, cls) for name, cls in own if not any(cls is each for each in EXPORTED)] == []
