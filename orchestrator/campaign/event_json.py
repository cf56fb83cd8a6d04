"""Events as JSON, as the store keeps them."""

from collections.abc import Mapping
from typing import Annotated, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from orchestrator.campaign.events import Event

# for reading one whose kind is known
_ADAPTERS: Mapping[str, TypeAdapter[Event]] = {
    str(cls.__dataclass_fields__["kind"].default): TypeAdapter(cls) for cls in get_args(Event)
}


_EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="kind")], config=ConfigDict(ser_json_inf_nan="strings")
)


def to_json(event: Event) -> str:
    """Return the event as one line of JSON; NaN and infinities as strings."""
    return _EVENT.dump_json(event).decode()


def body_of(event: Event) -> str:
    """Return the event as one line of JSON without its kind and without fields at their defaults,
    which therefore must never change."""
    return _EVENT.dump_json(event, exclude_defaults=True).decode()


def event_of(kind: str, body: str | bytes) -> Event:
    """Return the event whose `body_of` is `body`. Raises ValueError on anything else."""
    if kind not in _ADAPTERS:
        raise ValueError(f"{kind!r} is not a kind of event")
    return _ADAPTERS[kind].validate_json(body)


def from_json(text: str | bytes) -> Event:
    """Return the event that `to_json` wrote. Raises ValueError (pydantic's) on anything else."""
    return _EVENT.validate_json(text)
