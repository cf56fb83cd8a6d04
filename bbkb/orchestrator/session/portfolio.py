"""Chooses the configurations of earlier runs that a campaign evaluates first.

The runs' objectives may differ. Therefore their values are not learned; only their best
configurations are used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bbkb.objectives.conditions import Scalar
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation

MOST = 8  # the number of configurations that are evaluated first
MOST_OF_A_RUN = 200  # the number of a run's best results that are compared
Configuration = Mapping[str, Scalar]


@dataclass(frozen=True)
class EarlierRun:
    """The results of an earlier run."""

    name: str
    configurations: Sequence[Configuration]  # n evaluated configurations
    rewards: Sequence[float]  # (n,), their values, negated if they are minimized


def portfolio(space: SearchSpace, runs: Sequence[EarlierRun], most: int = MOST) -> list[Configuration]:
    """Return at most `most` configurations of the runs, chosen greedily: each choice gives the
    largest improvement in the best rank of a chosen configuration, over all runs.

    The rank of a configuration in a run is the rank of its mean under a model of the run's values.
    The portfolio is complete when it contains each run's best configuration.
    """
    arms: dict[bytes, int] = {}
    features: list[Floats] = []
    configurations: list[Configuration] = []
    results_of_runs: list[list[Observation]] = []
    for run in runs:
        best = np.argsort(-np.array(run.rewards), kind="stable")[:MOST_OF_A_RUN]
        results_of_runs.append([])
        for place in best:
            row = space.candidate(run.configurations[place]).features
            arm = arms.setdefault(row.tobytes(), len(arms))
            if arm == len(features):
                features.append(row)
                configurations.append(run.configurations[place])
            results_of_runs[-1].append(Observation(arm, run.rewards[place]))
    numbers = space.candidate(configurations[0]).parameter_of
    evaluated = Arms.of(np.concatenate(features), numbers)
    worth = np.array([_worth(_means(evaluated, results)) for results in results_of_runs])
    return [configurations[number] for number in _greedy(worth, most)]


def _means(arms: Arms, results: Sequence[Observation]) -> Floats:
    """Return the posterior means (A,) of a model that has learned these results."""
    model = BBKB(**with_preset(BBKB, {}))
    state = model.tell(model.init(arms, np.random.default_rng(0)), results, np.random.default_rng(0))
    return model.posterior(state).mean


def _worth(means: Floats) -> Floats:
    """Return −log(rank / (n + 1)) (A,), which is positive; the best mean has rank 1."""
    ranks = 1 + np.argsort(np.argsort(-means, kind="stable"))
    return -np.log(ranks / (len(means) + 1))


def _greedy(worth: Floats, most: int) -> list[int]:
    """Choose columns of `worth` (R, A) greedily. Each choice maximizes the increase of the sum of
    the rows' maxima. It ends when no column increases this sum."""
    selected: list[int] = []
    reached = np.zeros(len(worth))
    while len(selected) < most:
        gains = np.maximum(worth - reached[:, None], 0.0).sum(axis=0)
        column = int(np.argmax(gains))
        if gains[column] <= 0.0:
            break
        selected.append(column)
        reached = np.maximum(reached, worth[:, column])
    return selected
