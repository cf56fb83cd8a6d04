"""Reads YAML text into plain values with their positions.

Uses PyYAML's safe loader with three differences. Scalars are read with the YAML 1.2 core schema, so
`1e-4` is a number, and `on`, `12:30` and `2024-01-01` are text. A duplicate key is rejected. Only
plain values are allowed: text, numbers, true/false, null, lists and mappings. Therefore every value
can be written as JSON.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bbkb.objectives.parameters import NO_TEXT
from bbkb.orchestrator.credentials import redact
from bbkb.orchestrator.errors import ConfigError
from bbkb.orchestrator.wording import one_line

Keys = tuple[str | int, ...]

# Anchors may be used several times, so a few lines can expand to billions of values.
MAX_VALUES = 100_000
MAX_BYTES = 4_000_000
MAX_DEPTH = 20  # the largest nesting depth of the keys in an override
# the largest number of characters in a message:
_SHOWN = 60  # of a value
_OVERRIDE_SHOWN = 200  # of an override
_BEGINNING_BYTES = 4096
Tree = Mapping[str, Any]  # plain values, as in YAML and JSON
Plain = dict[str, Any]  # a modifiable copy


@dataclass(frozen=True)
class Document:
    """A document that was read."""

    tree: Tree  # its plain values
    places: Mapping[Keys, str]  # the position of each key, such as `campaign.yaml:3`
    origin: str  # the name of the source

    def place(self, keys: Keys) -> str:
        """Return the position of `keys` for the start of a message. If the key is not in the file,
        this is the position of its nearest ancestor."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.places:
                return self.places[keys[:length]]
        return self.origin


def dotted_key(keys: Keys) -> str:
    """Return `("strategy", "kernel")` as in a campaign file: `strategy.kernel`."""
    return ".".join(map(str, keys))


def read(path: Path) -> Document:
    """Read a campaign file. Raises ConfigError, with the line if it is known."""
    origin = str(path)
    tree, places = _parse(_text(path), lambda line: f"{origin}:{line}")
    if not isinstance(tree, dict):
        kind = "nothing" if tree is None else f"a {_kind(tree)}"
        raise ConfigError(f"{origin}: a campaign file must be a mapping (`key: value` lines), got {kind}")
    return Document(tree, places, origin)


def has_content(path: Path) -> bool:
    """Return whether the file exists and contains more than white space or zero bytes, which a
    power failure may leave in a file that is being written. Raises OSError."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return bool(file.read(_BEGINNING_BYTES).strip(b"\0 \t\r\n"))


def write(tree: Tree) -> str:
    """Return plain values as ASCII YAML, which `read` and other readers convert back."""
    return yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, width=120)


def with_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """Return the document after `a.b.c=value` assignments, in order; values are read as YAML.

    Missing mappings on the path are created. Raises ConfigError with the assignment.
    """
    tree = _copy(document.tree)
    places = dict(document.places)
    for override in overrides:
        place = f"--set {one_line(redact(override), _OVERRIDE_SHOWN)}"
        name, equals, text = override.partition("=")
        keys: Keys = tuple(part.strip() for part in name.split("."))
        if not equals or not all(keys):
            raise ConfigError(f"{place}: an override must be written key.key=value, for example budget.evaluations=100")
        if len(keys) > MAX_DEPTH:
            raise ConfigError(f"{place}: a key must have at most {MAX_DEPTH} parts, got {len(keys)}")
        value, inner = _parse(text, lambda _: place)  # noqa: B023 - called at once
        node: Any = tree
        for depth, key in enumerate(keys[:-1], start=1):
            if node.get(key) is None:
                node[key] = {}
            node = node[key]
            if not isinstance(node, dict):
                path = dotted_key(keys[:depth])
                raise ConfigError(f"{place}: {path} is a {_kind(node)}; only mappings have keys to set")
        node[keys[-1]] = value
        for keys_below in [keys_below for keys_below in places if keys_below[: len(keys)] == keys]:
            del places[keys_below]
        places.update({keys[:length]: place for length in range(1, len(keys) + 1) if keys[:length] not in places})
        places.update({keys + below: place for below in inner})
    return Document(tree, places, document.origin)


def check_texts(document: Document) -> None:
    """Reject texts that file names, databases or JSON cannot represent. Raises ConfigError."""
    for keys, text in _texts(document.tree, ()):
        if NO_TEXT.search(text):
            key = one_line(ascii(dotted_key(keys))[1:-1], _SHOWN)
            rule = "must hold neither NUL nor a half of a surrogate pair"
            raise ConfigError(f"{document.place(keys)}: {key} {rule}, got {one_line(ascii(text), _SHOWN)}")


def _texts(value: object, keys: Keys) -> Iterator[tuple[Keys, str]]:
    """Yield every text of plain values, keys included, with its position."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield (*keys, key), str(key)
            yield from _texts(child, (*keys, key))
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _texts(child, (*keys, index))


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: a campaign file must be a regular file, got a folder or a device")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ConfigError(
                f"{path}: a campaign file must have at most {MAX_BYTES:,} bytes, got {size:,}; put long lists into a "
                "table (candidates.table)"
            )
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a NUL character raises ValueError
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: the campaign file cannot be read: {reason}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}:{line}: the file must be UTF-8 text, got byte 0x{content[error.start]:02x}; save it as UTF-8"
        ) from error


class _Loader(yaml.SafeLoader):
    """The safe loader, with plain scalars read as in the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node as PyYAML does, and reject documents with too many nodes early."""
        self._nodes += 1
        if self._nodes > 2 * MAX_VALUES:  # keys are nodes too
            mark = self.get_mark()
            raise yaml.MarkedYAMLError(problem=f"it must hold at most {MAX_VALUES} values", problem_mark=mark)
        composed: yaml.Node | None = super().compose_node(parent, index)
        return composed


# libyaml, where PyYAML has it, is several times as fast
class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The safe dumper. Quotes text that either version of YAML would read as another type."""


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _full = re.compile(rf"^(?:{_pattern})$")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _full, _first)
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _full, _first)

_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}


def _parse(text: str, place_of: Callable[[int], str]) -> tuple[Any, dict[Keys, str]]:
    """Return the values and their positions of one YAML document. `place_of(line)` describes a
    line, counted from 1."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        reading = _Reading(loader, place_of, {})
        return (None if node is None else reading.value(node, ())), reading.places
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = ", ".join(filter(None, (error.context, error.problem)))
        if r"'\t'" in (error.problem or ""):
            problem = "a tab cannot be used here; use spaces"
        raise ConfigError(f"{place_of(line)}: not valid YAML: {problem}") from error
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError(
            f"{place_of(line)}: not valid YAML: the character U+{error.character:04X} is not allowed"
        ) from error
    except RecursionError as error:
        raise ConfigError(
            f"{place_of(1)}: values must be nested at most about 300 levels deep, and must not contain themselves"
        ) from error


@dataclass
class _Reading:
    """One walk over the nodes of a document, which collects `places`."""

    loader: _Loader
    place_of: Callable[[int], str]
    places: dict[Keys, str]
    count: int = 0

    def value(self, node: yaml.Node, keys: Keys) -> object:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self.error(node, f"a campaign file must hold at most {MAX_VALUES} values, anchors counted")
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return {key: self.value(child, (*keys, key)) for key, child in self.pairs(node, keys)}
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(child, self.note(child, (*keys, index))) for index, child in enumerate(node.value)]
        if node.tag not in _SCALARS:
            raise self.error(node, f"the YAML tag {node.tag!r} is not allowed; write a plain value")
        try:
            return self.loader.construct_object(node)
        except (ValueError, OverflowError, LookupError) as error:  # an explicit tag such as `!!int x`
            text = one_line(repr(node.value), _SHOWN)
            raise self.error(node, f"{text} is not a valid {node.tag.rpartition(':')[2]}") from error

    def pairs(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[str, yaml.Node]]:
        """Record the positions of a mapping's keys, and yield the keys with the nodes of their
        values."""
        lines: dict[str, int] = {}
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, "a key must be a single word, got a list or mapping")
            key = key_node.value
            line = key_node.start_mark.line + 1
            if key == "<<" and key_node.style is None:
                remedy = "write out its keys, or name one whole value by an anchor: `&name`, `*name`"
                raise self.error(key_node, f"the merge key << is not part of YAML 1.2; {remedy}")
            if key in lines:
                first = self.place_of(lines[key])
                raise self.error(
                    key_node, f"{dotted_key((*keys, key))} is given twice, first at {first}; keep one of the two"
                )
            lines[key] = line
            self.note(key_node, (*keys, key))
            yield key, child

    def note(self, node: yaml.Node, keys: Keys) -> Keys:
        self.places[keys] = self.place_of(node.start_mark.line + 1)
        return keys

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        return ConfigError(f"{self.place_of(node.start_mark.line + 1)}: {message}")


def _copy(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(child) for key, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, list) else value


def _kind(value: object) -> str:
    return {list: "list", str: "text", bool: "true/false value"}.get(type(value), "number")
