"""Candidates, settings and synchronous runs of BBKB that its tests share."""

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.start.warm_start import RandomStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from tests.orchestrator.bandit.sequential_runs import choice, value

GRID = np.stack(np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8)), axis=-1).reshape(
    -1, 2
)  # symmetric: full of ties
AWKWARD = np.vstack((GRID, GRID[::3], GRID[:5] + 1e-9))  # duplicates, near-duplicates
# as in the papers' experiments
PAPER = BBKB(
    kernel=RBF(0.5),
    regularization=1e-4,
    noise_variance=1e-4,
    norm_bound=1.0,
    ratio_threshold=2.0,
    termination="global",
    warm_start=RandomStart(),
)
SMOOTH = replace(PAPER, regularization=0.01, noise_variance=0.01)


def play(
    strategy: BBKB,
    arms: np.ndarray,
    rounds: int,
    seed: int = 0,
    limit: int = 10_000,
    true: NDArray[np.float64] | None = None,
    pulls: int = 10**9,
) -> Iterator[tuple[Any, Choose]]:
    """Every decision of a synchronous run, and the state before it, until there were `rounds` or
    `pulls`."""
    true = value(arms) if true is None else true
    state = strategy.init(arms, np.random.default_rng([seed, 0]))
    noisy = np.random.default_rng([seed, 1])
    for number in range(rounds):
        decision = choice(strategy.ask(state, (), limit))
        yield state, decision
        picked = [pick.arm for pick in decision.picks]
        rewards = true[picked] + 0.05 * noisy.standard_normal(len(picked))
        observations = [Observation(arm, float(reward)) for arm, reward in zip(picked, rewards, strict=True)]
        state = strategy.tell(state, observations, np.random.default_rng([seed, 2, number]))
        pulls -= len(picked)
        if pulls <= 0:
            return


def batches(strategy: BBKB, arms: np.ndarray, rounds: int, **settings: Any) -> list[list[int]]:
    return [[pick.arm for pick in decision.picks] for _, decision in play(strategy, arms, rounds, **settings)]


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardized features and the target scaled to [0, 1]: Abalone from BBKB_DATA, or a data set
    of scikit-learn."""
    folder = Path(os.environ.get("BBKB_DATA", Path(__file__).parents[5] / "shared" / "data"))
    path = folder / name
    if path.exists():
        rows = list(csv.reader(path.read_text().splitlines()))[1:]
        features = np.array([[float(cell) for cell in row[-8:-1]] for row in rows])
        target = np.array([float(row[-1]) for row in rows])
    else:
        features, target = load_diabetes(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return features, (target - target.min()) / np.ptp(target)
