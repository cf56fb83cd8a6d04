"""Queues and mappings of the state do not change when others are derived from them."""

import pickle
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from bbkb.orchestrator.campaign.draft import Queue, without

ITEMS = st.lists(st.integers(), max_size=4)


class Lines(RuleBasedStateMachine):
    """A queue does not change when others are derived from it; tuples are the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("bbkb.orchestrator.campaign.draft._KEPT", 1)  # a few items behave as hundreds do
        self.made: list[tuple[Queue[int], tuple[int, ...]]] = [(Queue(), ())]

    def add(self, queue: Queue[int], expected: tuple[int, ...]) -> None:
        self.made.append((queue, expected))
        for made_queue, items in self.made:
            assert tuple(made_queue) == items
            assert len(made_queue) == len(items)
            assert made_queue == items
            assert [made_queue[at] for at in range(-len(items), len(items))] == [*items, *items]

    def teardown(self) -> None:
        self.patch.undo()

    @rule(data=st.data(), items=ITEMS)
    def extend(self, data: st.DataObject, items: list[int]) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        self.add(queue.with_last(items), (*expected, *items))

    @rule(data=st.data(), items=ITEMS)
    def precede(self, data: st.DataObject, items: list[int]) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        self.add(queue.with_first(items), (*items, *expected))

    @rule(data=st.data(), count=st.integers(0, 6))
    def shorten(self, data: st.DataObject, count: int) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        self.add(queue.without_first(count), expected[count:])

    @rule(data=st.data(), start=st.integers(-6, 6), stop=st.integers(-6, 6))
    def slice(self, data: st.DataObject, start: int, stop: int) -> None:
        queue, expected = data.draw(st.sampled_from(self.made))
        assert queue[start:stop] == expected[start:stop]


TestLines = Lines.TestCase


def test_pickled_queue_has_its_own_items_only() -> None:
    queue = Queue(range(1000)).without_first(998)
    assert pickle.loads(pickle.dumps(queue)) == (998, 999)
    assert len(pickle.dumps(queue)) < 200


def test_queue_rejects_an_index_beyond_its_end() -> None:
    with pytest.raises(IndexError):
        Queue([1])[1]


def test_queue_releases_removed_items() -> None:
    class Item:
        pass

    queue = Queue([Item() for _ in range(40)])
    alive = weakref.WeakSet(queue)
    for _ in range(2000):
        new = Item()
        alive.add(new)
        queue = queue.with_last((new,)).without_first(1)
        del new
    assert len(queue) == 40
    assert len(alive) < 200


@given(st.dictionaries(st.integers(0, 9), st.integers()), st.sets(st.integers(0, 12)))
def test_mapping_without_keys_is_a_copy(items: dict[int, int], keys: set[int]) -> None:
    mapping = dict(items)
    assert without(mapping, keys) == {key: value for key, value in items.items() if key not in keys}
    assert mapping == items
