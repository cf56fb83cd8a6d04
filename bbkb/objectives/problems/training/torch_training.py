"""Training in epochs, with a checkpoint in the trial's folder after each epoch; and the common parts
of the objectives that train with PyTorch: seeding, tensors, one epoch, the accuracy.

PyTorch is an extra and is imported when an evaluation needs it.
"""

import math
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from bbkb.objectives.external import Trial
from bbkb.objectives.objective import ObjectiveError, Report, folder_of, gives_value
from bbkb.objectives.problems.training.images import Rows

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class Trained(Protocol):
    """The state of a training after `epoch` epochs, with the accuracy on the validation rows."""

    epoch: int
    accuracy: float

    def save(self, path: str) -> None:
        """Write a checkpoint."""


State = TypeVar("State", bound=Trained)


def train_in_epochs(
    report: Report,
    suffix: str,
    begin: Callable[[], State],
    read: Callable[[Path], State],
    advance: Callable[[State], bool],
    epochs: int,
) -> State:
    """Train to the end of the last epoch, or until the training diverges. Report the accuracy after
    each epoch.

    The training continues from the newest checkpoint in the trial's folder. Its epoch is reported
    again, because the report may have been lost. If the trial has no folder, no checkpoint is
    written or read. If the checkpoint is damaged, the training restarts, with a warning.

    Raises the error of `read` if it is due to memory or the disk.

    Args:
        report: the evaluation's `report`, which knows the trial's folder.
        suffix: the ending of the names of checkpoints.
        begin: returns an untrained state, also if a checkpoint is damaged.
        read: returns the state in a checkpoint. Raises any error if it is damaged.
        advance: trains for one epoch, and returns False if the training has diverged.
        epochs: the number of the last epoch, >= 1.
    """
    trial = None if folder_of(report) is None else Trial(report)
    training = None
    if trial is not None:
        # the training runs only in this process; any ranks in its environment belong to the
        # worker's launcher
        trial.is_first = gives_value(report)
        if trial.checkpoint is not None:
            try:
                training = read(trial.checkpoint)
            except (MemoryError, OSError):  # the checkpoint may be intact, and a restarted training would replace it
                raise
            except Exception as error:  # PyTorch and numpy raise many types for a damaged file
                message = f"the training restarts, because its checkpoint {trial.checkpoint} cannot be read"
                warnings.warn(f"{message}: {error!r}", stacklevel=1)
    if training is None:
        training = begin()
    else:
        report(training.accuracy, step=training.epoch)
    while training.epoch < epochs and advance(training):
        if trial is not None:
            trial.save(training.save, training.epoch, suffix)
        report(training.accuracy, step=training.epoch)
    return training


SUFFIX = ".pt"  # the suffix of a checkpoint
BLOCK = 1000  # the number of rows in a forward pass that measures the accuracy


def require_torch(objective: str) -> None:
    """Raise ObjectiveError, with the `objective` in its message, if PyTorch is not installed."""
    if find_spec("torch") is None:
        raise ObjectiveError(
            f"objective {objective} needs PyTorch, which is not installed here: "
            'pip install "torch>=2.4,<3" (on every node that evaluates)'
        )


@contextmanager
def seed_torch(seed: int, threads: int) -> Iterator[None]:
    """Seed PyTorch's generator and set the number of threads. Both are restored on exit."""
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
    """The state of a training. Together with the state of PyTorch's generator, it determines the
    next epochs.

    `accuracy` and `loss` are the values of the last epoch; NaN before the first one. `seconds`: the
    processor time so far.
    """

    network: "Module"
    optimizer: "Optimizer"
    # the schedule of the learning rate; None if it is constant
    schedule: "LRScheduler | None" = None
    epoch: int = 0  # the number of completed epochs
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
        in the file is executed. Raises an error if the file is damaged, after which the training is
        unusable.
        """
        import torch

        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # PyTorch does not verify a file's checksums
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
    """Train in epochs with checkpoints, as `train_in_epochs` does. A training whose loss is not
    finite has diverged.

    `begin` draws the untrained network; it is called again if a checkpoint is damaged. `rows` and
    `validation` are images and labels, as `tensors` returns them.
    """
    import torch

    random = torch.random.get_rng_state()

    def begin_anew() -> Training:
        torch.random.set_rng_state(random)  # reading a damaged checkpoint may have used draws
        return begin()

    def advance(training: Training) -> bool:
        began = time.process_time()
        images, labels = rows
        training.network.train()
        total = 0.0
        for batch in torch.split(torch.randperm(len(labels)), batch_size):
            training.optimizer.zero_grad()
            scores = training.network(images[batch])
            loss = torch.nn.functional.cross_entropy(scores, labels[batch])
            torch.autograd.backward(loss)
            training.optimizer.step()
            if training.schedule is not None:
                training.schedule.step()  # with every batch
            total += loss.item() * len(batch)
        training.loss = total / len(labels)
        if not math.isfinite(training.loss):
            training.accuracy = math.nan
            return False
        training.accuracy = measure_accuracy(training.network, validation)
        training.epoch += 1
        training.seconds += time.process_time() - began
        return True

    def read(path: Path) -> Training:
        return begin().load(path)

    return train_in_epochs(report, SUFFIX, begin_anew, read, advance, epochs)


def measure_accuracy(network: "Module", rows: tuple["Tensor", "Tensor"]) -> float:
    """Return the share of the rows whose class has the highest score, in [0, 1]."""
    import torch

    network.eval()
    images, labels = rows
    with torch.no_grad():
        best = torch.cat([network(block).argmax(dim=1) for block in torch.split(images, BLOCK)])
    return int((best == labels).sum()) / len(labels)
