import pickle
import weakref

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from orchestrator.campaign.line import Line

ITEMS = st.lists(st.integers(), max_size=4)


class Lines(RuleBasedStateMachine):
    """Any line that was ever made stays what it was, whatever is made of it; tuples are the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("orchestrator.campaign.line._KEPT", 1)  # a few items show what hundreds would
        self.made: list[tuple[Line[int], tuple[int, ...]]] = [(Line(), ())]

    def add(self, line: Line[int], expected: tuple[int, ...]) -> None:
        self.made.append((line, expected))
        for known, items in self.made:
            assert tuple(known) == items
            assert len(known) == len(items)
            assert known == items
            assert [known[at] for at in range(-len(items), len(items))] == [*items, *items]

    def teardown(self) -> None:
        self.patch.undo()

    @rule(data=st.data(), items=ITEMS)
    def extend(self, data: st.DataObject, items: list[int]) -> None:
        line, expected = data.draw(st.sampled_from(self.made))
        self.add(line.with_last(items), (*expected, *items))

    @rule(data=st.data(), items=ITEMS)
    def precede(self, data: st.DataObject, items: list[int]) -> None:
        line, expected = data.draw(st.sampled_from(self.made))
        self.add(line.with_first(items), (*items, *expected))

    @rule(data=st.data(), count=st.integers(0, 6))
    def shorten(self, data: st.DataObject, count: int) -> None:
        line, expected = data.draw(st.sampled_from(self.made))
        self.add(line.without_first(count), expected[count:])

    @rule(data=st.data(), start=st.integers(-6, 6), stop=st.integers(-6, 6))
    def slice(self, data: st.DataObject, start: int, stop: int) -> None:
        line, expected = data.draw(st.sampled_from(self.made))
        assert line[start:stop] == expected[start:stop]


TestLines = Lines.TestCase


def test_a_line_travels_without_what_other_lines_see() -> None:
    line = Line(range(1000)).without_first(998)
    assert pickle.loads(pickle.dumps(line)) == (998, 999)
    assert len(pickle.dumps(line)) < 200


def test_an_index_beyond_the_end_is_an_error() -> None:
    with pytest.raises(IndexError):
        Line([1])[1]


def test_items_that_no_line_has_any_more_are_not_kept() -> None:
    class Item:
        pass

    line = Line([Item() for _ in range(40)])
    seen = weakref.WeakSet(line)
    for _ in range(2000):
        new = Item()
        seen.add(new)
        line = line.with_last((new,)).without_first(1)
        del new
    assert len(line) == 40
    assert len(seen) < 200
