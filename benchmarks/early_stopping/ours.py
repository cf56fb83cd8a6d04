"""This project's campaigns on recorded learning curves, in simulated time, until the target is
reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.early_stopping.curves import TRAININGS, LearningCurve, key_of, load_curves
from benchmarks.papers.campaigns import finish_and_read
from objectives.datasets import DataSource
from objectives.objective import Evaluation, Parameters, Report
from objectives.parameters import Space
from orchestrator.campaign.events import Event, SessionOpened, TrialSucceeded
from orchestrator.settings.loading import from_mapping

MOST_EVALUATIONS = 500


@dataclass(frozen=True, slots=True)
class RecordedCurves:
    """Options of the objective: the curves of `training`, stored in `folder`."""

    training: str
    folder: str

    def default_space(self) -> Space:
        """The grid."""
        return dict(TRAININGS[self.training]().grid)

    def load(self, source: DataSource) -> "Playback":
        """The objective; curves that are missing are trained."""
        curves = load_curves(self.training, Path(self.folder), lambda line: None)
        return Playback({key_of(curve.configuration): curve for curve in curves})


@dataclass(frozen=True)
class Playback:
    """Reports the recorded accuracies; the metric `seconds` is the duration of the training."""

    curves: Mapping[str, LearningCurve]

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        curve = self.curves[key_of(parameters)]
        for step, accuracy in enumerate(curve.accuracies, start=1):
            report(accuracy, step)
        return Evaluation(curve.accuracies[-1], {"seconds": curve.seconds})


@dataclass(frozen=True, kw_only=True)
class Found:
    """A search: simulated seconds until a finished training reached the target, and the number of
    started trainings.

    `is_found` is False when none of MOST_EVALUATIONS reached it; the seconds are then those of all
    of them.
    """

    seconds: float
    trials: int
    is_found: bool = True


def search(
    training: str,
    folder: Path,
    strategy: str,
    rule: Mapping[str, object] | None,
    target: float,
    workers: int,
    seed: int,
) -> Found:
    """Run one campaign in simulated time, until the target is reached.

    Args:
        training: a name of `curves.TRAININGS`.
        folder: where the curves and the run are stored.
        strategy: the name of the strategy, with its default options.
        rule: the section `early_stopping` of a campaign file; None: no early stopping.
        target: the accuracy that counts as found, in [0, 1].
        workers: evaluations at the same time.
        seed: the campaign's seed.

    Raises:
        CampaignError: when the campaign does not finish.

    """
    name = f"{training}-{strategy}-{rule['rule'] if rule else 'none'}-seed{seed}"
    settings = from_mapping(
        {
            "name": name,
            "seed": seed,
            "objective": {
                "name": f"{RecordedCurves.__module__}:{RecordedCurves.__qualname__}",
                "options": {"training": training, "folder": str(folder)},
            },
            "strategy": {"name": strategy},
            "budget": {"evaluations": MOST_EVALUATIONS, "target": target},
            "workers": {"executor": "simulated", "count": workers},
            "early_stopping": rule,
            "runs": str(folder / "runs"),
        },
        origin=name,
    )
    return _find_target(finish_and_read(settings), target)


def _find_target(events: Sequence[Event], target: float) -> Found:
    began = next(event.time for event in events if isinstance(event, SessionOpened))
    reached = (event for event in events if isinstance(event, TrialSucceeded) and event.value >= target)
    event = next(reached, None)
    if event is None:
        return Found(seconds=events[-1].time - began, trials=MOST_EVALUATIONS, is_found=False)
    return Found(seconds=event.finished - began, trials=event.trial + 1)
