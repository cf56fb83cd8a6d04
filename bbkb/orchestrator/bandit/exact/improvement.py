"""Improvement over the best belief, the common part of EI and PI (Salgia, Vakili, Zhao 2021,
Appendix D.1, after Nguyen et al. 2017, "Regret for expected improvement over the best-observed
value and stopping condition").

With the largest posterior mean f* and the margin ε, both rank arms by how far f may exceed f* + ε.
Both use the Bayesian scale, on which the prior variance is k(x, x) and the noise variance is λ. The
standard deviation is √λ σ, with the σ² of the 1/λ scale. Each has a file in `strategies`.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.state import ExactState
from bbkb.orchestrator.bandit.exact.strategy import ExactStrategy, next_pull
from bbkb.orchestrator.bandit.kernels import KernelOption
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.options import ModelNoise
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, WarmStartOption
from bbkb.orchestrator.bandit.strategy import Decision


@dataclass(frozen=True)
class Improvement(ExactStrategy[ExactState]):
    """The hyperparameters of EI and PI, with the paper's defaults. The belief is the exact Gaussian
    process.

    f* is the largest posterior mean of the arms that may be chosen, whether pulled or not.
    `is_sequential`: whether no arm is chosen while a reward is missing. Raises ValueError, with the
    field's name, if a value is out of range.
    """

    kernel: KernelOption = defaults.BRANIN
    regularization: ModelNoise = 0.01
    margin: Annotated[
        float,
        Ge(0),
        Doc("ε, the margin over f* of an improvement, ≥ 0; larger values explore more."),
    ] = 0.01
    warm_start: WarmStartOption = ONE_PULL
    is_sequential: ClassVar[Literal[True]] = True

    @abstractmethod
    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """Return an increasing function of the acquisition over `target` = f* + ε, for beliefs (n,)
        on the Bayesian scale."""

    def scores(self, state: ExactState) -> Floats:
        """Return the acquisition of every arm (A,)."""
        mean = state.belief.mean
        deviation = np.sqrt(state.model.regularization * state.belief.variance)
        best = float(mean[state.available].max(initial=-np.inf))
        return self.improvement(mean, deviation, best + self.margin)

    def width_at(self, state: ExactState) -> float:
        """Return NaN: there are no upper bounds."""
        return math.nan

    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: first the warm start's arms, then the argmax."""
        return next_pull(state, pending, limit, self.scores, self.width_at(state), self.verify)


def log_improvement(mean: Floats, deviation: Floats, target: float) -> Floats:
    """Return log(σφ(z) + (μ − y)Φ(z)), z = (μ − y)/σ, σ = `deviation`, y = `target`, of beliefs
    (n,): (n,) (eq. 2.6).

    The logarithm has the same argmax, and stays finite if the improvement is below the smallest
    float.
    """
    deviation = np.maximum(deviation, 1e-100)  # without uncertainty: max(μ − y, 0)
    z = (mean - target) / deviation
    middle = np.clip(z, -1e3, -1.0)
    far = np.minimum(z, -1e3)
    log_density = -0.5 * np.square(z) - 0.5 * math.log(2.0 * math.pi)
    # φ(z) + zΦ(z) = φ(z) (1 + z Φ(z)/φ(z)), whose second factor tends to z⁻² − 3z⁻⁴
    factor = np.log1p(middle * math.sqrt(math.pi / 2.0) * scipy.special.erfcx(-middle / math.sqrt(2.0)))
    tail = np.log1p(-3.0 / np.square(far)) - 2.0 * np.log(-far)
    near = np.maximum(z, -1.0)
    plain = np.log(np.exp(-0.5 * np.square(near)) / math.sqrt(2.0 * math.pi) + near * scipy.special.ndtr(near))
    logarithm = np.where(z > -1.0, plain, log_density + np.where(z > -1e3, factor, tail))
    return np.asarray(np.log(deviation) + logarithm)
