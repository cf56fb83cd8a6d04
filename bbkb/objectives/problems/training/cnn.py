"""A small convolutional network on handwritten digits: the tuning problem of Salgia et al. 2021,
appendix D.3.

Two convolutions with 10 and 20 filters, each followed by batch normalization, ReLU and 2×2 max
pooling with stride 2, then a dense layer of `hidden` units, ReLU and a dense layer with one unit
per class. It is trained by SGD with momentum on 10 000 of MNIST's training images; the reward is
the accuracy on its 10 000 test images. Five parameters are tuned, with 8 × 4 × 4 × 31 × 6 = 23 808
configurations in total.

The accuracy on separate validation rows is reported after each epoch. A search that learns from
reported values should maximize the validation accuracy (`returns: validation`), instead of
selecting by the test images.

The paper does not specify the following choices: momentum 0.9, a constant learning rate, PyTorch's
default initial weights and batch normalization, and padding by half the kernel size, which
preserves the size of the image. With this padding every kernel fits every image, even 9×9 kernels
on scikit-learn's 8×8 digits, which have 4×4 pixels after the first pooling.

PyTorch is an extra and is imported when an evaluation needs it.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Lt, MultipleOf
from typing_extensions import Doc

from bbkb.objectives.objective import Evaluation, ObjectiveError, Parameters, Report
from bbkb.objectives.parameters import Ordered, Range, Space
from bbkb.objectives.problems.training.images import (
    EpochsOption,
    ImageSet,
    Rows,
    ThreadsOption,
    TrainsInEpochs,
    load_images,
    mnist_test_rows,
    options_of,
    rows_of,
    split_rows,
)
from bbkb.objectives.problems.training.torch_training import (
    Training,
    measure_accuracy,
    require_torch,
    seed_torch,
    tensors,
    train,
)
from bbkb.objectives.reference import DataSource

if TYPE_CHECKING:
    from torch.nn import Sequential

FILTERS = (10, 20)
TRAIN_SIZES = {"mnist": 10_000, "digits": 1000}


@dataclass(frozen=True, slots=True)
class ConvolutionalNetwork:
    """A convolutional network on images of digits.

    There are `train_size` / 5 additional validation rows. The remaining rows of scikit-learn's
    digits are the test rows. Nothing is downloaded.
    """

    epochs: EpochsOption = 3
    dataset: ImageSet = "auto"
    train_size: Annotated[
        # there are ten classes, and a fifth of the number is added for validation
        Annotated[int, Ge(50), MultipleOf(50)] | None,
        Doc("Training rows, in every class alike, a multiple of 50; None: 10 000 of MNIST, 1000 of the digits."),
    ] = None
    momentum: Annotated[float, Ge(0), Lt(1), Doc("Momentum of the stochastic gradient descent, in [0, 1).")] = 0.9
    threads: ThreadsOption = 1
    returns: Annotated[
        Literal["test", "validation"],
        Doc(
            "The accuracy that is the value: `test` as in the paper, or `validation`, which is reported after each "
            "epoch too, and which early stopping by the model needs."
        ),
    ] = "test"

    def default_space(self) -> Space:
        """Return the paper's 23 808 configurations. Features are spread evenly over [0, 1]; those
        of powers are their exponents."""
        return {
            "batch_size": Ordered(tuple(2**power for power in range(3, 11))),
            "first_kernel": Ordered((3, 5, 7, 9)),
            "second_kernel": Ordered((3, 5, 7, 9)),
            "hidden": Range(10, 40, integer=True),
            "learning_rate": Ordered((1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)),
        }

    def load(self, source: DataSource) -> "ConvolutionalTraining":
        """Read and split the images. Raises ObjectiveError if they are not available, if
        `train_size` is too large or if PyTorch is missing, so that a campaign fails before its
        first evaluation.
        """
        require_torch("mnist_cnn")
        path = source.file("mnist/mnist.npz")
        if self.dataset == "mnist" and path is None:
            raise ObjectiveError(
                "objective.options.dataset mnist must find mnist/mnist.npz, whose x_test and y_test are needed, in the "
                f"data folder, got {source.folder}; name one by `data.folder` or BBKB_DATA, or use dataset: digits"
            )
        images, is_mnist, note = load_images(source, self.dataset)
        size = self.train_size or TRAIN_SIZES["mnist" if is_mnist else "digits"]
        train, validation, remaining = split_rows(images, size, size // 5)
        test = mnist_test_rows(path) if path and is_mnist else rows_of(images, remaining)
        return ConvolutionalTraining(
            train=rows_of(images, train),
            validation=rows_of(images, validation),
            test=test,
            options=self,
            description=f"convolutional network on {images.source}, {len(train)} rows to train on, {len(validation)} "
            f"to validate, {len(test.labels)} to test, {self.epochs} epochs"
            + (", the value is the validation accuracy" if self.returns == "validation" else "")
            + note,
        )


@dataclass(frozen=True, slots=True)
class ConvolutionalParameters:
    """The parameters. Raises ValueError unless learning_rate > 0, batch_size and hidden ≥ 1,
    kernels odd and ≥ 1."""

    learning_rate: float = 0.01
    batch_size: int = 64
    first_kernel: int = 5
    second_kernel: int = 5
    hidden: int = 25

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be > 0, got {self.learning_rate}")
        for name in ("batch_size", "hidden"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {value}")
        for name in ("first_kernel", "second_kernel"):
            value = getattr(self, name)
            # an even kernel has no center
            if not isinstance(value, int) or value < 1 or value % 2 == 0:
                raise ValueError(f"{name} must be an odd integer >= 1, got {value}")


@dataclass(frozen=True, slots=True)
class ConvolutionalTraining(TrainsInEpochs):
    """The objective: trains on `train` and returns the accuracy on `test`, as in the paper, or on
    `validation`."""

    train: Rows
    validation: Rows
    test: Rows
    options: ConvolutionalNetwork
    description: str

    @property
    def remark_on_reports(self) -> str:
        """A remark on metrics that are not reported; empty if the reported accuracy is returned."""
        if self.options.returns == "validation":
            return ""
        return (
            "mnist_cnn reports the validation accuracy and returns the test accuracy: write returns: validation into "
            "objective.options"
        )

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return the test accuracy in [0, 1] after the last epoch, with the metrics
        `validation_accuracy` and `training_loss` (the last epoch's mean). With `returns:
        validation`, the value is the validation accuracy, and `test_accuracy` is a metric. The
        validation accuracy is reported after each epoch. A diverging training returns NaN. A
        training continues from a checkpoint in the trial's folder, if there is one.

        Omitted parameters have the defaults of `ConvolutionalParameters`. `seed`, from 0 to 2⁶⁴ −
        1, draws weights and shuffles. Raises ValueError for an invalid parameter, and
        ObjectiveError if PyTorch is missing.
        """
        hyper = options_of(ConvolutionalParameters, parameters, "the convolutional network")
        require_torch("mnist_cnn")
        from torch.optim import SGD

        rows, validation, test = (tensors(rows) for rows in (self.train, self.validation, self.test))

        def begin() -> Training:
            network = build_network(hyper, rows[0].shape[-1], classes=int(self.train.labels.max()) + 1)
            return Training(network, SGD(network.parameters(), lr=hyper.learning_rate, momentum=self.options.momentum))

        with seed_torch(seed, self.options.threads):
            trained = train(begin, rows, validation, hyper.batch_size, self.options.epochs, report)
            has_diverged = not math.isfinite(trained.loss)
            accuracy = math.nan if has_diverged else measure_accuracy(trained.network, test)
        metrics = {
            "validation_accuracy": trained.accuracy,
            "training_loss": math.nan if has_diverged else trained.loss,
        }
        if self.options.returns == "test":
            return Evaluation(accuracy, metrics)
        return Evaluation(trained.accuracy, {**metrics, "test_accuracy": accuracy})


def build_network(hyper: ConvolutionalParameters, side: int, classes: int) -> "Sequential":
    """Return the untrained network, which maps images (n, 1, side, side) to scores (n, classes)."""
    from torch import channels_last, nn

    layers: list[nn.Module] = []
    for channels, filters, kernel in zip(
        (1, *FILTERS), FILTERS, (hyper.first_kernel, hyper.second_kernel), strict=False
    ):
        layers += [
            nn.Conv2d(channels, filters, kernel, padding=kernel // 2),
            nn.BatchNorm2d(filters),
            nn.MaxPool2d(2),
            nn.ReLU(),  # ReLU after the pooling computes equal values in a quarter of the time
        ]
    flat = FILTERS[-1] * (side // 2 // 2) ** 2
    network = nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(flat, hyper.hidden), nn.ReLU(), nn.Linear(hyper.hidden, classes)
    )
    return network.to(memory_format=channels_last)  # 1.3 to 1.8 times as fast with few channels
