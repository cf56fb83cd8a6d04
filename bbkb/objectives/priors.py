"""Values that a user expects to be good: draws configurations near them, computes their density.

The density of a number or an ordered value is a Gaussian around its `prior` on the parameter's
scale; the `prior` of a choice has `RATIOS` times the probability of each other value. Parameters
are independent of each other, as in πBO (Hvarfner et al. 2022).
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives import coding
from bbkb.objectives.coding import Codes
from bbkb.objectives.parameters import Choice, Confidence, Constant, Parameter, Space, has_prior

# standard deviations, as shares of the scale's length
DEVIATIONS: Mapping[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
RATIOS: Mapping[Confidence, float] = {"low": 2.0, "medium": 4.0, "high": 8.0}


def draw(parameter: Parameter, positions: Codes) -> Codes:
    """Return codes (A,) at `positions` (A,) in [0, 1] of the distribution around the prior, or
    those of `coding.draw` if there is no prior."""
    if isinstance(parameter, Constant) or parameter.prior is None or parameter.confidence is None:
        return coding.draw(parameter, positions)
    code = coding.code_of(parameter, parameter.prior)
    if isinstance(parameter, Choice):
        weights = np.array(parameter.weights or (1.0,) * len(parameter.choices))
        weights[int(code)] *= RATIOS[parameter.confidence]
        ends = np.cumsum(weights) / weights.sum()
        return np.minimum(np.searchsorted(ends, positions, side="right"), len(weights) - 1).astype(np.float64)
    from scipy.special import ndtr, ndtri  # imported here, because few searches have priors

    center = coding.places(parameter, np.array([code]))[0]
    deviation = DEVIATIONS[parameter.confidence]
    low = ndtr(-center / deviation)
    high = ndtr((1.0 - center) / deviation)
    places = center + deviation * ndtri(low + (high - low) * positions)
    return coding.nearest(parameter, np.clip(places, 0.0, 1.0))


def log_density(space: Space, codes: Codes) -> NDArray[np.float64] | None:
    """Return the logarithm (A,) of the density at configurations `codes` (A, P), relative to its
    largest value (at most 0); None for a space without priors. A parameter that does not exist
    contributes its mean."""
    if not has_prior(space):
        return None
    total = np.zeros(len(codes))
    for parameter, column in zip(space.values(), codes.T, strict=True):
        if isinstance(parameter, Constant) or parameter.prior is None:
            continue
        code = coding.code_of(parameter, parameter.prior)
        exists = ~np.isnan(column)
        confidence = parameter.confidence or "medium"
        if isinstance(parameter, Choice):
            ratio = RATIOS[confidence]
            further = len(parameter.choices) - 1.0
            less = -math.log(ratio)
            density = np.full(len(column), less * further / (further + ratio))
            density[exists] = np.where(column[exists] == code, 0.0, less)
        else:
            density = np.full(len(column), -0.5)
            steps = coding.places(parameter, column[exists]) - coding.places(parameter, np.array([code]))
            density[exists] = -0.5 * (steps / DEVIATIONS[confidence]) ** 2
        total += density
    return total
