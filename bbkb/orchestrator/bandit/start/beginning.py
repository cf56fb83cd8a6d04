"""Creates a strategy's initial state: its model, published or calibrated, and its warm start."""

import numpy as np
from numpy.typing import ArrayLike

from bbkb.orchestrator.bandit.arms import Arms, Layout
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.goals import SINGLE
from bbkb.orchestrator.bandit.kernels import AnyKernel
from bbkb.orchestrator.bandit.model.model import Model
from bbkb.orchestrator.bandit.sparse.all_arms import PlacedArms
from bbkb.orchestrator.bandit.sparse.calibrated import begin_model
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import SparseState, initial_state
from bbkb.orchestrator.bandit.start.warm_start import AnyWarmStart

AnyArms = Arms | Floats | PlacedArms


def features_and_layout(arms: Arms | PlacedArms | ArrayLike) -> tuple[Floats | PlacedArms, Layout | None]:
    """Return the features and the layout of `arms`. Raises ValueError for an invalid array."""
    if isinstance(arms, PlacedArms):
        return arms, None
    checked = arms if isinstance(arms, Arms) else Arms.of(arms)
    return checked.features, checked.layout


def begin_state(
    arms: AnyArms,
    published: tuple[AnyKernel, float],
    model: Model | None,
    warm_start: AnyWarmStart | None,
    rng: np.random.Generator,
) -> SparseState:
    """Return the state before any pull of `arms`, with a drawn warm start.

    `published`: the kernel and λ without a `model`. Raises ValueError for invalid arms, and if the
    model needs the layout of arms in other processes.
    """
    features, layout = features_and_layout(arms)
    if model is None:
        sparse = SparseModel(published[0], features, published[1])
        calibration = None
    elif layout is None:
        raise ValueError("a calibrated model needs the layout of candidates in other processes: pass `Arms`")
    else:
        sparse, calibration = begin_model(model, features, layout)
    initial = () if warm_start is None else warm_start.draw(sparse, rng, layout)
    goals, log_prior = (arms.goals, arms.log_prior) if isinstance(arms, Arms) else (SINGLE, None)
    if not goals.is_single and model is None:
        raise ValueError("several objectives or constraints need the calibrated model: leave strategy.preset out")
    return initial_state(sparse, initial, layout, calibration, goals, log_prior=log_prior)
