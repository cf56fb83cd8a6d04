"""The differences between two resolved campaign files, and which of them a resume may make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# The log remains valid if these change; any other change would result in a different campaign.
CHANGEABLE = ("budget", "workers", "runs", "run", "tags", "note", "objective.deterministic")
# folders with the code of a function or command: each Ray job has its own copy of the uploaded one
_PLACES = ("objective.options.search_paths", "objective.options.working_directory")


@dataclass(frozen=True)
class Change:
    """A dotted key with its old and new value; None if it is absent."""

    key: str
    old: object
    new: object


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[Change]:
    """Return the keys that differ: in `old`'s order, then new ones. Lists are compared whole."""
    before = dict(leaves(old))
    after = dict(leaves(new))
    return [
        Change(key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if (key in before, before.get(key)) != (key in after, after.get(key))
    ]


def may_change(key: str) -> bool:
    """Return whether a resume may change this key: budget, resources and folders of code, but no
    decisions."""
    return key.partition(".")[0] in CHANGEABLE or key in (*CHANGEABLE, *_PLACES)


def leaves(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield each dotted key of a tree with its value."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
