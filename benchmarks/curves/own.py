"""`python -m benchmarks.curves.own`: record the learning curves of the problems `own-…`.

Each has 200 configurations, the points of a Sobol sequence, trained once for 27 steps on a data set
that scikit-learn bundles. A training is a generator of at most `STEPS` values; larger values are
better. It may end early; a value that is not finite means that it has diverged.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, r2_score
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.errors import UserError
from benchmarks.command import run as run_command
from benchmarks.curves.problems import CurveProblem, Floats, Recorded

STEPS = 27
WORST_R2 = -10.0  # lower values count as divergence
_ROUNDS = 4  # of boosting in a step
_PATIENCE = 4  # steps without a better value after which some trainings end

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """A data set, half of its rows for training and half for validation."""

    train: Floats  # (n, d)
    train_target: NDArray[Any]  # (n,), a class or a number
    validation: Floats  # (m, d)
    validation_target: NDArray[Any]  # (m,)

    @property
    def classes(self) -> NDArray[Any]:
        """The classes (C,), ascending."""
        return np.unique(self.train_target)


def load_rows(name: str, *, is_scaled: bool) -> Rows:
    """Load the data set `name` of scikit-learn; scaled features have mean 0 and variance 1."""
    features, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(target))
    train, validation = np.array_split(order, 2)
    if is_scaled:
        spread = features[train].std(axis=0)
        features = (features - features[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return Rows(features[train], target[train], features[validation], target[validation])


def boosting(rows: Rows, parameters: Parameters, seed: int, *, is_regression: bool = False) -> Iterator[float]:
    """XGBoost, `_ROUNDS` rounds a step: − log loss of classes, else R². A regression ends when its
    validation error has not improved for some steps."""
    import xgboost

    metric = "rmse" if is_regression else "mlogloss"
    objective: dict[str, object] = {"objective": "reg:squarederror"}
    if not is_regression:
        objective = {"objective": "multi:softprob", "num_class": len(rows.classes)}
    validation = xgboost.DMatrix(rows.validation, rows.validation_target)
    history: dict[str, dict[str, list[float]]] = {}
    xgboost.train(
        {**objective, **parameters, "seed": seed, "nthread": 1, "eval_metric": metric, "tree_method": "hist"},
        xgboost.DMatrix(rows.train, rows.train_target),
        STEPS * _ROUNDS,
        evals=[(validation, "validation")],
        evals_result=history,
        early_stopping_rounds=_PATIENCE * _ROUNDS if is_regression else None,
        verbose_eval=False,
    )
    variance = rows.validation_target.var()
    for loss in history["validation"][metric][_ROUNDS - 1 :: _ROUNDS]:
        yield _fit_of(1.0 - loss**2 / variance) if is_regression else -loss


def linear_classifier(rows: Rows, parameters: Parameters, seed: int) -> Iterator[float]:
    """A linear classifier by stochastic gradients, one epoch per step: accuracy."""
    model = SGDClassifier(random_state=seed, **parameters)
    for _ in range(STEPS):
        model.partial_fit(rows.train, rows.train_target, classes=rows.classes)
        yield model.score(rows.validation, rows.validation_target)


def linear_regression(rows: Rows, parameters: Parameters, seed: int) -> Iterator[float]:
    """A linear regression by stochastic gradients, one epoch per step: R²."""
    model = SGDRegressor(random_state=seed, **parameters)
    target = (rows.train_target - rows.train_target.mean()) / rows.train_target.std()
    validation = (rows.validation_target - rows.train_target.mean()) / rows.train_target.std()
    for _ in range(STEPS):
        try:
            model.partial_fit(rows.train, target)
        except ValueError:  # an overflow
            yield math.nan
            return
        yield _fit_of(float(r2_score(validation, model.predict(rows.validation))))


def _fit_of(r2: float) -> float:
    """`r2`; NaN if it is so low that the training has diverged."""
    return r2 if r2 > WORST_R2 else math.nan


def perceptron(rows: Rows, varied: Parameters, seed: int, *, ends_early: bool = False, **fixed: str) -> Iterator[float]:
    """A multilayer perceptron, one epoch per step: − log loss. It can end if its training loss has
    not fallen by a hundredth for some steps."""
    parameters = {**fixed, **varied}
    hidden = (parameters.pop("width"),) * parameters.pop("layers")
    model = MLPClassifier(hidden, random_state=seed, **parameters)
    best, since = np.inf, 0
    for _ in range(STEPS):
        try:
            model.partial_fit(rows.train, rows.train_target, classes=rows.classes)
        except ValueError:  # its weights are not finite
            yield math.nan
            return
        yield -log_loss(rows.validation_target, model.predict_proba(rows.validation), labels=rows.classes)
        since = 0 if model.loss_ < 0.99 * best else since + 1
        best = min(best, model.loss_)
        if ends_early and since >= _PATIENCE:
            return


_Elementwise = Callable[[Floats], Floats]
_ACTIVATIONS: Mapping[str, tuple[_Elementwise, _Elementwise]] = {  # and its slope by its output
    "tanh": (np.tanh, lambda output: 1.0 - output**2),
    "relu": (lambda inputs: np.maximum(inputs, 0.0), lambda output: (output > 0).astype(np.float64)),
}


class RecurrentNetwork:
    """A recurrent network that reads an image by its eight rows; its gradients can explode."""

    def __init__(self, inputs: int, classes: int, parameters: Parameters, rng: np.random.Generator) -> None:
        self._length, width = int(np.sqrt(inputs)), parameters["width"]
        self.weights = [
            rng.normal(0.0, 1.0 / np.sqrt(self._length), (self._length, width)),
            rng.normal(0.0, parameters["scale"] / np.sqrt(width), (width, width)),
            rng.normal(0.0, 1.0 / np.sqrt(width), (width, classes)),
            np.zeros(width),
            np.zeros(classes),
        ]
        self._activate, self._slope = _ACTIVATIONS[parameters["activation"]]

    def forward(self, features: Floats) -> tuple[Floats, list[Floats]]:
        """The scores (n, C) of the classes, and the inputs and the states after each row."""
        read, turn, write, bias, offset = self.weights
        states = [np.zeros((len(features), len(turn)))]
        for row in np.split(features, self._length, axis=1):
            states.append(self._activate(row @ read + states[-1] @ turn + bias))
        return states[-1] @ write + offset, [features, *states]

    def gradients(self, error: Floats, layers: list[Floats]) -> list[Floats]:
        """The gradients of the weights by the gradient (n, C) of the scores."""
        features, *states = layers
        gradients = [np.zeros_like(weights) for weights in self.weights]
        gradients[2] = states[-1].T @ error
        gradients[4] = error.sum(axis=0)
        back = error @ self.weights[2].T
        rows = np.split(features, self._length, axis=1)
        for row, before, after in reversed(list(zip(rows, states[:-1], states[1:], strict=True))):
            back = back * self._slope(after)
            gradients[0] += row.T @ back
            gradients[1] += before.T @ back
            gradients[3] += back.sum(axis=0)
            back = back @ self.weights[1].T
        return gradients


def recurrent(rows: Rows, parameters: Parameters, seed: int) -> Iterator[float]:
    """A recurrent network trained by gradients with momentum, one epoch per step: accuracy, and NaN
    once its scores are not finite."""
    rng, classes = np.random.default_rng(seed), rows.classes
    model = RecurrentNetwork(rows.train.shape[1], len(classes), parameters, rng)
    velocities = [np.zeros_like(weights) for weights in model.weights]
    goals = (rows.train_target[:, None] == classes).astype(np.float64)
    for _ in range(STEPS):
        order = rng.permutation(len(goals))
        for at in np.array_split(order, -(-len(order) // parameters["batch_size"])):
            scores, layers = model.forward(rows.train[at])
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            error = (chances / chances.sum(axis=1, keepdims=True) - goals[at]) / len(at)
            for weights, velocity, gradient in zip(
                model.weights, velocities, model.gradients(error, layers), strict=True
            ):
                velocity *= parameters["momentum"]
                velocity -= parameters["learning_rate"] * gradient
                weights += velocity
        scores, _ = model.forward(rows.validation)
        accuracy = float(np.mean(classes[scores.argmax(axis=1)] == rows.validation_target))
        yield accuracy if np.isfinite(scores).all() else math.nan


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
    "boosting-digits": Own(_XGBOOST, "digits", boosting),
    "linear-cancer": Own(_LINEAR_CLASSIFIER, "breast_cancer", linear_classifier, is_scaled=False),
    "linear-diabetes": Own(_LINEAR, "diabetes", linear_regression),
    "deep-digits": Own(_DEEP, "digits", partial(perceptron, activation="logistic", solver="sgd")),
    "perceptron-wine": Own(_PERCEPTRON, "wine", partial(perceptron, ends_early=True)),
}
VERDICT: Mapping[str, Own] = {
    "boosting-diabetes": Own(_STEEP, "diabetes", partial(boosting, is_regression=True)),
    "boosting-cancer": Own(_XGBOOST, "breast_cancer", boosting),
    "linear-digits": Own(_LINEAR_CLASSIFIER, "digits", linear_classifier),
    "perceptron-digits": Own(_PERCEPTRON, "digits", perceptron),
    "recurrent-digits": Own(_RECURRENT, "digits", recurrent),
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
    values = arrays["values"]
    finite = np.where(np.isneginf(values), values[np.isfinite(values)].min(), values)
    table = Recorded(space, arms, finite)
    return table.problem(f"own-{name}", tuple(range(1, STEPS + 1)), (1,) * STEPS)


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
