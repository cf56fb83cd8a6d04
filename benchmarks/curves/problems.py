"""A problem: a space, and for each configuration its values at the steps at which a training
reports.

Values are maximized. Regret is in units of (best − median) of the values at the last step, so that
problems can be averaged: 0 is the regret of the best configuration, and 1 that of the median.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bbkb.objectives.conditions import Scalar
from bbkb.objectives.objective import Candidates
from bbkb.objectives.parameters import Space
from benchmarks.tables import Floats as Floats

Configuration = Mapping[str, Scalar]

WORST = 2.0  # the largest regret, because diverged trainings have unbounded values


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveProblem:
    """Learning curves of one training task."""

    name: str  # the problem's name on the command line
    space: Space  # the parameters
    arms: Candidates | None  # the configurations that have a curve; None: all of the space have one
    steps: tuple[int, ...]  # the steps at which a training reports, ascending
    costs: tuple[int, ...]  # the cost of each step after the previous one, in the unit of the budget
    # the values of a configuration at `steps`, fewer if its training ends early; larger is better
    curve: Callable[[Configuration], Floats]
    best: float  # the largest last value
    median: float  # the median of the last values

    def regret(self, value: float) -> float:
        """The regret of the last value of a training, in units of (best − median), at most `WORST`."""
        return min((self.best - value) / (self.best - self.median), WORST)

    def cost_of(self, reports: int) -> int:
        """The cost of a training that ends at its report `reports`, with no earlier value read."""
        return min(self.last_step, sum(self.costs[:reports]))

    @property
    def last_step(self) -> int:
        """The step at which a training ends, and the cost of one that reports only this step."""
        return self.steps[-1]
