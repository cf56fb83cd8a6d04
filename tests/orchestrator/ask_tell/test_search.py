"""The course of a search: what its log says can be repeated, and gives the same search."""

from typing import Any

import pytest

from objectives.objective import ObjectiveError
from objectives.parameters import Choice, Range
from objectives.space import SearchSpace
from orchestrator.ask_tell.search import SearchSetup, SpaceSearch
from orchestrator.ask_tell.strategy import named_strategy
from orchestrator.campaign.goals import CampaignGoals


def setup(strategy: str = "bbkb", **options: Any) -> SearchSetup:
    space = SearchSpace({"x": Range(0.0, 1.0), "kind": Choice(("a", "b"))}, ())
    instance = named_strategy(strategy, options)
    goals = CampaignGoals.of({"objective": {"direction": "minimize"}})
    return SearchSetup(
        space=space, goals=goals, strategy=instance, seed=2, enqueue=({"x": 0.5, "kind": "b"},), candidate_limit=3000
    )


def test_a_search_whose_log_is_repeated_chooses_what_the_first_one_chooses() -> None:
    first = SpaceSearch(setup())
    first.expect(first.arms_of([{"x": 0.123, "kind": "a"}]))
    for _ in range(8):
        first.tell([(arm, float(arm % 7)) for arm in first.ask(3)])
    second = SpaceSearch(SearchSetup.build(first.setup.dump()))
    for entry in first.log:
        second.repeat(entry)
    assert second.log == first.log
    assert second.results == first.results
    assert second.ask(5) == first.ask(5)
    assert len(second.candidates) == len(first.candidates) > 1024


def test_what_is_enqueued_is_chosen_first() -> None:
    search = SpaceSearch(setup())
    (arm,) = search.ask(1)
    assert search.candidates.parameters(arm) == {"x": 0.5, "kind": "b"}
    assert search.learner.pending == [arm]


def test_a_strategy_of_fixed_candidates_takes_no_others() -> None:
    search = SpaceSearch(setup("regularized_evolution"))
    with pytest.raises(ObjectiveError, match="is not a candidate, and this strategy supports no others"):
        search.arms_of([{"x": 0.123, "kind": "a"}])
    assert search.log == []
