"""Gradient boosting on scikit-learn's digits that reports its error after each round."""

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bbkb.integrations.xgboost import TrialCallback

ROUNDS = 81


def error(learning_rate, depth, subsample, columns, seed, report=None, folder=None):
    """Return the share of wrong digits after the last round."""
    pixels, labels = load_digits(return_X_y=True)
    seen, held_out, seen_labels, true_labels = train_test_split(pixels, labels, random_state=0)
    valid = xgboost.DMatrix(held_out, true_labels)
    parameters = {
        "objective": "multi:softmax",
        "num_class": 10,
        "eval_metric": ["mlogloss", "merror"],
        "nthread": 1,
        "seed": seed,
        "learning_rate": learning_rate,
        "max_depth": depth,
        "subsample": subsample,
        "colsample_bytree": columns,
    }
    trial = TrialCallback("valid-merror", report, folder)
    model = xgboost.train(
        parameters,
        xgboost.DMatrix(seen, seen_labels),
        num_boost_round=ROUNDS - trial.step,
        xgb_model=trial.checkpoint,
        evals=[(valid, "valid")],
        callbacks=[trial],
        verbose_eval=False,
    )
    return float((model.predict(valid) != true_labels).mean())
