"""PyTorch is optional here, too: no test is skipped without it (see `with_torch`)."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb.objectives.objective import ObjectiveError, Report
from bbkb.objectives.problems.training.cnn import (
    ConvolutionalNetwork,
    ConvolutionalParameters,
    ConvolutionalTraining,
    build_network,
)
from bbkb.objectives.problems.training.images import Rows
from bbkb.objectives.reference import DataSource
from bbkb.objectives.sampling import make_candidates

HAS_TORCH = find_spec("torch") is not None
REMEDY = 'PyTorch.*pip install "torch>=2.4,<3"'
GOOD = {"learning_rate": 0.03, "batch_size": 16, "first_kernel": 5, "second_kernel": 3, "hidden": 40}


def with_torch(test: Callable[..., None]) -> Callable[..., None]:
    """The test itself if PyTorch can be imported. Otherwise loading must fail with the remedy."""
    if HAS_TORCH:
        return test

    def check_refusal() -> None:
        with pytest.raises(ObjectiveError, match=REMEDY):
            ConvolutionalNetwork(dataset="digits").load(DataSource())

    check_refusal.__name__ = test.__name__
    return check_refusal


@pytest.fixture
def pretend_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make PyTorch look installed, which is all that loading checks."""
    monkeypatch.setattr("bbkb.objectives.problems.training.torch_training.find_spec", lambda name: object())


@pytest.fixture
def digits() -> ConvolutionalTraining:
    loaded = ConvolutionalNetwork(dataset="digits").load(DataSource())
    assert isinstance(loaded, ConvolutionalTraining)
    return loaded


def blank_training(options: ConvolutionalNetwork = ConvolutionalNetwork()) -> ConvolutionalTraining:  # noqa: B008  # frozen
    """A training on twelve black images of two classes, which needs no data and no time."""
    rows = Rows(np.zeros((12, 64), np.uint8), np.arange(12) % 2, 1 / 16)
    return ConvolutionalTraining(rows, rows, rows, options, "blank")


def write_mnist(folder: Path, **left_out: object) -> DataSource:
    """A stand-in of MNIST with 80 training images a class and 30 test images, each as bright as its
    number."""
    path = folder / "mnist" / "mnist.npz"
    path.parent.mkdir()
    arrays = {
        "x_train": np.repeat(np.arange(800) % 251, 784).reshape(800, 28, 28).astype(np.uint8),
        "y_train": (np.arange(800) % 10).astype(np.uint8),
        "x_test": np.full((30, 28, 28), 255, np.uint8),
        "y_test": (np.arange(30) % 10).astype(np.uint8),
    }
    contents: dict[str, Any] = {name: array for name, array in arrays.items() if name not in left_out}
    np.savez(path, **contents)
    return DataSource(folder)


def test_space_equals_that_of_the_paper() -> None:
    """Appendix D.3: 8 batch sizes, 4 × 4 kernel sizes, 31 numbers of units, 6 learning rates, each
    mapped to [0, 1]."""
    candidates = make_candidates(ConvolutionalNetwork().default_space(), size=None)
    assert len(candidates) == 8 * 4 * 4 * 31 * 6 == 23_808
    read = {name: np.array(column.tolist(), dtype=float) for name, column in candidates.columns.items()}
    expected = [
        (np.log2(read["batch_size"]) - 3) / 7,
        (read["first_kernel"] - 3) / 6,
        (read["second_kernel"] - 3) / 6,
        (read["hidden"] - 10) / 30,
        (np.log10(read["learning_rate"]) + 6) / 5,
    ]
    np.testing.assert_allclose(candidates.features, np.stack(expected, axis=1), atol=1e-12)


def test_missing_torch_is_reported_with_the_remedy_before_the_campaign_and_on_a_worker(
    monkeypatch: pytest.MonkeyPatch, silent: Report
) -> None:
    monkeypatch.setattr("bbkb.objectives.problems.training.torch_training.find_spec", lambda name: None)
    with pytest.raises(ObjectiveError, match=REMEDY):
        ConvolutionalNetwork(dataset="digits").load(DataSource())
    with pytest.raises(ObjectiveError, match=REMEDY):
        blank_training().evaluate(GOOD, 0, silent)


@pytest.mark.usefixtures("pretend_torch")
def test_digits_have_a_fixed_split_with_balanced_classes() -> None:
    first, second = (ConvolutionalNetwork(dataset="digits").load(DataSource()) for _ in range(2))
    parts = [first.train, first.validation, first.test]
    np.testing.assert_array_equal(first.test.pixels, second.test.pixels)
    assert [len(part.labels) for part in parts] == [1000, 200, 597]
    assert [np.ptp(np.bincount(part.labels)) for part in parts[:2]] == [0, 0]
    assert sum(int(part.pixels.sum()) for part in parts) == 561718  # all of scikit-learn's digits, each once


@pytest.mark.usefixtures("pretend_torch")
def test_mnist_is_tested_on_its_test_images(tmp_path: Path) -> None:
    training = ConvolutionalNetwork(train_size=500).load(write_mnist(tmp_path))
    assert "MNIST's training images" in training.description
    assert [len(part.labels) for part in (training.train, training.validation, training.test)] == [500, 100, 30]
    assert (training.test.pixels == 255).all()
    assert training.train.pixels.max() < 255


@pytest.mark.usefixtures("pretend_torch")
def test_file_without_the_test_images_is_rejected(tmp_path: Path) -> None:
    source = write_mnist(tmp_path, x_test=None)
    with pytest.raises(ObjectiveError, match=r"mnist\.npz must hold x_test and y_test.*replace it"):
        ConvolutionalNetwork(train_size=500).load(source)


@pytest.mark.usefixtures("pretend_torch")
def test_auto_falls_back_to_the_bundled_digits_with_a_note() -> None:
    description = ConvolutionalNetwork().load(DataSource()).description
    assert "bundled digits" in description
    assert "BBKB_DATA" in description
    with pytest.raises(ObjectiveError, match=r"must find mnist/mnist\.npz.*or use dataset: digits"):
        ConvolutionalNetwork(dataset="mnist").load(DataSource())


@pytest.mark.usefixtures("pretend_torch")
def test_train_size_that_leaves_no_test_rows_is_rejected() -> None:
    with pytest.raises(ObjectiveError, match=r"train_size must leave rows of every class.*rarest has 174; got 1500"):
        ConvolutionalNetwork(dataset="digits", train_size=1500).load(DataSource())


@with_torch
def test_cnn_learns_mnist_if_available_and_digits_otherwise(source: DataSource, silent: Report) -> None:
    """The default data set: MNIST (a subset here) with the folder, the bundled digits without."""
    has_mnist = source.file("mnist/mnist.npz") is not None
    training = ConvolutionalNetwork(train_size=1000).load(source)
    assert ("MNIST's training images" if has_mnist else "bundled digits") in training.description
    assert len(training.test.labels) == (10_000 if has_mnist else 597)
    evaluation = training.evaluate({**GOOD, "first_kernel": 3}, 0, silent)
    assert evaluation.value > 0.85
    assert evaluation.metrics["validation_accuracy"] > 0.8
    assert evaluation.metrics["training_loss"] < np.log(10) / 2


@with_torch
def test_kernel_keeps_the_size_of_every_image() -> None:
    """All settings give scores for both image sizes, and the number of weights equals a count by
    hand."""
    import torch

    for side, pooled in ((8, 2), (28, 7)):
        for first in (3, 5, 7, 9):
            for second in (3, 5, 7, 9):
                hyper = ConvolutionalParameters(first_kernel=first, second_kernel=second, hidden=10)
                network = build_network(hyper, side, classes=10)
                assert network(torch.zeros(2, 1, side, side)).shape == (2, 10)
                convolutions = 10 * (first**2 + 1) + 2 * 10 + 20 * (10 * second**2 + 1) + 2 * 20
                dense = (20 * pooled**2 + 1) * 10 + (10 + 1) * 10
                assert sum(weights.numel() for weights in network.parameters()) == convolutions + dense


@with_torch
def test_tiny_learning_rate_learns_nothing(digits: ConvolutionalTraining, silent: Report) -> None:
    """Weights stay as drawn: the mean loss of an untrained network is near that of guessing, log
    10."""
    evaluation = digits.evaluate({**GOOD, "learning_rate": 1e-30}, 0, silent)
    assert evaluation.value < 0.3
    assert abs(evaluation.metrics["training_loss"] - np.log(10)) < 0.3


@with_torch
def test_momentum_and_every_parameter_matter(digits: ConvolutionalTraining, silent: Report) -> None:
    plain = ConvolutionalTraining(
        digits.train,
        digits.validation,
        digits.test,
        ConvolutionalNetwork(momentum=0.0),
        "without",
    )
    losses = [digits.evaluate(GOOD, 0, silent), plain.evaluate(GOOD, 0, silent)]
    for name, value in {"batch_size": 32, "first_kernel": 3, "second_kernel": 9, "hidden": 10}.items():
        losses.append(digits.evaluate({**GOOD, name: value}, 0, silent))
    assert len({evaluation.metrics["training_loss"] for evaluation in losses}) == 6


@with_torch
def test_diverging_training_returns_nan(digits: ConvolutionalTraining) -> None:
    reports = []
    evaluation = digits.evaluate(
        {**GOOD, "learning_rate": 1e30}, 0, lambda value, step=None, **_: reports.append(value)
    )
    assert np.isnan([evaluation.value, *evaluation.metrics.values()]).all()
    assert reports == []


@with_torch
def test_process_keeps_its_generator_and_its_threads(silent: Report) -> None:
    """Also after a training that fails, here for labels that are not among the classes of the
    training rows."""
    import torch

    rows = Rows(np.zeros((12, 64), np.uint8), np.arange(12) - 11, 1 / 16)
    broken = ConvolutionalTraining(rows, rows, rows, ConvolutionalNetwork(), "broken")
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        blank_training().evaluate(GOOD, 0, silent)
        with pytest.raises(IndexError):
            broken.evaluate(GOOD, 0, silent)
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.random.get_rng_state(), before)
    finally:
        torch.set_num_threads(threads)


@with_torch
def test_evaluation_uses_the_allowed_number_of_threads(monkeypatch: pytest.MonkeyPatch, silent: Report) -> None:
    import torch

    used: list[int] = []

    def note_threads(*arguments: Any, **named: Any) -> Any:
        used.append(torch.get_num_threads())
        return build_network(*arguments, **named)

    monkeypatch.setattr("bbkb.objectives.problems.training.cnn.build_network", note_threads)
    for threads in (1, 2):
        blank_training(ConvolutionalNetwork(threads=threads)).evaluate(GOOD, 0, silent)
    assert used == [1, 2]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be > 0, got 0.0"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"hidden": 10.0}, "hidden must be an integer >= 1, got 10.0"),
        ({"first_kernel": 4}, "first_kernel must be an odd integer >= 1, got 4"),
        ({"second_kernel": -1}, "second_kernel must be an odd integer >= 1, got -1"),
        ({"momentum": 0.9}, "parameters of the convolutional network are learning_rate, .*; got 'momentum'"),
    ],
)
def test_wrong_parameter_is_rejected(silent: Report, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blank_training().evaluate(parameters, 0, silent)
