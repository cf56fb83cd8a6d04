"""A function with several metrics: a decision tree for scikit-learn's digits, its accuracy and its
size."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier


@cache
def _split() -> list[np.ndarray]:
    split: list[np.ndarray] = train_test_split(*load_digits(return_X_y=True), random_state=0)
    return split


def train(max_depth: int, min_samples_leaf: int, criterion: str, max_features: float) -> dict[str, float]:
    """Accuracy on a quarter of the digits, the number of leaves and the depth."""
    seen, held_out, seen_labels, true_labels = _split()
    tree = DecisionTreeClassifier(
        max_depth=max_depth,
        min_samples_leaf=min_samples_leaf,
        criterion=criterion,
        max_features=max_features,
        random_state=0,
    )
    tree.fit(seen, seen_labels)
    return {
        "accuracy": float(tree.score(held_out, true_labels)),
        "leaves": float(tree.get_n_leaves()),
        "depth": float(tree.get_depth()),
    }
