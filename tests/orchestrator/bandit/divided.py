"""Candidates in several blocks of this process, as they are with several actors."""

from collections.abc import Sequence

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import Kernel
from bbkb.orchestrator.bandit.sparse.all_arms import LocalBlocks
from bbkb.orchestrator.bandit.sparse.blocks import Block


class Divided:
    """Candidates whose blocks begin at the positions `cuts`, besides 0."""

    def __init__(self, features: Floats, cuts: Sequence[int]) -> None:
        self.features = features
        self.cuts = cuts

    def __len__(self) -> int:
        return len(self.features)

    def blocks(self, kernel: Kernel) -> LocalBlocks:
        """See `PlacedArms`."""
        return LocalBlocks([Block(kernel, part) for part in np.split(self.features, self.cuts)])

    def extend(self, features: Floats) -> "Divided":
        """See `PlacedArms`."""
        return Divided(np.concatenate((self.features, features)), [*self.cuts, len(self.features)])
