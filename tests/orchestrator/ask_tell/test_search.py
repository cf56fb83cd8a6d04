"""`bbkb.orchestrator.ask_tell.search`: the log of a search can be repeated, and gives the same search."""

from typing import Any

import pytest

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Range
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.ask_tell.base import dump_log, read_log
from bbkb.orchestrator.ask_tell.search import ArmResult, Search
from bbkb.orchestrator.ask_tell.space import SearchSetup
from bbkb.orchestrator.campaign.goals import CampaignGoals
from tests.orchestrator.ask_tell.searches import chosen_strategy


def setup(strategy: str = "bbkb", **options: Any) -> SearchSetup:
    space = SearchSpace({"x": Range(0.0, 1.0), "kind": Choice(("a", "b"))}, ())
    instance = chosen_strategy(strategy, options)
    goals = CampaignGoals.of({"objective": {"direction": "minimize"}})
    return SearchSetup(
        space=space, goals=goals, strategy=instance, seed=2, enqueue=({"x": 0.5, "kind": "b"},), candidate_limit=3000
    )


def begun(strategy: str = "bbkb") -> Search:
    started = setup(strategy)
    search = started.search()
    search.enqueue(search.arms_of(started.enqueue))
    return search


def test_repeated_log_chooses_the_same_arms() -> None:
    first = begun()
    first.mark_pending(first.arms_of([{"x": 0.123, "kind": "a"}]))
    for _ in range(8):
        first.tell([ArmResult(arm, float(arm % 7)) for arm in first.ask(3)])
    second = SearchSetup.build(setup().dump()).search()
    for event in read_log(dump_log(first.events)):
        second.restore(event)
    assert second.state == first.state
    assert second.results == first.results
    assert second.ask(5) == first.ask(5)
    assert len(second.candidates) == len(first.candidates) > 1024


def test_enqueued_arms_are_chosen_first() -> None:
    search = begun()
    (arm,) = search.ask(1)
    assert search.arms_of([{"x": 0.5, "kind": "b"}]) == [arm]
    assert search.pending == [arm]


def test_strategy_of_fixed_candidates_accepts_no_others() -> None:
    search = setup("regularized_evolution").search()
    with pytest.raises(ObjectiveError, match="is not a candidate, and the strategy does not support other ones"):
        search.arms_of([{"x": 0.123, "kind": "a"}])
    assert search.events == []
