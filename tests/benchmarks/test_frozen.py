"""A record of picks and mistakes equals itself, and a change is found."""

import copy
from typing import Any

import pytest

from benchmarks import frozen


@pytest.fixture(scope="module")
def record() -> dict[str, dict[str, Any]]:
    return {**frozen.measure(["picks"], "uniform"), **frozen.measure(["mistakes"], "minimise")}


def test_frozen_records_the_picks_and_the_place_of_a_mistake(record: dict[str, dict[str, Any]]) -> None:
    ((name, picks),) = record["picks"].items()
    assert name == "strategy uniform"
    assert len(picks) == frozen.EVALUATIONS
    ((_, (ended, mistake)),) = record["mistakes"].items()
    assert ended == {"exit": 2}
    assert (mistake["line"], mistake["key"]) == (3, "objective.direction")


def test_frozen_finds_a_changed_pick_and_does_not_count_a_changed_text(record: dict[str, dict[str, Any]]) -> None:
    assert not list(frozen.differences(record, record))
    after = copy.deepcopy(record)
    after["picks"]["strategy uniform"][7][0]["x"] += 1e-6
    (mistake,) = after["mistakes"].values()
    mistake[1]["text"] = "another text"
    (pick, text) = frozen.differences(record, after)
    assert pick[0]
    assert "from number 7 on" in pick[1]
    assert not text[0]
