"""What the objectives that train with PyTorch share: its generator at a seed, tensors, one epoch,
the accuracy.

PyTorch is an extra and is imported when an evaluation needs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from objectives.objective import ObjectiveError
from objectives.training.softmax import Rows

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

BLOCK = 1000  # rows that pass the network at a time when accuracy is measured


def require_torch(objective: str) -> None:
    """Raise ObjectiveError, which names the `objective`, where PyTorch is not installed."""
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


def train_epoch(
    network: "Module", optimizer: Any, rows: tuple["Tensor", "Tensor"], batch_size: int, schedule: Any = None
) -> float:
    """Return one pass of mini-batch SGD in a shuffled order; the mean loss on the way. `schedule`
    of the learning rate, where there is one, continues with every batch."""
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
