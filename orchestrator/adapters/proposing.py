"""Proposals of parameters, and results for them: what every adapter needs of the core."""

from collections.abc import Mapping
from typing import Any

from objectives.objective import Candidates
from objectives.parameters import Range, Space
from objectives.space import make_candidates
from orchestrator.optimizer import Optimizer

LARGEST_WHOLE = 100_000  # a finite space of so many configurations at most is taken whole


class Proposer:
    """An `Optimizer` on candidates of a space. Rewards are maximised; can be pickled between calls.

    `size`: how many candidates stand for a space that is not taken whole. Raises ObjectiveError on a space without
    candidates, ValueError on options that the strategy does not have.
    """

    def __init__(self, space: Space, seed: int, size: int, strategy: str, options: Mapping[str, Any]) -> None:
        is_finite = all(not isinstance(parameter, Range) or parameter.integer for parameter in space.values())
        self._candidates: Candidates = make_candidates(space, max(size, LARGEST_WHOLE if is_finite else 0), seed=seed)
        self._optimizer = Optimizer(self._candidates.features, strategy, seed, **options)

    def propose(self) -> int | None:
        """The number of a candidate to evaluate, pending from now on; None when results must come in first."""
        arms = self._optimizer.ask(1)
        return int(arms[0]) if len(arms) else None

    def parameters(self, candidate: int) -> dict[str, Any]:
        """The candidate's parameters."""
        return self._candidates.parameters(candidate)

    def report(self, candidate: int, reward: float | None) -> None:
        """The candidate's reward; None: it could not be evaluated."""
        self._optimizer.tell([candidate], [reward])

    def __getstate__(self) -> dict[str, Any]:
        """Candidates as plain arrays: their own mapping is a view, which cannot be pickled."""
        columns = dict(self._candidates.columns)
        return {"features": self._candidates.features, "columns": columns, "optimizer": self._optimizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._candidates = Candidates(state["features"], state["columns"])
        self._optimizer = state["optimizer"]
