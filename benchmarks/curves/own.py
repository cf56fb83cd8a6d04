"""`python -m benchmarks.curves.own`: record the learning curves of the problems `own-…`.

Each has 200 configurations, the points of a Sobol sequence, trained once for 27 steps on a data set
that scikit-learn bundles.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.errors import UserError
from benchmarks.command import run as run_command
from benchmarks.curves import trainings
from benchmarks.curves.problems import CurveProblem, Floats
from benchmarks.curves.recorded import Table as Recorded
from benchmarks.curves.trainings import STEPS, Rows, load_rows

CONFIGURATIONS = 200
FOLDER = Path("runs/own_curves")

_XGBOOST: Space = {
    "eta": Range(0.003, 1.0, log=True),
    "max_depth": Range(1, 8, integer=True),
    "subsample": Range(0.2, 1.0),
    "colsample_bytree": Range(0.2, 1.0),
    "lambda": Range(0.01, 100.0, log=True),
}
_LINEAR: Space = {
    "alpha": Range(1e-6, 1.0, log=True),
    "penalty": Choice(("l2", "l1", "elasticnet")),
    "learning_rate": Choice(("constant", "invscaling", "adaptive")),
    "eta0": Range(1e-5, 1.0, log=True),
    "power_t": Range(0.1, 0.9),
}
_LINEAR_CLASSIFIER: Space = {**_LINEAR, "loss": Choice(("hinge", "log_loss", "modified_huber", "perceptron"))}
_PERCEPTRON: Space = {
    "width": Range(4, 128, log=True, integer=True),
    "layers": Range(1, 3, integer=True),
    "activation": Choice(("relu", "tanh", "logistic")),
    "solver": Choice(("sgd", "adam")),
    "learning_rate_init": Range(1e-4, 1.0, log=True),
    "alpha": Range(1e-6, 1.0, log=True),
    "batch_size": Range(16, 80, log=True, integer=True),
}
_RECURRENT: Space = {
    "width": Range(8, 64, log=True, integer=True),
    "activation": Choice(("tanh", "relu")),
    "scale": Range(0.2, 3.0, log=True),
    "learning_rate": Range(1e-3, 3.0, log=True),
    "momentum": Range(0.0, 0.98),
    "batch_size": Range(16, 128, log=True, integer=True),
}
_DEEP: Space = {  # flat for long
    **{name: _PERCEPTRON[name] for name in ("width", "alpha", "batch_size")},
    "layers": Range(2, 4, integer=True),
    "learning_rate_init": Range(3e-3, 3.0, log=True),
    "momentum": Range(0.0, 0.98),
}
_STEEP: Space = {**_XGBOOST, "eta": Range(0.003, 3.0, log=True)}


@dataclass(frozen=True)
class Own:
    """A problem to record."""

    space: Space
    data: str  # a data set of scikit-learn
    train: Callable[[Rows, Mapping[str, object], int], Iterator[float]]  # configuration, seed
    is_scaled: bool = True  # whether the features are scaled


DEVELOP: Mapping[str, Own] = {
    "boosting-digits": Own(_XGBOOST, "digits", trainings.boosting),
    "linear-cancer": Own(_LINEAR_CLASSIFIER, "breast_cancer", trainings.linear_classifier, is_scaled=False),
    "linear-diabetes": Own(_LINEAR, "diabetes", trainings.linear_regression),
    "deep-digits": Own(_DEEP, "digits", partial(trainings.perceptron, activation="logistic", solver="sgd")),
    "perceptron-wine": Own(_PERCEPTRON, "wine", partial(trainings.perceptron, ends_early=True)),
}
VERDICT: Mapping[str, Own] = {
    "boosting-diabetes": Own(_STEEP, "diabetes", partial(trainings.boosting, is_regression=True)),
    "boosting-cancer": Own(_XGBOOST, "breast_cancer", trainings.boosting),
    "linear-digits": Own(_LINEAR_CLASSIFIER, "digits", trainings.linear_classifier),
    "perceptron-digits": Own(_PERCEPTRON, "digits", trainings.perceptron),
    "recurrent-digits": Own(_RECURRENT, "digits", trainings.recurrent),
}
OWN = {**DEVELOP, **VERDICT}


def record(name: str, folder: Path, count: int = CONFIGURATIONS) -> Path:
    """Train `count` configurations of OWN[name], and write their curves into `folder`.

    The file has the values (A, 27), NaN after a training's end and −inf from the step at which it
    diverged, and a column of each parameter.
    """
    problem = OWN[name]
    candidates = make_candidates(problem.space, count, "sobol", 0)
    rows = load_rows(problem.data, is_scaled=problem.is_scaled)
    values = np.full((len(candidates), STEPS), np.nan)
    for arm in range(len(candidates)):
        curve = _curve(problem.train(rows, candidates.parameters(arm), arm))
        values[arm, : len(curve)] = curve
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    columns: dict[str, Any] = {f"p_{one}": candidates.columns[one] for one in problem.space}
    np.savez(path, values=values, **columns)
    return path


def _curve(training: Iterator[float]) -> Floats:
    """The values of a training; −inf from the first that is not finite."""
    curve = np.full(STEPS, -np.inf)
    count = 0
    with np.errstate(all="ignore"), warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for value in training:
            if not np.isfinite(value):
                return curve
            curve[count] = value
            count += 1
    return curve[:count]


def load(name: str, folder: Path) -> CurveProblem:
    """The recorded problem OWN[name]; a training that diverged keeps the least value on record.

    Raises ObjectiveError if it has not been recorded.
    """
    path, space = folder / f"{name}.npz", OWN[name].space
    if not path.is_file():
        raise ObjectiveError(
            f"the learning curves of own-{name} must be in {path}: "
            f"run python -m benchmarks.curves.own --own {folder}, or name their folder with --own"
        )
    with np.load(path) as archive:
        arrays = dict(archive)
    arms = SearchSpace(space).candidates_of({one: arrays[f"p_{one}"] for one in space})
    table = Recorded(space, arms, _finite(arrays["values"]))
    return table.problem(f"own-{name}", tuple(range(1, STEPS + 1)), (1,) * STEPS)


def _finite(values: Floats) -> Floats:
    """The values with the least finite one after a divergence."""
    return np.where(np.isneginf(values), values[np.isfinite(values)].min(), values)


def main(
    names: Annotated[str, typer.Argument(help=f"Some of {','.join(OWN)}.")] = ",".join(OWN),
    own: Annotated[Path, typer.Option(help="Folder for the curves.")] = FOLDER,
) -> None:
    """Record the problems that are not yet in the folder."""
    selected = names.split(",")
    if unknown := set(selected) - set(OWN):
        raise UserError(f"the names must be some of {','.join(OWN)}, got {','.join(unknown)}")
    for name in selected:
        if not (own / f"{name}.npz").is_file():
            typer.echo(f"recorded {record(name, own)}")


if __name__ == "__main__":
    run_command(main, "benchmarks.curves.own")
