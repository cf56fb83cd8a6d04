"""Resparsification: drawing the inducing points by ridge leverage scores (BBKB Algorithm 1, lines 10–14)."""

from typing import Annotated, Literal

import numpy as np
from typing_extensions import Doc

from orchestrator.bandit.arrays import Floats, Indices, read_only
from orchestrator.bandit.pulls import Pulls

Resampling = Literal["pulls", "arms"]
ResamplingOption = Annotated[
    Resampling, Doc("The draw of the dictionary takes `pulls` one by one, or `arms` as a whole.")
]


def inclusion_probabilities(pulls: Pulls, variance: Floats, oversampling: float, resampling: Resampling) -> Floats:
    """Probability (p,) of each pulled arm, in the order of `pulls.arms`, to enter the dictionary.

    `variance` (p,) of these arms is that of the start of the batch; squares, σ̃²_fb: see the proof of Theorem 1.

    * `pulls`: each single pull enters with p = min(1, q̄ σ̃²_fb), duplicates count once, so an arm pulled n times enters
      with 1 − (1 − p)ⁿ.
    * `arms`: an arm enters with min(1, q̄ n σ̃²_fb), n σ̃² being the leverage score of the arm with its n pulls
      as one row √n φ(x). Never less than with `pulls`, and the bound on the dictionary's expected size, q̄ Σ σ̃² over the
      pulls, is the same. What the authors' released code does.
    """
    if resampling == "arms":
        return np.minimum(1.0, oversampling * pulls.counts[pulls.arms] * variance)
    single = np.minimum(1.0, oversampling * variance)
    with np.errstate(divide="ignore"):  # log1p(−1) = −∞ is right: certain to enter
        return -np.expm1(pulls.counts[pulls.arms] * np.log1p(-single))


def resparsify(
    pulls: Pulls, variance: Floats, oversampling: float, resampling: Resampling, rng: np.random.Generator
) -> Indices:
    """Draw a dictionary (m,), ascending, of pulled arms. An empty draw keeps the arm with the largest probability.

    Raises ValueError when nothing was pulled.
    """
    if pulls.total == 0:
        raise ValueError("resparsify needs at least one pull with a reward, got none")
    probabilities = inclusion_probabilities(pulls, variance, oversampling, resampling)
    drawn = pulls.arms[rng.random(len(probabilities)) < probabilities]
    chosen = drawn if len(drawn) else pulls.arms[[np.argmax(probabilities)]]
    return read_only(chosen, np.intp)
