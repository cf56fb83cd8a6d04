"""Regret: the loss compared with pulling the best arm always. All values are noise-free, on the
maximised scale."""

import numpy as np

from orchestrator.bandit.arrays import Floats


def cumulative_regret(optimum: float, values: Floats) -> Floats:
    """R_t = Σ_{s ≤ t} (f* − f(x_s)) for t = 1 … T, from the pulled arms' `values` (T,): (T,)."""
    return np.cumsum(optimum - np.asarray(values, np.float64))


def simple_regret(optimum: float, values: Floats) -> Floats:
    """f* − max_{s ≤ t} f(x_s) for t = 1 … T, from the pulled arms' `values` (T,): (T,)."""
    return optimum - np.maximum.accumulate(np.asarray(values, np.float64))


def regret_ratio(regret: Floats, uniform_regret: Floats) -> Floats:
    """R_t over the uniform policy's R_t, (T,) each (BBKB §6); 1: no better than that policy; NaN
    where both are 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(regret, np.float64) / np.asarray(uniform_regret, np.float64)
