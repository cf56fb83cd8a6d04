"""Small trainings with scikit-learn: a model on one of the bundled data sets.

`training-svm-digits` is a support vector machine on 300 of the digits. Spaces are those of
Bayesmark (Turner et al. 2021), with few trees and iterations; `kernels` is a machine with a choice of
kernels and their own parameters. The reward is the mean of three folds: −log loss of classifiers with
probabilities, accuracy of support vector machines, −mean squared error on diabetes. The regret 0 is that
of the best configuration that some searches found, so a better one has a negative regret.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from bbkb.objectives.parameters import Choice, Range, Scalar, Space
from bbkb.objectives.reference import import_reference
from benchmarks.peers.problems import Evaluation, Point, WholeSpace
from benchmarks.tables import Floats

_PREFIX = "training-"
_ROWS, _FOLDS = 300, 3


@dataclass(frozen=True)
class Model:
    """An estimator's class, its space, and further arguments."""

    reference: str
    space: Space
    fixed: Mapping[str, Scalar] = field(default_factory=dict)
    is_probabilistic: bool = True


_SEED: Mapping[str, Scalar] = {"random_state": 0}
_SHARE, _HALF = Range(0.01, 0.99), Range(0.01, 0.49)
_TREE: Space = {
    "max_depth": Range(1, 15, integer=True),
    "min_samples_split": _SHARE,
    "min_samples_leaf": _HALF,
    "min_weight_fraction_leaf": _HALF,
    "max_features": _SHARE,
    "min_impurity_decrease": Range(0.0, 0.5),
}
_FOREST: Space = {"n_estimators": Range(5, 30, integer=True), **_TREE}
_NEIGHBORS: Space = {"p": Range(1, 4, integer=True), "weights": Choice(("uniform", "distance"))}
_TOLERANCE = Range(1e-5, 0.1, log=True)
MODELS: Mapping[str, Model] = {
    "kernels": Model(
        "sklearn.svm:SVC",
        {
            "kernel": Choice(("rbf", "poly", "sigmoid", "linear")),
            "C": Range(1e-3, 1e3, log=True),
            "gamma": Range(1e-5, 10.0, log=True, when={"kernel": ("rbf", "poly", "sigmoid")}),
            "degree": Range(2, 5, integer=True, when={"kernel": ("poly",)}),
            "coef0": Range(0.0, 2.0, when={"kernel": ("poly", "sigmoid")}),
        },
        is_probabilistic=False,
    ),
    "mlp": Model(
        "sklearn.neural_network:MLPClassifier",
        {
            "hidden_layer_sizes": Range(10, 100, integer=True),
            "alpha": Range(1e-5, 10.0, log=True),
            "batch_size": Range(20, 150, integer=True),
            "learning_rate_init": Range(1e-5, 0.1, log=True),
            "beta_1": Range(0.5, 0.99),
            "beta_2": Range(0.9, 0.9999),
            "epsilon": Range(1e-9, 1e-6, log=True),
            "activation": Choice(("relu", "tanh", "logistic")),
        },
        {**_SEED, "max_iter": 15},
    ),
    "rf": Model(
        "sklearn.ensemble:RandomForestClassifier", {"criterion": Choice(("gini", "entropy")), **_FOREST}, _SEED
    ),
    "dt": Model("sklearn.tree:DecisionTreeClassifier", _TREE, _SEED),
    "ada": Model(
        "sklearn.ensemble:AdaBoostClassifier",
        {"n_estimators": Range(5, 40, integer=True), "learning_rate": Range(1e-4, 10.0, log=True)},
        _SEED,
    ),
    "knn": Model("sklearn.neighbors:KNeighborsClassifier", {"n_neighbors": Range(1, 25, integer=True), **_NEIGHBORS}),
    "svm": Model(
        "sklearn.svm:SVC",
        {"C": Range(1.0, 1e3, log=True), "gamma": Range(1e-4, 0.1, log=True), "tol": _TOLERANCE},
        is_probabilistic=False,
    ),
    "linear": Model(
        "sklearn.linear_model:LogisticRegression",
        {"C": Range(1e-4, 1e4, log=True), "tol": _TOLERANCE, "solver": Choice(("lbfgs", "newton-cg"))},
        {"max_iter": 60},
    ),
    "elastic": Model(
        "sklearn.linear_model:ElasticNet",
        {
            "alpha": Range(1e-6, 1e2, log=True),
            "l1_ratio": Range(0.0, 1.0),
            "selection": Choice(("cyclic", "random")),
        },
        {**_SEED, "max_iter": 300},
    ),
    "svr": Model(
        "sklearn.svm:SVR",
        {
            "C": Range(1e-2, 1e3, log=True),
            "gamma": Range(1e-5, 10.0, log=True),
            "epsilon": Range(1e-3, 10.0, log=True),
            "kernel": Choice(("rbf", "sigmoid")),
        },
        {"max_iter": 20000},
    ),
    "rf-reg": Model(
        "sklearn.ensemble:RandomForestRegressor", {**_FOREST, "min_impurity_decrease": Range(0.0, 500.0)}, _SEED
    ),
    "knn-reg": Model(
        "sklearn.neighbors:KNeighborsRegressor", {"n_neighbors": Range(1, 50, integer=True), **_NEIGHBORS}
    ),
}
REWARDS: Mapping[str, tuple[float, float]] = {  # the median of 64 random configurations, the best known reward
    "kernels-digits": (0.7383, 0.95),
    "mlp-digits": (-1.5246, -0.1978),
    "rf-digits": (-2.2928, -0.6103),
    "dt-digits": (-2.2926, -2.0734),
    "ada-digits": (-2.2932, -2.2912),
    "knn-digits": (-0.725, -0.3727),
    "svm-digits": (0.9267, 0.9433),
    "linear-digits": (-0.3151, -0.2206),
    "mlp-breast_cancer": (-0.2728, -0.0744),
    "rf-breast_cancer": (-0.6554, -0.1771),
    "dt-breast_cancer": (-0.3329, -0.2361),
    "knn-breast_cancer": (-0.2527, -0.1491),
    "svm-breast_cancer": (0.9633, 0.98),
    "linear-breast_cancer": (-0.179, -0.0783),
    "kernels-wine": (0.8795, 0.9944),
    "mlp-wine": (-0.7871, -0.0249),
    "ada-wine": (-0.9154, -0.9042),
    "elastic-diabetes": (-2893.9, -2873.2),
    "svr-diabetes": (-6256.5, -2886.1),
    "rf-reg-diabetes": (-6261.4, -3368.3),
    "knn-reg-diabetes": (-3387.0, -3124.7),
}
TRAININGS = tuple(f"{_PREFIX}{name}" for name in REWARDS)


@dataclass(frozen=True, eq=False)
class Training(WholeSpace):
    """The tuning of `model` on the data set `data`."""

    model: Model
    data: str
    median: float
    best: float
    known: dict[frozenset[tuple[str, Scalar]], float | None] = field(default_factory=dict)  # rewards so far

    @property
    def space(self) -> Space:
        return self.model.space

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate a point. A failed one has the regret of the median."""
        key = frozenset(point.items())
        if key not in self.known:
            self.known[key] = _score(self.model, self.data, point)
        reward = self.known[key]
        if reward is None:
            return Evaluation(None, 1.0)
        return Evaluation((reward,), (self.best - reward) / (self.best - self.median))


@cache
def load_training(name: str) -> Training:
    """The problem `name` of TRAININGS."""
    name = name.removeprefix(_PREFIX)
    model, _, data = name.rpartition("-")
    return Training(MODELS[model], data, *REWARDS[name])


@cache
def _rows(name: str) -> tuple[Floats, Any]:
    """The scaled features of at most _ROWS rows, and their targets."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    features, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(features))[:_ROWS]
    return StandardScaler().fit_transform(features[rows]), target[rows]


def _score(model: Model, data: str, point: Point) -> float | None:
    """The mean score of the folds; None if a fit failed."""
    from sklearn.base import is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    make: Any = import_reference(model.reference)
    estimator = make(**model.fixed, **point)
    scoring = "neg_log_loss" if model.is_probabilistic else "accuracy"
    kind = StratifiedKFold
    if not is_classifier(estimator):
        scoring, kind = "neg_mean_squared_error", KFold
    folds = kind(_FOLDS, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that have not converged
        score = cross_val_score(estimator, *_rows(data), scoring=scoring, cv=folds, error_score=np.nan).mean()
    return float(score) if np.isfinite(score) else None
