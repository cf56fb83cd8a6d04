"""Learning curves of the network of the guide to training libraries: 5 parameters, accuracy on
scikit-learn's digits after 1 … 27 epochs.

A convolutional network learns 500 images, and 1297 validate it. Configurations are points of a
Sobol sequence, each trained once with a seed of its own: some diverge, and some collapse after a
good beginning. PyTorch is imported when a curve is missing.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.early_stopping.curves import EPOCHS, Configuration
from objectives.datasets import DataSource, load_digits
from objectives.objective import Evaluation, Parameters, Report
from objectives.parameters import Range, Space
from objectives.sampling import make_candidates
from objectives.training.images import rows_of
from objectives.training.softmax import Rows
from objectives.training.torch_training import measure_accuracy, require_torch, seed_torch, tensors, train_epoch

NETWORK = "network"  # the name of the curves
NETWORK_SPACE: Space = {
    "learning_rate": Range(1e-4, 1.0, log=True),
    "momentum": Range(0.0, 0.99),
    "dropout": Range(0.0, 0.8),
    "channels": Range(2, 16, integer=True),
    "batch_size": Range(8, 128, log=True, integer=True),
}
CONFIGURATIONS = 190
_LEARNED = 500  # images; the others validate


@dataclass(frozen=True)
class NetworkOptions:
    """The objective's options, of which there are none."""

    def load(self, source: DataSource) -> "Network":
        """Read the images. Raises ObjectiveError without PyTorch."""
        require_torch("the curves `network`")
        images = load_digits()
        order = np.random.default_rng(0).permutation(len(images.labels))
        return Network(rows_of(images, order[:_LEARNED]), rows_of(images, order[_LEARNED:]))


@dataclass(frozen=True)
class NetworkTrainings:
    """The configurations, and the objective that trains them."""

    options: NetworkOptions = NetworkOptions()

    @property
    def space(self) -> Space:
        return NETWORK_SPACE

    def configurations(self) -> list[Configuration]:
        """Points of a scrambled Sobol sequence."""
        candidates = make_candidates(self.space, CONFIGURATIONS, "sobol", 0)
        return [candidates.parameters(arm) for arm in range(len(candidates))]


@dataclass(frozen=True)
class Network:
    """The objective, with its images."""

    train: Rows
    validation: Rows

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Accuracy on the validation images after the last epoch; each epoch's is reported."""
        import torch
        from torch import nn

        channels, accuracy = parameters["channels"], 0.0
        train, validation = tensors(self.train), tensors(self.validation)
        with seed_torch(seed, 1):
            network = nn.Sequential(
                nn.Conv2d(1, channels, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(channels, 2 * channels, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Dropout(parameters["dropout"]),
                nn.Linear(2 * channels * 16, 10),
            )
            optimizer = torch.optim.SGD(network.parameters(), parameters["learning_rate"], parameters["momentum"])
            for epoch in range(1, EPOCHS + 1):
                train_epoch(network, optimizer, train, parameters["batch_size"])
                accuracy = measure_accuracy(network, validation)
                report(accuracy, step=epoch)
        return Evaluation(accuracy)
