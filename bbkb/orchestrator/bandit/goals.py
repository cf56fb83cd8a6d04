"""The numbers of objectives and constraints, which determine the rewards of a pull.

A strategy sees only rewards. The reward of an objective is maximized. The reward of a constraint is
its margin: the distance from the bound, at least 0 if the constraint is satisfied.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goals:
    """The numbers of `objectives` and `constraints`. A pull has one reward for each, in this order.

    Raises ValueError if there is no objective or the number of constraints is negative.
    """

    objectives: int = 1
    constraints: int = 0

    def __post_init__(self) -> None:
        if self.objectives < 1 or self.constraints < 0:
            got = f"got {self.objectives} and {self.constraints}"
            raise ValueError(f"goals must have at least 1 objective and 0 constraints, {got}")

    @property
    def further(self) -> int:
        """The number of rewards of a pull, without that of the first objective."""
        return self.objectives + self.constraints - 1

    @property
    def is_single(self) -> bool:
        """Whether there is one objective and no constraint."""
        return not self.further


SINGLE = Goals()
