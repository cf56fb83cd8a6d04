"""Events as JSON, in the format of the store."""

from functools import cache
from typing import Annotated, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from bbkb.orchestrator.campaign.events import Event

_CLASSES: dict[str, type[Event]] = {str(cls.__dataclass_fields__["kind"].default): cls for cls in get_args(Event)}


# Adapters are built on first use: each takes tens of milliseconds, and most commands need few.
@cache
def _adapter_of(kind: str) -> TypeAdapter[Event]:
    return TypeAdapter(_CLASSES[kind])


@cache
def _adapter() -> TypeAdapter[Event]:
    return TypeAdapter(Annotated[Event, Field(discriminator="kind")], config=ConfigDict(ser_json_inf_nan="constants"))


def body_of(event: Event) -> str:
    """Return the event as one line of JSON without its kind and without the fields at their
    defaults. Those defaults must therefore never change. NaN and infinities are Python's constants:
    as strings they would be read as strings where the type is open, as in a strategy's options."""
    return _adapter().dump_json(event, exclude_defaults=True).decode()


def event_of(kind: str, body: str | bytes) -> Event:
    """Return the event that `body_of` wrote as `body`. Raises ValueError for any other text."""
    if kind not in _CLASSES:
        raise ValueError(f"{kind!r} is not a kind of event")
    return _adapter_of(kind).validate_json(body)
