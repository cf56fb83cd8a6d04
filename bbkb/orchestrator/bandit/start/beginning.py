"""Creates a strategy's initial state: its model, published or calibrated, and its warm start."""

import numpy as np

from bbkb.orchestrator.bandit.arms import Arms, as_arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import AnyKernel
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.sparse.calibrated import begin_model
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import SparseState, initial_state
from bbkb.orchestrator.bandit.start.warm_start import AnyWarmStart

AnyArms = Arms | Floats


def begin_state(
    arms: AnyArms,
    published: tuple[AnyKernel, float],
    model: Model | None,
    warm_start: AnyWarmStart | None,
    rng: np.random.Generator,
) -> SparseState:
    """Return the state before any pull of `arms`, with a drawn warm start.

    `published`: the kernel and λ without a `model`. Raises ValueError for invalid arms.
    """
    checked = as_arms(arms)
    layout = checked.layout
    if model is None:
        sparse = SparseModel(published[0], checked.features, published[1])
        calibration = None
    else:
        sparse, calibration = begin_model(model, checked.features, layout)
    initial = () if warm_start is None else warm_start.draw(sparse, rng, layout)
    if not checked.goals.is_single and model is None:
        raise ValueError("several objectives or constraints need the calibrated model: leave strategy.preset out")
    return initial_state(sparse, initial, layout, calibration, checked.goals, log_prior=checked.log_prior)
