"""`bbkb.objectives.problems.training.softmax`: Multinomial logistic regression on handwritten digits, trained by
mini-batch SGD: the papers' tuning problem.
"""

import warnings
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import check_grad
from sklearn.model_selection import train_test_split

from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems.training.images import Rows, stratified_rows
from bbkb.objectives.problems.training.softmax import (
    SoftmaxParameters,
    SoftmaxRegression,
    Weights,
    loss_and_gradient,
    measure,
    train_epoch,
)
from bbkb.objectives.reference import DataSource
from bbkb.orchestrator.bandit.arrays import Floats
from tests.examples import examples

GOOD = {"learning_rate": 0.3, "batch_size": 32, "dropout": 0.1, "l2": 1e-5}


@pytest.fixture(scope="module")
def digits() -> Any:
    return SoftmaxRegression(epochs=5, dataset="digits").load(DataSource())


@settings(max_examples=examples(20))
@given(
    arrays.arrays(np.float64, (5, 3), elements=st.floats(-2, 2)),
    arrays.arrays(np.float64, (4, 3), elements=st.floats(0, 1)),
    st.lists(st.integers(0, 1), min_size=4, max_size=4),
    st.floats(0, 1),
)
def test_gradient_agrees_with_finite_differences(start: Floats, inputs: Floats, labels: Any, l2: float) -> None:
    labels, shape = np.array(labels), (3, 2)
    flat = start.ravel()[:8]  # (3, 2) weights and 2 intercepts

    def unpack(x: Floats) -> Weights:
        return Weights(cast(Any, x[:6].reshape(shape)), cast(Any, x[6:]))

    def loss(x: Floats) -> float:
        return loss_and_gradient(unpack(x), inputs, labels, l2)[0]

    def gradient(x: Floats) -> Floats:
        _, matrix, intercepts = loss_and_gradient(unpack(x), inputs, labels, l2)
        return np.concatenate([matrix.ravel(), intercepts])

    assert check_grad(loss, gradient, flat) < 1e-6


def test_softmax_learns_mnist_if_available_and_digits_otherwise(source: DataSource, silent: Report) -> None:
    """The default data set: MNIST (a subset here) with the folder, the bundled digits without."""
    has_mnist = source.file("mnist/mnist.npz") is not None
    training = SoftmaxRegression(epochs=5, train_size=10_000 if has_mnist else None).load(source)
    assert ("MNIST's training images" if has_mnist else "bundled digits") in training.description
    evaluation = training.evaluate(GOOD, 0, silent)
    assert evaluation.value > 0.88
    assert evaluation.metrics["training_loss"] < np.log(10)


def test_seed_decides_a_training(digits: Any, silent: Report) -> None:
    first, again, other = (digits.evaluate(GOOD, seed, silent).metrics["training_loss"] for seed in (0, 0, 1))
    assert first == again != other


def test_auto_falls_back_to_the_bundled_digits_with_a_note() -> None:
    description = SoftmaxRegression().load(DataSource()).description
    assert "bundled digits" in description
    assert "BBKB_DATA" in description
    with pytest.raises(ObjectiveError, match="MNIST is needed"):
        SoftmaxRegression(dataset="mnist").load(DataSource())


@pytest.mark.parametrize(("train_size", "fraction"), [(None, 0.2), (100, 0.2), (None, 0.33), (777, 0.501)])
def test_split_has_the_rows_of_scikit_learn(train_size: int | None, fraction: float) -> None:
    labels = np.random.default_rng(1).choice(6, size=1797, p=[0.4, 0.2, 0.15, 0.15, 0.05, 0.05])
    expected = train_test_split(
        np.arange(len(labels)), train_size=train_size, test_size=fraction, stratify=labels, random_state=0
    )
    for rows, other in zip(stratified_rows(labels, train_size, fraction), expected, strict=True):
        np.testing.assert_array_equal(rows, other)


def test_train_size_shrinks_the_training_rows_only() -> None:
    training = SoftmaxRegression(dataset="digits", train_size=100).load(DataSource())
    assert (len(training.train.labels), len(training.validation.labels)) == (100, 360)
    with pytest.raises(ObjectiveError, match="train_size and validation_fraction must fit into 1797 rows, got 1700"):
        SoftmaxRegression(dataset="digits", train_size=1700).load(DataSource())


def test_diverging_training_returns_nan_without_warnings(digits: Any) -> None:
    reports = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluation = digits.evaluate({**GOOD, "learning_rate": 1e38}, 0, lambda value, step=None: reports.append(value))
    assert np.isnan(evaluation.value)
    assert np.isnan(list(evaluation.metrics.values())).all()
    assert reports == []


def test_dropout_keeps_the_inputs_in_expectation() -> None:
    """With one weightless step on many copies of one row, the gradient's mean over masks is the
    undropped one."""
    copies = 20_000
    rows = Rows(np.tile(np.array([[0, 128, 255]], np.uint8), (copies, 1)), np.zeros(copies, np.intp), 1 / 255)
    zero = Weights(np.zeros((3, 2), np.float32), np.zeros(2, np.float32))
    steps = [
        train_epoch(zero, rows, SoftmaxParameters(1.0, copies, dropout), np.random.default_rng(0)).matrix
        for dropout in (0.0, 0.5)
    ]
    one, other = steps
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(one, other, atol=0.02)


def test_measuring_in_blocks_equals_measuring_at_once(monkeypatch: pytest.MonkeyPatch, digits: Any) -> None:
    rng = np.random.default_rng(0)
    weights = Weights(rng.standard_normal((64, 10)).astype(np.float32), np.zeros(10, np.float32))
    whole = measure(weights, digits.train)
    monkeypatch.setattr("bbkb.objectives.problems.training.softmax.BLOCK", 100)
    assert measure(weights, digits.train) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1"),
        ({"batch_size": 64.0}, "batch_size must be an integer >= 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"l2": -1e-3}, "l2 must be >= 0, got -0.001"),
        ({"momentum": 0.9}, "parameters of softmax regression are learning_rate, .*; got 'momentum'"),
    ],
)
def test_wrong_parameter_is_rejected(digits: Any, silent: Report, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        digits.evaluate(parameters, 0, silent)
