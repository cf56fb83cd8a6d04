"""Tune two kinds of classifiers for scikit-learn's digits, each with parameters of its own."""

from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from bbkb import Choice, Range, tune

SPACE = {
    "model": Choice(["trees", "svm"]),
    "depth": Range(2, 20, integer=True, when={"model": "trees"}),
    "share": Range(0.05, 1.0, log=True, when={"model": "trees"}),
    "C": Range(1e-2, 1e3, log=True, when={"model": "svm"}),
    "gamma": Range(1e-5, 1e-1, log=True, when={"model": "svm"}),
}


def accuracy(model, depth=None, share=None, C=None, gamma=None):
    """Return the mean accuracy of three folds."""
    if model == "trees":
        classifier = ExtraTreesClassifier(50, max_depth=depth, max_features=share, random_state=0)
    else:
        classifier = SVC(C=C, gamma=gamma)
    pixels, labels = load_digits(return_X_y=True)
    return cross_val_score(classifier, pixels, labels, cv=3).mean()


if __name__ == "__main__":
    result = tune(
        accuracy,
        SPACE,
        evaluations=60,
        direction="maximize",
        executor="inline",
        run="classifier",
        resume=True,
        settings={"objective": {"deterministic": True}},
    )
    print(result.best.parameters, result.best.value)
