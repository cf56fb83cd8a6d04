"""The common parts of the objectives that train with PyTorch: its generator at a seed, tensors, a training
that continues from a checkpoint, one epoch, the accuracy.

PyTorch is an extra and is imported when an evaluation needs it.
"""

import math
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from objectives.objective import ObjectiveError, Report
from objectives.training.checkpoints import Checkpoints
from objectives.training.softmax import Rows

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

SUFFIX = ".pt"  # of a checkpoint
BLOCK = 1000  # rows that pass the network at a time when accuracy is measured


def require_torch(objective: str) -> None:
    """Raise ObjectiveError, which names the `objective`, if PyTorch is not installed."""
    if find_spec("torch") is None:
        raise ObjectiveError(
            f"objective {objective} needs PyTorch, which is not installed here: "
            'pip install "torch>=2.4,<3" (on every node that evaluates)'
        )


@contextmanager
def seed_torch(seed: int, threads: int) -> Iterator[None]:
    """Use PyTorch's generator at `seed` and this number of threads; both are restored."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)


def tensors(rows: Rows) -> tuple["Tensor", "Tensor"]:
    """Return images (n, 1, side, side) float32 in [0, 1] and labels (n,)."""
    import torch

    side = int(rows.pixels.shape[1] ** 0.5)
    images = torch.from_numpy(rows.inputs(slice(None))).reshape(-1, 1, side, side)
    return images, torch.from_numpy(rows.labels.astype(np.int64))


@dataclass(slots=True)
class Training:
    """A training under way: with the state of PyTorch's generator all that the next epochs depend
    on.

    `accuracy` and `loss` are those of the last epoch, NaN before the first; a training whose loss
    is not finite has diverged. `seconds`: processor time so far.
    """

    network: "Module"
    optimizer: "Optimizer"
    schedule: "LRScheduler | None" = None  # of the learning rate; None: it is constant
    epoch: int = 0  # how many are over
    accuracy: float = math.nan
    loss: float = math.nan
    seconds: float = 0.0

    def save(self, path: str) -> None:
        """Write a checkpoint."""
        import torch

        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "random": torch.random.get_rng_state(),
            "numbers": {name: getattr(self, name) for name in ("epoch", "accuracy", "loss", "seconds")},
        }
        torch.save(state, path)

    def load(self, path: Path) -> "Training":
        """Return this training with the state of a checkpoint, and set PyTorch's generator. Nothing
        in the file is executed. Raises when it is damaged; the training is then of no use.
        """
        import torch

        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # PyTorch reads a file without looking at its checksums
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        state = torch.load(path, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        for name, number in state["numbers"].items():
            setattr(self, name, number)
        torch.random.set_rng_state(state["random"])
        return self


def train(
    begin: Callable[[], Training],
    rows: tuple["Tensor", "Tensor"],
    validation: tuple["Tensor", "Tensor"],
    batch_size: int,
    epochs: int,
    report: Report,
) -> Training:
    """Train to the end of the last epoch, or of the first one whose loss is not finite; report the
    accuracy on `validation` after each other epoch.

    A checkpoint is kept in the trial's folder, if it has one, and the training continues from it;
    the checkpoint's epoch is then reported once more, because its report may have been lost.

    Args:
        begin: draws the untrained network; it is called again when a checkpoint is damaged.
        rows: images and labels to train on, as `tensors` returns them.
        validation: the same, to measure the accuracy.
        batch_size: rows of one step of the optimizer, >= 1.
        epochs: passes over `rows` in all, >= 1.
        report: of the evaluation.
    """
    import torch

    checkpoints = Checkpoints(report, SUFFIX)
    random = torch.random.get_rng_state()
    training = checkpoints.restore(lambda path: begin().load(path))
    if training is None:
        torch.random.set_rng_state(random)  # a damaged checkpoint may have cost draws
        training = begin()
    else:
        report(training.accuracy, step=training.epoch)
    while training.epoch < epochs:
        began = time.process_time()
        training.loss = train_epoch(training.network, training.optimizer, rows, batch_size, training.schedule)
        if not math.isfinite(training.loss):
            training.accuracy = math.nan
            break
        training.accuracy = measure_accuracy(training.network, validation)
        training.epoch += 1
        training.seconds += time.process_time() - began
        checkpoints.save(training.save, training.epoch)
        report(training.accuracy, step=training.epoch)
    return training


def train_epoch(
    network: "Module", optimizer: Any, rows: tuple["Tensor", "Tensor"], batch_size: int, schedule: Any = None
) -> float:
    """Return one pass of mini-batch SGD in a shuffled order; the mean loss on the way. `schedule`
    of the learning rate, if there is one, continues with every batch."""
    import torch

    images, labels = rows
    network.train()
    total = 0.0
    for batch in torch.split(torch.randperm(len(labels)), batch_size):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
        torch.autograd.backward(loss)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        total += loss.item() * len(batch)
    return total / len(labels)


def measure_accuracy(network: "Module", rows: tuple["Tensor", "Tensor"]) -> float:
    """Share of the rows whose class has the highest score, in [0, 1]."""
    import torch

    network.eval()
    images, labels = rows
    with torch.no_grad():
        best = torch.cat([network(block).argmax(dim=1) for block in torch.split(images, BLOCK)])
    return int((best == labels).sum()) / len(labels)
