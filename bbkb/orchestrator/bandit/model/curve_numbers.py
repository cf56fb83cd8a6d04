"""The fitted numbers of the covariance of `curve_kernel`, whose docstring explains the symbols.

This module does not import numpy, so that commands that only read a log start quickly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class CurveNumbers:
    """The fitted numbers of the model over steps, besides the lengthscales of the parameters."""

    # s_g, the variance of the part of a configuration's quality that does not change with the step
    lasting: float
    bending: float  # s_h, the variance of the part that changes with the step
    shared: float  # s_m, the variance of the curve that all trials share
    own: float  # s_r, the variance of the trial effect
    noise: float  # v, the variance of a single value
    step_lengthscale: float  # lengthscale of k_t, in units of t
    own_lengthscale: float  # lengthscale of k_q, in units of t
    first: float  # the step at t = 0
    last: float  # the step at t = 1

    @property
    def end_noise(self) -> float:
        """λ: the variance of a final value, given g."""
        return self.own + self.noise

    def recorded(self) -> dict[str, float]:
        """Return the numbers as plain values for JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_record(record: Mapping[str, float]) -> "CurveNumbers":
        """Return the numbers that `recorded` wrote."""
        return CurveNumbers(**{one.name: float(record[one.name]) for one in fields(CurveNumbers)})
