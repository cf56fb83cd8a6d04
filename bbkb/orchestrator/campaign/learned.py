"""The validity and the noise of the fitted model, read from the record of `ModelRefreshed`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEAST_PREDICTED = 20  # the number of predicted results from which on their share inside is used
# the same for the remark: one refresh may predict ten results, which then miss for the same reason
LEAST_REMARKED = 40
# a model is overconfident if its share of results inside μ ± 2σ is two standard errors below this
LEAST_SHARE = 0.8
# the share of all evaluations that one arm may take if rewards look deterministic
LARGEST_ARM_SHARE = 0.2
LEAST_EVALUATIONS = 25
NEGLIGIBLE_NOISE = 0.01  # variance of a score, whose prior variance is 1


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """Facts about the model of the newest refit, from the campaign's log."""

    inside: int  # the number of results within μ ± 2σ of the model before it had learned them
    predicted: int  # the number of results that were predicted before the model had learned them
    noise: float  # the fitted variance of a score's noise
    most_pulled: int  # the most frequently pulled arm
    most_pulls: int  # its number of pulls
    evaluations: int  # the number of pulls with a reward
    # steps of a training, each with the estimated correlation between the value there and the final
    # value; empty without learning curves
    steps: tuple[tuple[int, float], ...] = ()
    cautious_steps: tuple[tuple[int, float], ...] = ()  # the same, less one standard error

    @staticmethod
    def of(record: Mapping[str, Any]) -> "LearnedModel | None":
        """Return the facts about the fitted model in `record`; None if no model was fitted."""
        model = record.get("model")
        if not isinstance(model, Mapping) or "predicted" not in model:
            return None
        arm, pulls = model["most_pulled"]
        return LearnedModel(
            inside=int(model["inside"]),
            predicted=int(model["predicted"]),
            noise=float(model["noise"]),
            most_pulled=int(arm),
            most_pulls=int(pulls),
            evaluations=int(model["pulls"]),
            steps=_correlations(record, "reliability"),
            cautious_steps=_correlations(record, "cautious_reliability"),
        )

    @property
    def share(self) -> float | None:
        """The share of the predicted results inside μ ± 2σ; None if there are too few."""
        return self.inside / self.predicted if self.predicted >= LEAST_PREDICTED else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the status and the report."""
        remarks = []
        share = self.share or 0.0
        error = math.sqrt(share * (1.0 - share) / max(1, self.predicted))
        if self.predicted >= LEAST_REMARKED and share + 2.0 * error < LEAST_SHARE:
            remarks.append(
                f"the model is overconfident: {share:.0%} of {self.predicted} results were within two "
                "standard deviations of its prediction instead of about 95%, because similar "
                "configurations differ more than it expects. All results are valid, but the search may have "
                "explored too little: compare the best value with that of a run with another seed"
            )
        is_repeated = self.most_pulls > LARGEST_ARM_SHARE * self.evaluations
        if is_repeated and self.noise <= NEGLIGIBLE_NOISE and self.evaluations >= LEAST_EVALUATIONS:
            remarks.append(
                f"candidate {self.most_pulled} took {self.most_pulls} of {self.evaluations} evaluations, and results "
                f"look deterministic: with objective.deterministic: true none is evaluated twice"
            )
        return tuple(remarks)


def _correlations(record: Mapping[str, Any], name: str) -> tuple[tuple[int, float], ...]:
    return tuple((int(step), float(correlation)) for step, correlation in record.get(name, ()))
