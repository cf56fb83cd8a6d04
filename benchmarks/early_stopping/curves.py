"""Learning curves that are trained once: each configuration of a grid for 27 epochs, each a line of
a JSON-lines file.

A line has the configuration, its validation accuracy after each epoch, and the CPU seconds of this
process for all epochs, which do not depend on other processes of the machine. After an interrupt
only missing curves are trained.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from objectives.conditions import Scalar
from objectives.datasets import DataSource
from objectives.objective import Objective
from objectives.parameters import Ordered, Space
from objectives.sampling import make_candidates
from objectives.training.cnn import ConvolutionalNetwork
from objectives.training.softmax import SoftmaxRegression
from orchestrator.errors import UserError

EPOCHS = 27
Grid = Mapping[str, Ordered]
Configuration = Mapping[str, Scalar]


class Options(Protocol):
    """Options of an objective that trains."""

    def load(self, source: DataSource) -> Objective: ...


class Trainings(Protocol):
    """Configurations, and the objective that trains them."""

    @property
    def options(self) -> Options: ...

    @property
    def space(self) -> Space: ...

    def configurations(self) -> list[Configuration]: ...


@dataclass(frozen=True)
class Training:
    """A grid of configurations, and the objective that trains them."""

    options: Options
    grid: Grid

    @property
    def space(self) -> Space:
        """The parameters of the grid."""
        return dict(self.grid)

    def configurations(self) -> list[Configuration]:
        """All configurations, in the order of the grid."""
        candidates = make_candidates(self.space, sampler="grid")
        return [candidates.parameters(arm) for arm in range(len(candidates))]


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """The validation accuracies after each epoch (0 from the epoch on at which a training
    diverged), and the CPU seconds of the whole training."""

    configuration: Configuration
    accuracies: tuple[float, ...]
    seconds: float


def softmax() -> Training:
    """Softmax regression on scikit-learn's digits: 324 configurations."""
    options = SoftmaxRegression(EPOCHS, dataset="digits", validation_fraction=0.4)
    rates = Ordered((1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0))
    return Training(
        options,
        {
            "learning_rate": rates,
            "batch_size": Ordered((16, 64, 256)),
            "dropout": Ordered((0.0, 0.25, 0.5)),
            "l2": Ordered((1e-6, 1e-4, 1e-2, 1e-1)),
        },
    )


def cnn() -> Training:
    """The convolutional network on scikit-learn's digits: 144 configurations."""
    return Training(
        ConvolutionalNetwork(EPOCHS, dataset="digits", train_size=1000),
        {
            "learning_rate": Ordered((1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)),
            "batch_size": Ordered((64, 256)),
            "first_kernel": Ordered((3, 5)),
            "second_kernel": Ordered((3, 5)),
            "hidden": Ordered((10, 20, 40)),
        },
    )


TRAININGS: Mapping[str, Callable[[], Training]] = {"softmax": softmax, "cnn": cnn}


def load_curves(name: str, folder: Path, say: Callable[[str], None]) -> list[LearningCurve]:
    """The curves of TRAININGS[name], in the order of its grid; see `curves_of`."""
    return curves_of(TRAININGS[name](), name, folder, say)


def curves_of(training: Trainings, name: str, folder: Path, say: Callable[[str], None]) -> list[LearningCurve]:
    """The curves of `training`, in the order of its configurations; those that are missing in the
    file `name` in `folder` are trained first.

    Raises UserError when a line of the file cannot be read, ObjectiveError when PyTorch is missing.
    """
    path = folder / f"{name}.jsonl"
    by_key = {key_of(curve.configuration): curve for curve in _read(path)}
    configurations = training.configurations()
    missing = [(number, trained) for number, trained in enumerate(configurations) if key_of(trained) not in by_key]
    if missing:
        objective = training.options.load(DataSource())
        folder.mkdir(parents=True, exist_ok=True)
        for number, configuration in missing:
            curve = train(objective, configuration, seed=number)
            by_key[key_of(configuration)] = curve
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(curve)) + "\n")
            say(
                f"{name} {len(by_key)}/{len(configurations)}: "
                f"accuracy {curve.accuracies[-1]:.4f}, {curve.seconds:.2f} s"
            )
    return [by_key[key_of(point)] for point in configurations]


def train(objective: Objective, configuration: Configuration, seed: int) -> LearningCurve:
    """The curve of one complete training."""
    accuracies: list[float] = []

    def report(value: float, step: int | None = None, **metrics: float) -> None:
        accuracies.append(value if math.isfinite(value) else 0.0)

    began = time.process_time()
    objective.evaluate(configuration, seed, report)
    seconds = time.process_time() - began
    padded = (*accuracies, *[0.0] * (EPOCHS - len(accuracies)))
    return LearningCurve(configuration=configuration, accuracies=padded, seconds=round(seconds, 4))


def key_of(configuration: Configuration) -> str:
    """A text that identifies a configuration."""
    return json.dumps(configuration, sort_keys=True)


def _read(path: Path) -> Iterator[LearningCurve]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        try:
            plain = json.loads(line)
            yield LearningCurve(**{**plain, "accuracies": tuple(plain["accuracies"])})
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{path}:{number} is not a learning curve ({error!r}); delete that line, and the curve is trained again"
            ) from error
