"""A small neural network for scikit-learn's digits: its accuracy and the size of its weights."""

import warnings

from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def train(width, depth, learning_rate, alpha):
    """Return the accuracy on held-out digits, and the kilobytes of the weights in 32 bits."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    pixels, labels = load_digits(return_X_y=True)
    seen, held_out, seen_labels, true_labels = train_test_split(pixels, labels, random_state=0)
    network = MLPClassifier(
        (width,) * depth,
        learning_rate_init=learning_rate,
        alpha=alpha,
        max_iter=15,
        random_state=0,
    )
    network.fit(seen / 16, seen_labels)
    weights = sum(layer.size for layer in [*network.coefs_, *network.intercepts_])
    return {"value": network.score(held_out / 16, true_labels), "kilobytes": 4 * weights / 1000}
