"""Copies the fields that two records share: from a worker's message to its event, and from there to
a row of the history and to a `TrialResult`."""

from typing import Any


def same_fields(source: object, target: type) -> dict[str, Any]:
    """Return the attributes of `source` that are fields of `target`, a dataclass or named tuple."""
    return {name: getattr(source, name) for name in target.__annotations__ if hasattr(source, name)}
