"""Cross-validation of any scikit-learn estimator on any table: the objective `sklearn`.

The estimator is a class, specified by its dotted name, of scikit-learn or with scikit-learn's
conventions. The parameters of the space are the parameters of its constructor. The data are a CSV
or Parquet file, or a data set bundled with scikit-learn.

Columns are prepared inside each fold, so that nothing is learned from the rows that compute the
score:

* numbers: the median of the column replaces missing numbers, an additional column of 0 and 1 marks
  rows with missing numbers, and all columns are scaled to mean 0 and variance 1;
* text: one column of 0 and 1 for each of the 64 most frequent values, and one for all other values.
  A missing cell counts as a value.

Cells that are empty or contain ?, NA, N/A, NaN, nan or null are missing. The target must not have
missing cells.

scikit-learn is imported on first use, because the import takes a second.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray
from typing_extensions import Doc

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.parameters import Space
from bbkb.objectives.reference import DataSource, import_reference
from bbkb.objectives.tabular import Column, as_typed, as_typed_with_gaps, read_cells

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
SPLIT_SEED = 0  # the folds are part of the problem, so they never change
MOST_VALUES = 64  # the number of values of a text column that get their own column


@dataclass(frozen=True, slots=True)
class SklearnEstimator:
    """Cross-validation of a scikit-learn estimator, whose hyperparameters are tuned.

    Raises ValueError for invalid names. `load` checks imports and files.
    """

    estimator: Annotated[str, Doc("The dotted name of the estimator's class, such as sklearn.svm.SVC.")]
    data: Annotated[
        str,
        Doc("A table, its path relative to the campaign file; or one of breast_cancer, diabetes, digits, iris, wine."),
    ]
    target: Annotated[str | None, Doc("The column of the table to predict.")] = None
    scoring: Annotated[
        str | None, Doc("A name of scikit-learn's; None: accuracy of a classifier, R² of a regressor.")
    ] = None
    folds: Annotated[int, Ge(2), Doc("The number of folds of the cross-validation, ≥ 2.")] = 5

    def __post_init__(self) -> None:
        if not all(part.isidentifier() for part in self.estimator.split(".")) or "." not in self.estimator:
            raise ValueError(f"estimator must be a dotted name such as sklearn.svm.SVC, got {self.estimator!r}")
        if self.is_file and self.target is None:
            raise ValueError(f"target must name the column of {self.data} that is predicted")
        if not self.is_file and self.data not in BUNDLED:
            raise ValueError(
                f"data must be a file (.csv, .csv.gz, .parquet) or one of {', '.join(BUNDLED)}, got {self.data!r}"
                f"{did_you_mean(self.data, BUNDLED)}"
            )
        if not self.is_file and self.target is not None:
            raise ValueError(f"target must not be given: {self.data} has its own, got {self.target!r}")

    @property
    def is_file(self) -> bool:
        """Whether `data` is a path."""
        return bool(Path(self.data).suffix)

    def with_absolute_paths(self, folder: Path) -> "SklearnEstimator":
        """Return a copy in which a relative path of `data` is below `folder`."""
        return replace(self, data=str((folder / Path(self.data).expanduser()).resolve())) if self.is_file else self

    def default_space(self) -> Space:
        """Return an empty space, because the campaign file defines the parameters."""
        return {}

    def space_problems(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the mistakes in parameters with these `names`, by name. Raises ObjectiveError if
        the estimator cannot be imported."""
        settable = sorted(_make(self.estimator).get_params())
        rule = f"is not a parameter of {self.estimator}"
        listed = f"; the parameters are {', '.join(settable)}"
        return {name: rule + (did_you_mean(name, settable) or listed) for name in names if name not in settable}

    def load(self, source: DataSource) -> "CrossValidation":
        """Read the table. Raises ObjectiveError if the estimator cannot be imported or
        instantiated, if the table has a mistake (with its line), if `scoring` is unknown, or if a
        class has fewer rows than there are folds."""
        from sklearn import datasets
        from sklearn.base import is_classifier
        from sklearn.metrics import get_scorer_names

        classifies = bool(is_classifier(_make(self.estimator)))
        if self.scoring is not None and self.scoring not in get_scorer_names():
            raise ObjectiveError(
                "objective.options.scoring must be a name that sklearn.metrics.get_scorer_names() lists, "
                f"got {self.scoring!r}{did_you_mean(self.scoring, get_scorer_names())}"
            )
        if self.is_file:
            table = _read_file(Path(self.data), str(self.target))
        else:
            features, labels = getattr(datasets, f"load_{self.data}")(return_X_y=True)
            texts = np.empty((len(labels), 0), object)
            table = LabeledTable(np.asarray(features, np.float64), texts, np.asarray(labels))
        target = table.target
        if not classifies and target.dtype.kind not in "iufb":
            raise ObjectiveError(
                f"objective.options.target of the regressor {self.estimator} must be numbers, "
                f"column {self.target!r} of {self.data} is text"
            )
        fewest = int(np.unique(target, return_counts=True)[1].min()) if classifies else len(target)
        if fewest < self.folds:
            what = "rows of every class" if classifies else "rows"
            raise ObjectiveError(f"objective.options.folds must be at most the {what} of {self.data}, {fewest}")
        return CrossValidation(table, self, classifies)


@dataclass(frozen=True, slots=True)
class LabeledTable:
    """Rows of features, with the label or number to predict for each row."""

    numbers: NDArray[np.float64]  # (n, p), NaN if missing
    texts: NDArray[np.object_]  # (n, q), None if missing
    target: Column  # (n,)

    @property
    def features(self) -> Column:
        """The columns of numbers, followed by those of texts (n, p + q)."""
        return np.hstack([self.numbers.astype(object), self.texts]) if self.texts.shape[1] else self.numbers


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The objective: the estimator's mean score over fixed folds."""

    table: LabeledTable
    options: SklearnEstimator
    is_classifier: bool

    @property
    def description(self) -> str:
        """The name of the estimator, and the data with their size."""
        rows, columns = self.table.features.shape
        return (
            f"{self.options.folds}-fold cross-validation of {self.options.estimator} on {self.options.data}, "
            f"{rows} rows with {columns} features"
        )

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return the mean score over the folds, with the metrics `mean` (the same), `std` (over the
        folds) and `fit_seconds` (the total of all fits). The mean of the folds so far is reported
        after each fold.

        `seed` is passed as the estimator's `random_state`, if it has one that the space does not
        define. Raises the errors of the estimator.
        """
        from sklearn.metrics import check_scoring
        from sklearn.model_selection import KFold, StratifiedKFold

        features = self.table.features
        target = self.table.target
        kind = StratifiedKFold if self.is_classifier else KFold
        splitter = kind(self.options.folds, shuffle=True, random_state=SPLIT_SEED)
        scores = list[float]()
        seconds = 0.0
        for fold, (train, test) in enumerate(splitter.split(self.table.numbers, target), start=1):
            pipeline = self._pipeline(parameters, seed)
            began = time.process_time()
            pipeline.fit(features[train], target[train])
            seconds += time.process_time() - began
            scorer = check_scoring(pipeline, scoring=self.options.scoring)
            scores.append(float(scorer(pipeline, features[test], target[test])))
            report(float(np.mean(scores)), step=fold)
        mean = float(np.mean(scores))
        return Evaluation(mean, {"mean": mean, "std": float(np.std(scores)), "fit_seconds": seconds})

    def _pipeline(self, parameters: Parameters, seed: int) -> Any:
        """Return a pipeline of the column preparation and the estimator with `parameters`."""
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

        as_numbers = FunctionTransformer(np.asarray, kw_args={"dtype": np.float64})
        imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        one_hot = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MOST_VALUES + 1, sparse_output=False
        )
        numbers, texts = self.table.numbers.shape[1], self.table.texts.shape[1]
        preparation = ColumnTransformer(
            [
                ("numbers", make_pipeline(as_numbers, imputer, StandardScaler()), list(range(numbers))),
                ("texts", one_hot, list(range(numbers, numbers + texts))),
            ],
            sparse_threshold=0.0,
        )
        estimator = _make(self.options.estimator)
        seeded = {"random_state": seed % 2**32} if "random_state" in estimator.get_params() else {}
        estimator.set_params(**{**seeded, **parameters})
        return make_pipeline(preparation, estimator)


def _make(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    cls: Any = import_reference(f"{module}:{attribute}")
    if not all(callable(getattr(cls, method, None)) for method in ("fit", "get_params", "set_params")):
        raise ObjectiveError(
            f"objective.options.estimator must name a class with fit, get_params and set_params, {name} lacks one"
        )
    try:
        return cls()
    except TypeError as error:
        raise ObjectiveError(
            "objective.options.estimator must be a class that can be instantiated without arguments, "
            f"{name} cannot: {error}"
        ) from error


def _read_file(path: Path, target: str) -> LabeledTable:
    """Return the columns of a table. Its target must not have missing cells."""
    try:
        cells = read_cells(path)
    except ObjectiveError as error:
        raise ObjectiveError(f"objective.options.data: {error}") from error
    if target not in cells:
        raise ObjectiveError(
            f"objective.options.target must be a column of {path} ({', '.join(cells)}), "
            f"got {target!r}{did_you_mean(target, cells)}"
        )
    labels = as_typed(path, target, cells.pop(target))
    columns = {name: as_typed_with_gaps(path, name, column) for name, column in cells.items()}
    if not columns:
        raise ObjectiveError(f"{path} must have a column besides {target!r}, got none")
    numbers = [column for column in columns.values() if column.dtype.kind == "f"]
    texts = [column for column in columns.values() if column.dtype.kind == "O"]
    return LabeledTable(
        np.column_stack(numbers) if numbers else np.empty((len(labels), 0)),
        np.column_stack(texts) if texts else np.empty((len(labels), 0), object),
        labels,
    )
