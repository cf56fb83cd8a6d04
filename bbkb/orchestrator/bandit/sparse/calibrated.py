"""A sparse state with the calibrated model: its beginning, its fits, and its record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbkb.orchestrator.bandit.arms import Layout
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.model.curve_kernel import CurveNumbers
from bbkb.orchestrator.bandit.model.fitting import Fitted
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.model.outputs import Scale
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.strategy import Observation, Record

CHECKED_FROM = 16  # the number of results before the first prediction
CHECKED_WIDTH = 2.0  # standard deviations
# the prior median of the noise variance of a score, whose prior variance is 1
NEGLIGIBLE_NOISE = 0.05

# returns mean and variance of arms on the 1/λ scale
Belief = Callable[[Indices], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Calibration:
    """The calibrated model of a state."""

    fitted: Fitted  # the fitted numbers
    inside: int = 0  # the number of predicted results within μ ± 2σ, including noise
    predicted: int = 0  # the number predicted before the model learned them

    def recorded(self) -> Record:
        """Return the calibration as plain values for JSON."""
        curve = self.fitted.curve
        return {
            "lengthscales": list(self.fitted.lengthscales),
            "noise": self.fitted.noise,
            "results": self.fitted.results,
            "inside": self.inside,
            "predicted": self.predicted,
            **({} if curve is None else {"curve": curve.recorded(), "curve_trials": self.fitted.curve_trials}),
        }

    @staticmethod
    def from_record(record: Record) -> "Calibration":
        """Return the calibration that `recorded` wrote."""
        lengthscales = tuple(float(scale) for scale in record["lengthscales"])
        curve = CurveNumbers.from_record(record["curve"]) if "curve" in record else None
        trials = int(record.get("curve_trials", 0))
        fitted = Fitted(lengthscales, float(record["noise"]), int(record["results"]), curve, trials)
        return Calibration(fitted, int(record["inside"]), int(record["predicted"]))


def is_noisy(fitted: Fitted) -> bool:
    """Return whether the noise is so large that it may explain the best mean reward."""
    return fitted.results > 0 and fitted.noise > NEGLIGIBLE_NOISE


def begin_model(model: Model, features: Floats, layout: Layout) -> tuple[SparseModel, Calibration]:
    """Return the model before any pull of arms with `features` (A, d)."""
    fitted = model.begin(layout)
    sparse = SparseModel(model.kernel_of(fitted, layout), features, fitted.noise, model.outputs, model.mean)
    return sparse, Calibration(fitted)


def with_fit(sparse: SparseModel, model: Model, fitted: Fitted, layout: Layout) -> SparseModel:
    """Return `sparse` with the fitted values; with its caches if nothing has changed."""
    kernel = model.kernel_of(fitted, layout)
    if (kernel, fitted.noise) == (sparse.kernel, sparse.regularization):
        return sparse
    if kernel == sparse.kernel:
        return sparse.with_regularization(fitted.noise)
    return replace(sparse, kernel=kernel, regularization=fitted.noise)


def check(
    calibration: Calibration, noise: float, scale: Scale, belief: Belief, observations: Sequence[Observation]
) -> Calibration:
    """Return `calibration` after counting the results that `belief`, the belief before them,
    predicted.

    `noise`: λ of the belief. `scale`: the scale of its scores.
    """
    pairs = [(observation.arm, observation.reward) for observation in observations if observation.reward is not None]
    if not pairs:
        return calibration
    arms = np.array([arm for arm, _ in pairs], np.intp)
    rewards = np.array([reward for _, reward in pairs])
    mean, variance = belief(arms)
    deviation = np.sqrt(noise * (variance + 1.0))
    errors = np.abs(scale.scores(rewards) - mean)
    inside = int(np.count_nonzero(errors <= CHECKED_WIDTH * deviation))
    return replace(calibration, inside=calibration.inside + inside, predicted=calibration.predicted + len(pairs))
