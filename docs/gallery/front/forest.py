"""A random forest for scikit-learn's digits: its accuracy and its size."""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split


def train(trees, depth, min_leaf, share):
    """Return the accuracy on held-out digits, and the number of nodes of all trees."""
    pixels, labels = load_digits(return_X_y=True)
    seen, held_out, seen_labels, true_labels = train_test_split(pixels, labels, random_state=0)
    forest = RandomForestClassifier(
        trees,
        max_depth=depth,
        min_samples_leaf=min_leaf,
        max_features=share,
        random_state=0,
    )
    forest.fit(seen, seen_labels)
    nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
    return {"accuracy": forest.score(held_out, true_labels), "nodes": nodes}
