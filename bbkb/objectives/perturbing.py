"""Perturbs configurations, as population-based training explores (Jaderberg et al. 2017, 4.1).

Each parameter is redrawn with probability `resample_probability`. Otherwise, a number is multiplied
by one of `factors` and clipped to its range; a whole number, or one with steps, changes by at least
one value. An ordered value moves to a neighbor. A choice has no neighbors and remains. Parameters
that exist only in the new configuration are drawn.
"""

from collections.abc import Sequence

import numpy as np

from bbkb.objectives import coding
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Choice, Parameter, Range
from bbkb.objectives.space import SearchSpace

_ROUNDS = 8  # the largest number of attempts to find a configuration that is not forbidden


def perturb(
    space: SearchSpace,
    candidates: Candidates,
    parents: Sequence[int],
    factors: Sequence[float],
    resample_probability: float,
    rng: np.random.Generator,
) -> Candidates:
    """Return one new arm for each of `parents`, arms that may be repeated; a copy of the parent if
    all attempts are forbidden.

    `factors` on numbers, one of which is drawn for each parameter. `resample_probability` is that
    of a new draw, for each parameter.
    """
    codes = space.encode({name: column[list(parents)] for name, column in candidates.columns.items()})
    kinds = list(space.parameters.values())
    for row in codes:
        for _ in range(_ROUNDS):
            values = [
                _moved(kind, code, float(rng.choice(factors)), rng.random() < resample_probability, rng)
                for kind, code in zip(kinds, row, strict=True)
            ]
            child = space.existing(np.array([values]))
            if space.is_allowed(child)[0]:
                row[:] = child[0]
                break
    return space.candidates(codes)


def _moved(
    kind: Parameter, code: float, factor: float, is_redrawn: bool, rng: np.random.Generator
) -> float:  # fmt: skip
    position = rng.random()  # drawn in any case, so that the draws of the parameters are independent
    if is_redrawn or np.isnan(code):
        return float(coding.draw(kind, np.array([position]))[0])
    if isinstance(kind, Choice):
        return code
    moved = code
    sign = 1.0
    if isinstance(kind, Range):
        value = float(coding.values(kind, np.array([code]))[0])
        target = np.clip(value * factor, kind.low, kind.high)
        moved = float(coding.encode(kind, np.array([target]))[0])
        sign = np.sign(value) or 1.0
    if coding.is_real(kind):
        return float(np.clip(moved, 0.0, 1.0))
    if moved == code:
        moved += sign if factor > 1.0 else -sign
    return float(np.clip(moved, 0.0, coding.count(kind) - 1.0))
