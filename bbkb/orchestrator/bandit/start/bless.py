"""BLESS: bottom-up leverage score sampling (Rudi, Calandriello, Carratino, Rosasco 2018, Algorithm
1).

Draws a dictionary by the ridge leverage scores ℓ_λ(x) = (k(x, x) − k_n(x)ᵀ (K_n + λI)⁻¹ k_n(x)) / λ
over n pulls, without the n × n matrix: coarse scores (large λ) need few atoms, and the atoms of one
level are accurate enough to estimate the scores of the next, finer one. All values are on the
unnormalized scale of `posterior`, on which the last λ is the ridge parameter itself, and ℓ_λ is the
variance σ².

A level needs about n · |J| kernel entries, and there are log_q(κ²n/λ) levels. n pulls of one arm
are one row with a count, and c draws of one row are one atom with 1/c of the weight, so duplicates
are free.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only
from bbkb.orchestrator.bandit.kernels import Kernel

_BLOCK = 2048  # the number of rows in a matrix product


@dataclass(frozen=True, eq=False)
class WeightedDictionary:
    """`members` (m,): distinct positions of rows, ascending; `weights` (m,) > 0: diag W."""

    members: Indices
    weights: Floats


def bless(
    kernel: Kernel,
    rows: Floats,
    counts: Indices,
    regularization: float,
    rng: np.random.Generator,
    q: float = 2.0,
    q1: float = 4.0,
    q2: float = 8.0,
) -> WeightedDictionary:
    """Return a dictionary of the distinct `rows` (p, d), each pulled `counts` (p,) ≥ 1 times, for λ
    = `regularization` > 0.

    `q` > 1 is the ratio of the path λ_0 = κ²n > … > λ_H = λ; `q1` > 0 is the oversampling of the
    candidates, and `q2` > 0 that of the atoms. Raises ValueError for other constants, if there are
    no rows, or for a count below 1.
    """
    if not (q > 1 and q1 > 0 and q2 > 0):
        raise ValueError(f"bless needs q > 1, q1 > 0 and q2 > 0, got {q}, {q1} and {q2}")
    if len(rows) == 0 or len(counts) != len(rows) or counts.min() < 1:
        raise ValueError(f"bless needs a count >= 1 for each of its rows, got {len(counts)} counts of {len(rows)} rows")
    largest = float(kernel.diagonal(rows).max())
    total = int(counts.sum())
    dictionary = WeightedDictionary(read_only((), np.intp), read_only((), np.float64))
    for level in _path(largest * total, regularization, q):
        # R_h of the n pulls, as a count for each row
        size = min(max(1, math.ceil(q1 * largest * total / level)), total)
        candidates = counts if size == total else rng.multivariate_hypergeometric(counts, size, method="marginals")
        dictionary = _draw(kernel, rows, candidates, total, dictionary, level=level, q2=q2, rng=rng)
    return dictionary


def _path(start: float, end: float, q: float) -> list[float]:
    """Return λ_1 > … > λ_H = `end`, from `start` / q down by factors of q; at least one level."""
    steps = max(1, math.ceil(math.log(max(start / end, 1.0), q)))
    return [*(start * q**-step for step in range(1, steps)), end]


def _draw(
    kernel: Kernel,
    rows: Floats,
    candidates: Indices,
    total: int,
    before: WeightedDictionary,
    level: float,
    q2: float,
    rng: np.random.Generator,
) -> WeightedDictionary:
    """Return the dictionary of one level. `candidates` (p,): the count of each row in R_h."""
    present = np.flatnonzero(candidates)
    size = int(candidates.sum())
    scores = leverage_scores(kernel, rows[present], rows[before.members], before.weights, level)
    # the scores are never all 0, although κ² can be
    mass = candidates[present] * np.maximum(scores, np.finfo(np.float64).tiny)
    dimension = total / size * float(mass.sum())  # d_h = (n/R_h) Σ ℓ̃
    atoms = max(1, math.ceil(q2 * dimension))  # M_h
    draws = rng.multinomial(atoms, mass / mass.sum())
    positions = np.flatnonzero(draws)
    # W = diag(R_h M_h p_j / n), with p_j of a single pull; c equal atoms of weight w are one atom
    # of weight w/c
    single = np.maximum(scores, np.finfo(np.float64).tiny)[positions] / mass.sum()
    weights = size * atoms * single / total / draws[positions]
    return WeightedDictionary(read_only(present[positions], np.intp), read_only(weights, np.float64))


def leverage_scores(kernel: Kernel, rows: Floats, atoms: Floats, weights: Floats, level: float) -> Floats:
    """Return ℓ̃ (n,) ≥ 0 of `rows` (n, d) at λ = `level`: (k(x, x) − k_J(x)ᵀ (K_J + λW)⁻¹ k_J(x)) /
    λ, with `atoms` (m, d) and `weights` (m,)."""
    diagonal = kernel.diagonal(rows)
    if not len(atoms):
        return np.asarray(diagonal / level)
    roots = np.sqrt(weights)
    # (K_J + λW)⁻¹ = W^{−1/2} (W^{−1/2} K_J W^{−1/2} + λI)⁻¹ W^{−1/2}: near-duplicates make K_J
    # singular, and λI must exceed rounding errors, or the factorization fails
    gram = kernel.cross(atoms, atoms) / np.multiply.outer(roots, roots)
    ridge = level + len(atoms) * np.finfo(np.float64).eps * float(np.trace(gram))
    factor = scipy.linalg.cholesky(gram + ridge * np.eye(len(atoms)), lower=True)
    explained = np.empty(len(rows))
    for low in range(0, len(rows), _BLOCK):
        block = slice(low, low + _BLOCK)
        solved = scipy.linalg.solve_triangular(factor, kernel.cross(atoms, rows[block]) / roots[:, None], lower=True)
        explained[block] = np.einsum("mn,mn->n", solved, solved)
    return np.asarray(np.maximum(diagonal - explained, 0.0) / level)
