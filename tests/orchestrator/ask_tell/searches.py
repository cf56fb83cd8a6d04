"""Access to the search of an optimizer, for tests of its model and its log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from bbkb.orchestrator.ask_tell.candidates import CandidateOptimizer
from bbkb.orchestrator.ask_tell.search import Search
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.results import TrialCurve
from bbkb.orchestrator.bandit.start.warm_start import DataStart, with_warm_start
from bbkb.orchestrator.bandit.strategy import AnyStrategy
from bbkb.orchestrator.settings.strategies import build_strategy

Kind = TypeVar("Kind", Optimizer, CandidateOptimizer)


def reloaded(optimizer: Kind, folder: Path) -> Kind:
    """Return the optimizer that a file in `folder` contains after a save."""
    optimizer.save(folder / "search.json")
    return type(optimizer).load(folder / "search.json")


def search_of(optimizer: Any) -> Search:
    """Return the search behind an `Optimizer` or a `CandidateOptimizer`."""
    search: Search = optimizer._search
    return search


def model_of(optimizer: Any) -> Any:
    """Return the strategy's state, which may lack the newest results."""
    return search_of(optimizer).engine.model


def view_of(optimizer: Any) -> Any:
    """Return the strategy's state after all results."""
    return search_of(optimizer).view


def curves_of(optimizer: Any) -> tuple[TrialCurve, ...]:
    """Return one curve of each trial: the one that the model learns with the next results, or else
    the one that it knows."""
    known = {curve.trial: curve for curve in model_of(optimizer).curve_state.known.trials}
    return tuple({**known, **search_of(optimizer).state.trainings.curves}.values())


def with_options(candidates: Any, strategy: str = "bbkb", **arguments: Any) -> CandidateOptimizer:
    """Return an optimizer with options of its strategy, as in a campaign file."""
    own = {name: arguments.pop(name) for name in ("seed", "existing") if name in arguments}
    return CandidateOptimizer(candidates, chosen_strategy(strategy, arguments, "existing" in own), **own)


def chosen_strategy(name: str, options: Mapping[str, Any], has_existing: bool = False) -> AnyStrategy:
    """Return a strategy with options as in a campaign file, which begins with existing results if
    there are any."""
    strategy = build_strategy({"name": name, **options})
    has_start = has_existing and hasattr(strategy, "warm_start")
    return with_warm_start(strategy, DataStart()) if has_start else strategy
