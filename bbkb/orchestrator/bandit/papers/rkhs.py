"""The options of published strategies whose width is Theorem 2 of Chowdhury and Gopalan 2017."""

import math
from dataclasses import dataclass

from bbkb.orchestrator.bandit.confidence import information_growth, rkhs_width
from bbkb.orchestrator.bandit.kernels import KernelOption
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.options import FailureProbability, ModelNoise, NoiseScale, NormBound, Options


@dataclass(frozen=True)
class RkhsOptions(Options):
    """Kernel, λ and the constants of `confidence.rkhs_width`. The defaults are those of the
    experiment of Salgia, Vakili, Zhao 2021 on Branin; their text prints R = 0.01, and their code has
    the deviation of the noise, 0.1."""

    kernel: KernelOption = defaults.BRANIN
    regularization: ModelNoise = 0.01
    norm_bound: NormBound = 0.5
    noise_scale: NoiseScale = 0.1
    delta: FailureProbability = 1e-3

    def width_after(self, pulls: int) -> float:
        """Return √λ β, the factor on σ of the 1/λ scale after this number of pulls."""
        growth = information_growth(self.kernel, pulls)
        beta = rkhs_width(self.norm_bound, self.noise_scale, growth, self.delta)
        return beta * math.sqrt(self.regularization)
