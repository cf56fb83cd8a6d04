"""The model of all model-based strategies, so that strategies differ only in their choices."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, ClassVar, Protocol

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import ArrayLike
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arms import Layout
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.curves import CurveValues
from bbkb.orchestrator.bandit.kernels import NAMED_KERNEL, AnyKernel, Kernel, KernelOption, Linear
from bbkb.orchestrator.bandit.model import defaults
from bbkb.orchestrator.bandit.model.curve_kernel import CurveKernel
from bbkb.orchestrator.bandit.model.fitting import (
    EARLY_FIT,
    FIRST_FIT,
    CurveFitInput,
    Evidence,
    Fitted,
    chosen_for_fit,
    chosen_trials,
    fit,
    fit_curves,
    is_due,
    is_fit_due,
    keep_close_values,
    known_noise,
    prior,
    prior_numbers,
    short_start,
)
from bbkb.orchestrator.bandit.model.outputs import Outputs, Scale, mean_rewards, score_variances, scores_of
from bbkb.orchestrator.bandit.options import Like, Options, Regularization, VerifiedShare
from bbkb.orchestrator.bandit.pulls import Pulls


class ScoredCurves(Protocol):
    """The values of trials with their scores: the interface of `sparse.curve_fit.CurveEvidence`."""

    @property
    def values(self) -> CurveValues:
        """The values of all trials."""

    @property
    def features(self) -> Floats:
        """The features of each trial's candidate (n, d)."""

    @property
    def scores(self) -> Floats:
        """The score of each value (N,)."""


class Mean(StrEnum):
    """The prior mean of the scores."""

    CONSTANT = "constant"  # a single estimated number
    ZERO = "zero"


class Fitting(StrEnum):
    """Whether lengthscales and noise are fitted to the scores."""

    AUTO = "auto"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Model(Options):
    """The options of the reward model. Raises ValueError, with the field's name, if a value is out
    of range."""

    SECTION: ClassVar[str] = "model"

    kernel: Annotated[
        AnyKernel,
        NAMED_KERNEL,
        Like(Kernel),
        Doc("The covariance function; with `fit: auto` only its family counts, and lengthscales are fitted."),
    ] = defaults.CALIBRATED
    mean: Annotated[Mean, Doc("The prior mean of the scores: `constant`, estimated at every refit, or `zero`.")] = (
        Mean.CONSTANT
    )
    outputs: Annotated[
        Outputs,
        Doc("Scores of the rewards: `half_rank`, `rank`, `standardise`, or `raw`, the rewards as they come."),
    ] = Outputs.HALF_RANK
    fit: Annotated[
        Fitting,
        Doc("`auto`: one lengthscale per parameter and the noise are fitted; `off`: kernel and noise are as given."),
    ] = Fitting.AUTO
    noise: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("λ, the variance of a score's noise, > 0; None: it is fitted, or 0.05 with `fit: off`."),
    ] = None
    first_fit: Annotated[
        Annotated[int, Ge(2)] | None,
        Doc(
            "Results at the first fit, and at the first growth of the candidates, ≥ 2; before it the prior decides. "
            "None: 8 if no arm is pulled twice, otherwise 16."
        ),
    ] = FIRST_FIT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_fitted and isinstance(self.kernel, Linear):
            raise ValueError(
                f"model.fit must be off with the {self.kernel.name} kernel, which has no lengthscale to fit"
            )

    @property
    def is_fitted(self) -> bool:
        """Whether anything is fitted."""
        return self.fit is Fitting.AUTO

    def results_at_first_fit(self, layout: Layout) -> int:
        """Return the number of results at the first fit of the model of these arms."""
        if self.first_fit is not None:
            return self.first_fit
        return FIRST_FIT if layout.repeats else EARLY_FIT

    def kernel_of(self, fitted: Fitted, layout: Layout) -> AnyKernel | CurveKernel:
        """Return the kernel with the fitted numbers, or the given kernel if nothing is fitted."""
        return fitted.kernel(self.kernel, layout) if self.is_fitted else self.kernel

    def refit(self, fitted: Fitted, pulls: Pulls, layout: Layout, features: Floats) -> Fitted:
        """Return a fit to all `pulls` if one is due; values of `fitted` that are close to the new
        ones are kept. Otherwise return `fitted`.

        `features` (A, d): those of all arms.
        """
        if not self.is_fitted or not is_due(pulls.total, fitted, self.results_at_first_fit(layout)):
            return fitted
        known, scores = self._scores_for_fit(pulls, self.results_at_first_fit(layout))
        places = chosen_for_fit(scores.sum(axis=0) if len(scores) > 1 else scores[0])
        arms = known[places]
        variances = score_variances(pulls, self.outputs)
        noise = self.noise
        counts: Indices | Floats = pulls.counts[arms]
        if variances is not None:  # known, not fitted
            noise = known_noise(variances) if noise is None else noise
            counts = noise / variances[places]
        evidence = Evidence(features[arms], scores[:, places], counts, pulls.total)
        starts = [fitted]
        if len(scores) > 1:
            starts.append(prior(layout, noise))
        if layout.parameter_count == 1:
            starts.append(short_start(layout, noise))
        return keep_close_values(fit(evidence, layout, self.kernel, starts, noise), fitted, layout)

    def _scores_for_fit(self, pulls: Pulls, least: int) -> tuple[Indices, Floats]:
        """Return arms (n,) and their scores (J, n).

        If pulls lack an output, they are the arms with all outputs. If these are fewer than `least`,
        they are all arms with the outputs that no arm lacks.
        """
        outputs = pulls.outputs
        arms = pulls.arms
        scores = [scores_of(mean_rewards(output), self.outputs) for output in outputs]
        complete = arms
        for output in outputs[1:]:
            complete = np.intersect1d(complete, output.arms, assume_unique=True)
        if len(complete) == len(arms) or len(complete) < least:
            return arms, np.array([one for one in scores if len(one) == len(arms)])
        pairs = zip(outputs, scores, strict=True)
        return complete, np.array([one[np.isin(output.arms, complete)] for output, one in pairs])

    def refit_curves(self, fitted: Fitted, evidence: ScoredCurves, layout: Layout, span: tuple[float, float]) -> Fitted:
        """Return a fit of the model over steps to the trials of `evidence` if one is due, else
        `fitted`. `span`: the first and the last step."""
        numbers = prior_numbers(*span) if fitted.curve is None else replace(fitted.curve, first=span[0], last=span[1])
        lengthscales = fitted.lengthscales
        trials = len(evidence.values.sizes)
        known = fitted.curve_trials
        if is_fit_due(trials, known):
            chosen = chosen_trials(evidence.scores[evidence.values.last], evidence.values.sizes)
            part = evidence.values.take(chosen)
            scores = evidence.scores[np.isin(evidence.values.owners, chosen)]
            fit_input = CurveFitInput(evidence.features[chosen], part, scores, layout, self.kernel)
            lengthscales, numbers = fit_curves(fit_input, (lengthscales, numbers), span)
            known = trials
        return Fitted(lengthscales, numbers.end_noise, fitted.results, numbers, known)


ModelOption = Annotated[
    Model | None,
    Doc("The calibrated model, in place of kernel and noise as given; None: rewards as they come, nothing fitted."),
]


@dataclass(frozen=True)
class ModelOptions(Options):
    """The options of every strategy with a model."""

    kernel: KernelOption = defaults.SMOOTH
    regularization: Regularization = 1e-4
    model: ModelOption = None
    verify: VerifiedShare = 0.0


def model_of(strategy: object) -> Model | None:
    """Return the calibrated model of a strategy, or None."""
    model = getattr(strategy, "model", None)
    return model if isinstance(model, Model) else None


def scores_among(pulls: Pulls, model: Model | None, rewards: ArrayLike) -> Floats:
    """Return the scores (n,) of `rewards` (n,) relative to those of `pulls`, or the rewards
    themselves if there is no model."""
    numbers = np.asarray(rewards, np.float64)
    if model is None or model.outputs is Outputs.RAW:
        return numbers
    return Scale(mean_rewards(pulls), model.outputs).scores(numbers)
