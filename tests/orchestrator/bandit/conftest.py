"""Random bandit problems for dense oracles, with the near-duplicates of real pools."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings

from bbkb.orchestrator.bandit.kernels import KERNELS
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.picking import BatchPosterior
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
from tests.examples import examples

settings.register_profile("bandit", max_examples=examples(25), deadline=None, derandomize=True)
settings.load_profile("bandit")


@dataclass(frozen=True)
class Problem:
    model: SparseModel
    pulls: Pulls
    dictionary: np.ndarray
    batch: list[int]

    @property
    def posterior(self) -> SparsePosterior:
        return self.model.fit(self.pulls, self.dictionary)


def random_problem(seed: int, gap: float = 1e-9) -> Problem:
    rng = np.random.default_rng(seed)
    count, d = int(rng.integers(4, 30)), int(rng.integers(1, 4))
    arms = rng.normal(size=(count, d))
    arms[rng.integers(count)] = arms[rng.integers(count)]  # a duplicate
    arms[rng.integers(count)] = arms[rng.integers(count)] + gap  # a near-duplicate
    kernel = list(KERNELS.values())[rng.integers(len(KERNELS))](float(rng.uniform(0.3, 3)), float(rng.uniform(0.5, 2)))
    pulled = rng.integers(count, size=rng.integers(1, 2 * count))
    pulls = Pulls.none(count).add(pulled, rng.normal(size=len(pulled)))
    dictionary = np.sort(rng.choice(count, size=rng.integers(1, count + 1), replace=False))  # any, pulled or not
    batch = rng.integers(count, size=rng.integers(1, 12)).tolist()
    return Problem(SparseModel(kernel, arms, float(10 ** rng.uniform(-3, 0))), pulls, dictionary, batch)


def batch_with_all_arms(posterior: SparsePosterior) -> BatchPosterior:
    batch = BatchPosterior(posterior)
    batch.enter(np.arange(len(posterior.model.arms)))
    return batch


@pytest.fixture(scope="session")
def make_problem() -> Callable[..., Problem]:
    return random_problem
