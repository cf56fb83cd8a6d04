"""Tests of workers/on_ray/turns.py: campaigns that wait for resources come before the one that
released them."""

from typing import Any

import pytest

from workers.on_ray import turns
from workers.on_ray.turns import Turns


class Table:
    """Ray's table of placement groups, and a clock."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.now = 0.0

    def rows(self) -> dict[str, dict[str, Any]]:
        return {name: {"name": name, "state": state} for name, state in self.states.items()}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    table = Table()
    monkeypatch.setattr(turns, "placement_group_table", table.rows)
    return table


def turns_after(table: Table, *prefixes: str) -> Turns:
    turns = Turns(lambda: table.now)
    turns.give(prefixes)
    return turns


def test_others_have_the_turn_until_one_of_them_has_resources(table: Table) -> None:
    table.states = {"other 1": "PENDING", "third 1": "PENDING"}
    turns = turns_after(table, "other ", "third ")
    assert turns.is_of_others()
    table.states["third 1"] = "CREATED"
    assert not turns.is_of_others()
    table.states["third 1"] = "PENDING"
    assert not turns.is_of_others()


def test_turn_of_others_ends_after_a_short_time(table: Table) -> None:
    table.states = {"other 1": "PENDING"}
    turns = turns_after(table, "other ")
    table.now = 4.9
    assert turns.is_of_others()
    table.now = 5.0
    assert not turns.is_of_others()


def test_campaign_does_not_wait_for_its_own_placed_or_abandoned_groups(table: Table) -> None:
    table.states = {"own 1": "PENDING", "dead 1": "PENDING", "other 1": "CREATED"}
    assert not turns_after(table, "other ").is_of_others()
    assert not turns_after(table).is_of_others()
