"""Access to the search of an optimizer, for tests of its model and its log."""

from typing import Any

from orchestrator.ask_tell.search import Search
from orchestrator.bandit.curves import TrialCurve


def search_of(optimizer: Any) -> Search:
    """Return the search behind an `Optimizer` or a `CandidateOptimizer`."""
    search: Search = optimizer._search
    return search


def model_of(optimizer: Any) -> Any:
    """Return the strategy's state, which may lack the newest results."""
    return search_of(optimizer).learner.model


def view_of(optimizer: Any) -> Any:
    """Return the strategy's state after all results."""
    return search_of(optimizer).learner.view


def curves_of(optimizer: Any) -> tuple[TrialCurve, ...]:
    """Return the curves that the model knows or learns with the next results."""
    state: Any = search_of(optimizer).learner.before
    curves: tuple[TrialCurve, ...] = (state.told or state.curves).trials
    return curves
