"""What a field's annotation says about its values, for pydantic, the JSON Schema and the lists of
options, without an import of pydantic: the campaign declares its settings with it. The bandit core has
annotations of its own (`bandit.options`).

A field is written `Annotated[float, Gt(0), Doc("what it means")]`. Bounds are those of
`annotated_types`, the text is `typing_extensions.Doc`. The classes here are further annotations;
pydantic reads them by `__get_pydantic_core_schema__`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from typing_extensions import Doc

Schema = dict[str, Any]

# fields of sections whose key in a campaign file is a keyword of Python
KEYS = {"within": "in", "continues": "continue"}


def key_of(field: str) -> str:
    """Return the key of a section's field in a campaign file."""
    return KEYS.get(field, field)


@dataclass(frozen=True, slots=True)
class Checked:
    """An annotation: `check` returns the value, perhaps in another form, or raises ValueError with
    a predicate, such as "must begin with a letter"."""

    check: Callable[[Any], Any]
    pattern: str | None = None  # of a text, for the JSON Schema

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Schema:
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": self.check},
            "schema": handler(source),
        }

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Schema:
        described: Schema = handler(schema)
        return described if self.pattern is None else {**described, "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class _Whole:
    """An annotation: 1e3, a float in YAML and JSON, is a whole number."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Schema:
        return {
            "type": "function-before",
            "function": {"type": "no-info", "function": whole},
            "schema": handler(source),
        }


@dataclass(frozen=True, slots=True)
class _Listed:
    """An annotation of a tuple, which is a list in YAML and JSON."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Schema:
        return {**handler(source), "strict": False}


@dataclass(frozen=True, slots=True)
class Plain:
    """An annotation of a value that `read` builds from plain values, and `write` turns into them."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Schema:
        return {
            "type": "function-plain",
            "function": {"type": "no-info", "function": self.read},
            "serialization": {"type": "function-plain", "function": self.write},
        }

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Schema:
        return {}


@dataclass(frozen=True, slots=True)
class Written:
    """An annotation of a value that `write` turns into plain values."""

    write: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Schema:
        return {**handler(source), "serialization": {"type": "function-plain", "function": self.write}}


@dataclass(frozen=True, slots=True)
class _Decided:
    """An annotation of a field that bbkb fills in itself, in the `campaign.yaml` of a run: it is not
    a key for users, and read-only in the JSON Schema."""


WHOLE = _Whole()
LISTED = _Listed()
DECIDED = _Decided()


def whole(value: object) -> object:
    """Return a float that is a whole number as an int, and any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Section:
    """The base of a section of a campaign file: a frozen dataclass with only the declared keys and
    types."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
        "alias_generator": key_of,
        "populate_by_name": True,
    }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Schema:
        """Take mappings for sections, although their values must have exactly the declared types."""
        schema: Schema = handler(source)
        handler.resolve_ref_schema(schema)["strict"] = False
        return schema

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Schema:
        described: Schema = handler(schema)
        properties = handler.resolve_ref_schema(described)["properties"]
        for name, annotations in _annotations(cls).items():
            if DECIDED in annotations:
                properties[key_of(name)]["readOnly"] = True
        for name, text in documentation_of(cls).items():
            properties[key_of(name)]["description"] = text
        return described


def written(value: Any) -> Any:
    """Return a section as its mapping in a campaign file, which is checked and may be joined with
    arguments: without defaults, except those that depend on the machine and `rule`, which selects the
    kind of section. Return other values as they are."""
    if not isinstance(value, Section):
        return value
    return {
        key_of(field.name): written(setting)
        for field in fields(value)  # type: ignore[arg-type]
        for setting in [getattr(value, field.name)]
        if field.name == "rule" or field.default is MISSING or setting != field.default
    }


def documentation_of(cls: type) -> dict[str, str]:
    """Return the meaning of each field that has a `Doc`, the outermost one if there are several."""
    return {
        name: entry.documentation
        for name, entries in _annotations(cls).items()
        for entry in entries
        if isinstance(entry, Doc)
    }


def _annotations(cls: type) -> dict[str, tuple[object, ...]]:
    """Return the outermost annotations of each field, the inherited ones first."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: getattr(hints.get(name), "__metadata__", ()) for name in getattr(cls, "__dataclass_fields__", hints)}


def annotations_of(cls: type) -> dict[str, object]:
    """Return the annotation of each argument of a dataclass by its key in a campaign file."""
    hints = get_type_hints(cls, include_extras=True)
    return {key_of(field.name): hints[field.name] for field in fields(cls) if field.init}


def default_of(field: Field[Any]) -> object:
    """Return the default of a dataclass's field."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def dataclasses_in(annotation: object) -> list[type]:
    """List the dataclasses in an annotation, such as `Section | None` or `tuple[Section, ...]`."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        return [annotation]
    members = get_args(annotation)[:1] if hasattr(annotation, "__metadata__") else get_args(annotation)
    return [cls for member in members for cls in dataclasses_in(member)] if get_origin(annotation) else []
