"""The dense exact Gaussian process, O(p³): the test oracle of the sparse posterior."""

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.pulls import Pulls


def exact_posterior(kernel: Kernel, arms: Floats, pulls: Pulls, regularization: float) -> tuple[Floats, Floats]:
    """Return exact mean and variance (1/λ scale) of every arm (A,): BBKB eq. 1.

    n pulls of one arm are equivalent to one pull of their mean reward with λ/n, so the matrix has
    one row per pulled arm.
    """
    prior = kernel.diagonal(arms)
    if pulls.total == 0:
        return np.zeros(len(arms)), prior / regularization
    counts = pulls.counts[pulls.arms]
    points = arms[pulls.arms]
    factor = scipy.linalg.cho_factor(kernel.cross(points, points) + np.diag(regularization / counts), lower=True)
    cross = kernel.cross(points, arms)
    mean = cross.T @ scipy.linalg.cho_solve(factor, pulls.reward_sums[pulls.arms] / counts)
    explained = np.einsum("pa,pa->a", cross, scipy.linalg.cho_solve(factor, cross))
    return mean, np.maximum(prior - explained, 0.0) / regularization
