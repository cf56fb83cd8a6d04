"""A function to tune: the accuracy of a support vector machine on scikit-learn's digits."""

from collections.abc import Callable
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC


def accuracy(
    regularization: float, gamma: float, kernel: str, seed: int, report: Callable[..., None]
) -> dict[str, Any]:
    """Mean accuracy of three folds; `seed` and `report` may be left out of the signature."""
    pixels, labels = load_digits(return_X_y=True)
    folds = StratifiedKFold(3, shuffle=True, random_state=seed % 2**32)
    scores = cross_val_score(SVC(C=regularization, gamma=gamma, kernel=kernel), pixels, labels, cv=folds)
    for step, score in enumerate(scores, 1):
        report(float(score), step)
    return {"value": float(scores.mean()), "worst_fold": float(scores.min())}
