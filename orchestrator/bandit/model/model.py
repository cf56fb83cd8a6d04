"""The model that all model-based strategies share, so that they differ only in how they choose."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from orchestrator.bandit.arms import Layout
from orchestrator.bandit.arrays import Floats, Indices
from orchestrator.bandit.kernels import AnyKernel
from orchestrator.bandit.model import defaults
from orchestrator.bandit.model.fitting import Evidence, Fitted, can_be_fitted, chosen_for_fit, fit, is_due, prior
from orchestrator.bandit.model.outputs import Outputs, Scale, mean_rewards, scores_of
from orchestrator.bandit.pulls import Pulls

E = TypeVar("E", bound=StrEnum)
FindFeatures = Callable[[Indices], Floats]  # (n,) arms to their features (n, d), wherever they are


class Mean(StrEnum):
    """The prior mean of the scores."""

    CONSTANT = "constant"  # one number, estimated
    ZERO = "zero"


class Fit(StrEnum):
    """Whether lengthscales and noise are fitted to the scores."""

    AUTO = "auto"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Model:
    """How rewards are modelled. Raises ValueError, naming the field, when one is out of range.

    | field | meaning |
    | --- | --- |
    | `kernel` | covariance function; with `fit: auto` only its family counts, and lengthscales are fitted |
    | `mean` | prior mean of the scores: `constant`, estimated at every refit, or `zero` |
    | `outputs` | scores of the rewards: `half_rank`, `rank`, `standardise`, or `raw`, the rewards as they come |
    | `fit` | `auto`: one lengthscale a parameter and the noise are fitted; `off`: kernel and noise are as given |
    | `noise` | variance of a score's noise, > 0, which is λ; fitted when it is None, 0.05 with `fit: off` |
    """

    kernel: AnyKernel = defaults.CALIBRATED
    mean: Mean = Mean.CONSTANT
    outputs: Outputs = Outputs.HALF_RANK
    fit: Fit = Fit.AUTO
    noise: float | None = None
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _member("mean", Mean, self.mean))
        object.__setattr__(self, "outputs", _member("outputs", Outputs, self.outputs))
        object.__setattr__(self, "fit", _member("fit", Fit, self.fit))
        if self.noise is not None and not 0 < self.noise < math.inf:
            raise ValueError(f"model.noise must be > 0 and finite, got {self.noise!r}")
        if self.is_fitted and not can_be_fitted(self.kernel):
            raise ValueError(
                f"model.fit must be off with the {self.kernel.name} kernel, which has no lengthscale to fit"
            )

    @property
    def is_fitted(self) -> bool:
        """Whether anything is fitted."""
        return self.fit is Fit.AUTO

    def begin(self, layout: Layout) -> Fitted:
        """What holds before any fit."""
        return prior(layout, self.noise)

    def kernel_of(self, fitted: Fitted, layout: Layout) -> AnyKernel:
        """The kernel with what was fitted, or as it was given."""
        return fitted.kernel(self.kernel, layout) if self.is_fitted else self.kernel

    def refit(self, fitted: Fitted, pulls: Pulls, layout: Layout, look_up: FindFeatures) -> Fitted:
        """The fit to all `pulls` when one is due, else `fitted`; `look_up` gives the features of arms."""
        if not self.is_fitted or not is_due(pulls.total, fitted):
            return fitted
        scores = np.array([scores_of(mean_rewards(one), self.outputs) for one in pulls.outputs])
        chosen = chosen_for_fit(scores.sum(axis=0) if len(scores) > 1 else scores[0])
        seen = pulls.arms[chosen]
        evidence = Evidence(look_up(seen), scores[:, chosen], pulls.counts[seen], pulls.total)
        return fit(evidence, layout, self.kernel, fitted, self.noise)


def model_of(strategy: object) -> Model | None:
    """The calibrated model of a strategy; None when it has none."""
    model = getattr(strategy, "model", None)
    return model if isinstance(model, Model) else None


def scores_among(pulls: Pulls, model: Model | None, rewards: ArrayLike) -> Floats:
    """The scores (n,) of `rewards` (n,) among those of `pulls`; without a model the rewards themselves."""
    numbers = np.asarray(rewards, np.float64)
    if model is None or model.outputs is Outputs.RAW:
        return numbers
    return Scale(pulls, model.outputs).scores(numbers)


def _member(name: str, choices: type[E], value: str) -> E:
    """The member of `choices` with that value. Raises ValueError when there is none."""
    try:
        return choices(value)
    except ValueError:
        raise ValueError(f"model.{name} must be one of {', '.join(choices)}, got {value!r}") from None
