"""Values narrowed to the type that a test expects; another type fails the test."""

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.sparse.all_arms import PlacedArms
from bbkb.orchestrator.bandit.strategy import Choose, Decision


def array(arms: Floats | PlacedArms) -> Floats:
    """Return `arms`, which must be in one array."""
    assert isinstance(arms, np.ndarray)
    return arms


def choice(decision: Decision) -> Choose:
    """`decision`, which must be a choice."""
    assert isinstance(decision, Choose), decision
    return decision


def arms_of(decision: Decision) -> list[int]:
    """The arms of `decision`, which must be a choice."""
    return [pick.arm for pick in choice(decision).picks]
