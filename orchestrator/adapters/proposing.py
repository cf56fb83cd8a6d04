"""Proposals of parameters, and results for them: what every adapter needs of the core."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from objectives.objective import Candidates
from objectives.parameters import Space
from objectives.space import SearchSpace, make_candidates
from orchestrator.bandit.arms import Arms
from orchestrator.optimizer import Optimizer

LARGEST_WHOLE = 100_000  # a finite space of so many configurations at most is taken whole

Result = tuple[int, float | None]  # a candidate and its reward; None: it could not be evaluated


class Proposer:
    """An `Optimizer` on candidates of a space. Rewards are maximised; can be pickled.

    `size`: how many candidates stand for a space that is not taken whole. Raises ObjectiveError on a space without
    candidates, ValueError on options that the strategy does not have.
    """

    def __init__(self, space: Space, seed: int, size: int, strategy: str, options: Mapping[str, Any]) -> None:
        self._space = SearchSpace(space)
        whole = self._space.count(LARGEST_WHOLE)
        self._candidates = make_candidates(self._space, size if whole is None else max(size, whole), seed=seed)
        arms = Arms.of(
            self._candidates.features,
            self._candidates.parameter_of,
            repeats=self._candidates.repeats,
            is_sequence=self._candidates.is_sequence,
        )
        self._optimizer = Optimizer(arms, strategy, seed, **options)

    def propose(self) -> int | None:
        """The number of a candidate to evaluate, pending from now on; None when results must come in first."""
        arms = self._optimizer.ask(1)
        return int(arms[0]) if len(arms) else None

    def parameters(self, candidate: int) -> dict[str, Any]:
        """The candidate's parameters."""
        return self._candidates.parameters(candidate)

    def nearest(self, parameters: Mapping[str, Any]) -> int:
        """The candidate whose features are nearest to those of `parameters`; the first of equally near ones.

        Raises ObjectiveError when they are none of the space.
        """
        features = self._space.candidates(self._space.code_of(parameters)).features[0]
        return int(((self._candidates.features - features) ** 2).sum(axis=1).argmin())

    def expect(self, candidate: int) -> None:
        """The candidate is being evaluated, though it was not proposed: pending from now on."""
        self._optimizer.expect([candidate])

    def report(self, results: Sequence[Result]) -> None:
        """Results of pending or any other candidates."""
        if results:
            self._optimizer.tell(np.array([arm for arm, _ in results]), [reward for _, reward in results])

    def __getstate__(self) -> dict[str, Any]:
        """Candidates as plain arrays: their own mapping is a view, which cannot be pickled."""
        arms = (self._candidates.features, dict(self._candidates.columns))
        return {"space": dict(self._space.parameters), "arms": arms, "optimizer": self._optimizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._space, self._optimizer = SearchSpace(state["space"]), state["optimizer"]
        self._candidates = Candidates(*state["arms"])
