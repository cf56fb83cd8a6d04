"""Checks the arms and observations that strategies receive, and splits observations."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bbkb.orchestrator.bandit.arms import Arms, check_features
from bbkb.orchestrator.bandit.arrays import Floats, Indices, read_only
from bbkb.orchestrator.bandit.strategy import Observation


def check_arms(arms: Arms | ArrayLike) -> Floats:
    """Return the read-only features (A, d) of `arms`. Raises ValueError for an invalid array."""
    return arms.features if isinstance(arms, Arms) else check_features(arms)


def arms_and_rewards(observations: Sequence[Observation]) -> tuple[list[int], list[float]]:
    """Return the arms and rewards of the observations with a reward. Raises ValueError if a reward
    is not finite."""
    pairs = [(observation.arm, observation.reward) for observation in observations if observation.reward is not None]
    for arm, reward in pairs:
        if not math.isfinite(reward):
            raise ValueError(f"the reward of arm {arm} must be finite, got {reward}; use None for a failed evaluation")
    return [arm for arm, _ in pairs], [float(reward) for _, reward in pairs]


def further_rewards(observations: Sequence[Observation], count: int) -> list[tuple[float, ...]]:
    """Return the `count` further rewards of each observation that has a reward; none for a pull that
    was stopped early. Raises ValueError if the number of rewards differs, or one is not finite."""
    rewarded = [observation for observation in observations if observation.reward is not None]
    for observation in rewarded:
        further = observation.further
        expected = 0 if observation.is_stopped else count
        if len(further) != expected or not all(map(math.isfinite, further)):
            arm = observation.arm
            raise ValueError(f"arm {arm} must have {expected} finite further rewards, got {further}")
    return [observation.further for observation in rewarded]


def with_set_aside(set_aside: Indices, observations: Sequence[Observation]) -> Indices:
    """Return `set_aside` and the arms that could not be evaluated, ascending."""
    failed = [observation.arm for observation in observations if observation.reward is None]
    return read_only(np.union1d(set_aside, np.array(failed, np.intp)), np.intp) if failed else set_aside
