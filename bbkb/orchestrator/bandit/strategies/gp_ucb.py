"""GP-UCB: the exact Gaussian process, one pull at a time (Srinivas et al. 2010; Chowdhury and
Gopalan 2017)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from bbkb.orchestrator.bandit.confidence import WidthOptions
from bbkb.orchestrator.bandit.exact.state import ExactState
from bbkb.orchestrator.bandit.exact.strategy import ExactStrategy, next_pull
from bbkb.orchestrator.bandit.options import Width
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, WarmStartOption
from bbkb.orchestrator.bandit.strategy import Decision


@dataclass(frozen=True)
class GPUCB(WidthOptions, ExactStrategy[ExactState]):
    """The hyperparameters of GP-UCB (Srinivas et al. 2010, Algorithm 1). Raises ValueError if one
    is out of range.

    Each pull is the argmax of μ + β σ under the exact posterior. With σ on the 1/λ scale and G =
    log det(I + K/λ) over the pulls, β = ξ √(G + 2 log 1/δ) + √λ F bounds |f − μ|/σ for all arms and
    rounds with probability 1 − δ (Chowdhury and Gopalan 2017, Theorem 2; Abbasi-Yadkori 2013). A
    pull costs O(p² + pA) with p distinct pulled arms.

    `is_sequential`: no arm is chosen while a reward is missing, so a second worker would be idle.
    """

    warm_start: WarmStartOption = ONE_PULL
    width: Width = None
    is_sequential: ClassVar[Literal[True]] = True

    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: first those of the warm start, then argmax u."""
        width = self.width_at(state)
        return next_pull(state, pending, limit, lambda observed: self.posterior(observed).ucb, width, self.verify)

    def width_at(self, state: ExactState) -> float:
        """Return β at `state`: a factor on σ of the 1/λ scale."""
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        return self.exact_width(self.regularization, state.belief.information_gain)
