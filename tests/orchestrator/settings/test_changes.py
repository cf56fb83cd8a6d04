"""Tests of orchestrator/settings/changes.py."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.running.resume import Change, differences, may_change


def test_differences_are_reported_by_dotted_keys() -> None:
    old = {"seed": 0, "budget": {"evaluations": 5, "hours": None}, "list": [1, 2], "gone": {"a": 1}}
    new = {"seed": 0, "budget": {"evaluations": 9, "hours": None}, "list": [2, 1], "come": {}}
    assert differences(old, new) == [
        Change("budget.evaluations", 5, 9),
        Change("list", [1, 2], [2, 1]),
        Change("gone.a", 1, None),
        Change("come", None, {}),
    ]


def test_removed_null_is_a_difference() -> None:
    assert differences({"a": None}, {}) == [Change("a", None, None)]


_tree = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
).filter(lambda tree: isinstance(tree, dict))


@settings(max_examples=60, deadline=None)
@given(old=_tree, new=_tree)
def test_differences_are_empty_exactly_for_equal_settings(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert bool(differences(old, new)) == (old != new)
    mirrored = {(change.key, change.old, change.new) for change in map(_hashable, differences(new, old))}
    assert {(change.key, change.new, change.old) for change in map(_hashable, differences(old, new))} == mirrored


def _hashable(change: Change) -> Change:
    return Change(change.key, str(change.old), str(change.new))


@pytest.mark.parametrize("key", ["budget.evaluations", "budget", "workers.simulation.sigma", "objective.deterministic"])
def test_budget_and_workers_may_change(key: str) -> None:
    assert may_change(key)


@pytest.mark.parametrize("key", ["seed", "budgets", "strategy.budget", "space.workers.low", "store"])
def test_other_settings_may_not_change(key: str) -> None:
    assert not may_change(key)
