"""The numbers of objectives and constraints, which determine the rewards of a pull.

A strategy sees rewards only. Each objective's is to be maximised. A constraint's is its margin, the
distance of the result from the bound, at least 0 if the constraint is satisfied.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goals:
    """How many `objectives` and `constraints` there are. A pull has one reward for each, the
    objectives' first.

    Raises ValueError when there is no objective, or fewer than no constraints.
    """

    objectives: int = 1
    constraints: int = 0

    def __post_init__(self) -> None:
        if self.objectives < 1 or self.constraints < 0:
            got = f"got {self.objectives} and {self.constraints}"
            raise ValueError(f"goals must have at least 1 objective and 0 constraints, {got}")

    @property
    def further(self) -> int:
        """Rewards of a pull beyond that of the first objective."""
        return self.objectives + self.constraints - 1

    @property
    def is_single(self) -> bool:
        """Whether there is one objective and no constraint."""
        return not self.further


SINGLE = Goals()
