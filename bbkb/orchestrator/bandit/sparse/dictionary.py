"""Resparsification: draws the inducing points by ridge leverage scores (BBKB Algorithm 1, lines
10–14)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only
from bbkb.orchestrator.bandit.options import Options, Oversampling
from bbkb.orchestrator.bandit.pulls import Pulls

Resampling = Literal["pulls", "arms", "stable"]
ResamplingOption = Annotated[
    Resampling,
    Doc("The draw of the dictionary takes `pulls` one by one, or `arms` as a whole; `stable`: changing few of them."),
]
DictionaryLimit = Annotated[
    Annotated[int, Ge(1)] | None,
    Doc("The expected size of a dictionary at most, ≥ 1: a larger draw takes a smaller q̄; None: any size."),
]
HALVINGS = 30


@dataclass(frozen=True)
class DictionaryOptions(Options):
    """The draw of the dictionary."""

    oversampling: Oversampling = 2.0
    resampling: ResamplingOption = "arms"
    dictionary_limit: DictionaryLimit = None


def inclusion_probabilities(pulls: Pulls, variance: Floats, oversampling: float, resampling: Resampling) -> Floats:
    """Return the probability (p,) that each pulled arm, in the order of `pulls.arms`, enters the
    dictionary.

    `variance` (p,): the arms' variances σ̃²_fb at the start of the batch (see the proof of Theorem
    1).

    * `pulls`: each pull enters with probability p = min(1, q̄ σ̃²_fb), and duplicates count once, so
      an arm with n pulls enters with probability 1 − (1 − p)ⁿ.
    * `arms`: an arm enters with probability min(1, q̄ n σ̃²_fb), where n σ̃² is its leverage score
      if its n pulls are one row √n φ(x). The probability is at least that of `pulls`, and the bound
      on the expected size of the dictionary, q̄ Σ σ̃² over the pulls, is the same. The
      authors' released code uses this rule.
    * `stable`: like `arms`. With a `variance` from `without_own_pulls`, no probability is
      smaller, it is 1 for an arm with many pulls, and it hardly depends on whether the arm is an atom.
    """
    if resampling != "pulls":
        return np.minimum(1.0, oversampling * pulls.counts[pulls.arms] * variance)
    single = np.minimum(1.0, oversampling * variance)
    with np.errstate(divide="ignore"):  # log1p(−1) = −∞ is correct: the arm enters with certainty
        return -np.expm1(pulls.counts[pulls.arms] * np.log1p(-single))


def without_own_pulls(counts: Indices, variance: Floats, embedded: Floats) -> Floats:
    """Return the variance (p,) that each arm would have without its own pulls, whether it is an
    atom or not.

    `counts` (p,): the number of the arm's pulls that the posterior includes. `embedded` (p,):
    zᵀV⁻¹z, the part of `variance` (p,) in the dictionary's span. The arm's n pulls have reduced
    this part from e₀ to e₀/(1 + n e₀), and have not changed the remaining part, which is 0 for an
    atom. The result is exact if all other pulls are of atoms.
    """
    before: Floats = embedded / np.maximum(1.0 - counts * embedded, np.finfo(np.float64).eps)
    return before + np.maximum(variance - embedded, 0.0)


def resparsify(
    pulls: Pulls,
    variance: Floats,
    oversampling: float,
    resampling: Resampling,
    rng: np.random.Generator,
    limit: int | None = None,
) -> Indices:
    """Draw a dictionary (m,), ascending, of pulled arms. If nothing was drawn, it has the arm with
    the largest probability.

    With `stable`, an arm has the same random number in every draw: an atom leaves only if its
    probability decreases. So the posterior changes little from one draw to the next, and
    `UpperBounds` stay tight. `limit`: the largest expected size; if q̄ would exceed it, the largest
    possible q̄ is used. Raises ValueError if nothing was pulled.
    """
    if pulls.total == 0:
        raise ValueError("resparsify needs at least one pull with a reward, got none")
    probabilities = _within(limit, pulls, variance, oversampling, resampling)
    numbers = _numbers_of(pulls.arms) if resampling == "stable" else rng.random(len(probabilities))
    atoms = pulls.arms[numbers < probabilities]
    atoms_or_best = atoms if len(atoms) else pulls.arms[[np.argmax(probabilities)]]
    return read_only(atoms_or_best, np.intp)


def draw_pairs(numbers: Indices, variance: Floats, oversampling: float, limit: int) -> Indices:
    """Return a dictionary (m,), ascending, of pairs of a trial and a step, as with `stable`.
    `numbers` (N,) are the codes of the pairs, and `variance` (N,) their σ̃². A pair enters with
    probability min(1, q̄ σ̃²). `limit` bounds the expected size. If no pair is drawn, the result is
    the pair with the largest variance. Raises ValueError if there are no pairs."""
    if not len(numbers):
        raise ValueError("a dictionary needs at least one value of a learning curve, got none")

    def size(factor: float) -> float:
        return float(np.minimum(1.0, factor * variance).sum())

    factor = _largest_factor(size, oversampling, limit)
    atoms = numbers[_numbers_of(numbers) < np.minimum(1.0, factor * variance)]
    return read_only(np.sort(atoms) if len(atoms) else numbers[[np.argmax(variance)]], np.intp)


def _numbers_of(arms: Indices) -> Floats:
    """Return a number in [0, 1) for each of `arms` (n,), the same in every call: SplitMix64
    (Steele, Lea, Flood 2014)."""
    bits = (arms.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = (bits ^ (bits >> np.uint64(31))) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _within(limit: int | None, pulls: Pulls, variance: Floats, oversampling: float, resampling: Resampling) -> Floats:
    """Return the probabilities (p,) for the largest q̄ for which their sum is at most `limit`."""

    def probabilities(factor: float) -> Floats:
        return inclusion_probabilities(pulls, variance, factor, resampling)

    if limit is None:
        return probabilities(oversampling)
    return probabilities(_largest_factor(lambda factor: float(probabilities(factor).sum()), oversampling, limit))


def _largest_factor(size: Callable[[float], float], most: float, limit: int) -> float:
    """Return the largest factor from 0 to `most` for which the expected `size`, an increasing
    function, is at most `limit`. Uses bisection."""
    if size(most) <= limit:
        return most
    low = 0.0
    high = most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if size(middle) <= limit else (low, middle)
    return low
