"""Copies of frozen values equal those of the standard functions, and the original is unchanged."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.replacing import replace, with_items, without
from orchestrator.campaign.state import CampaignState

numbers = st.dictionaries(st.integers(0, 9), st.integers())


class _Viewed(dict[int, int]):
    """A mapping of a further type."""


@pytest.mark.parametrize("kind", [dict, MappingProxyType, _Viewed])
@given(numbers, numbers, st.integers(0, 9))
def test_items_come_and_go_in_a_copy_that_nothing_can_change(
    kind: Callable[[dict[int, int]], Mapping[int, int]], items: dict[int, int], further: dict[int, int], key: int
) -> None:
    mapping = kind(dict(items))
    assert with_items(mapping, further) == {**items, **further}
    assert without(mapping, key) == {other: value for other, value in items.items() if other != key}
    assert mapping == items
    assert isinstance(with_items(mapping, further), MappingProxyType)


def test_a_replaced_state_differs_in_the_named_fields_only() -> None:
    before = CampaignState()
    after = replace(before, trials=3)
    assert (before.trials, after.trials) == (0, 3)
    assert replace(after, trials=0) == before


def test_a_field_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="CampaignState has no field trails"):
        replace(CampaignState(), trails=3)
