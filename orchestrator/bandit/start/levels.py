"""The levels of choice parameters: those of each arm, and those that lack evaluations.

The one-hot columns of a choice are one parameter in the layout of the arms. A parameter that exists
only in one level is covered together with that level.
"""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arms import Layout
from orchestrator.bandit.arrays import Floats, Indices

NO_LEVEL = -1  # if the choice does not exist
# the number of evaluations that a level should have, and the increment for each numeric parameter
# in it
EACH = 4
# the number of failed evaluations from which on a level without a success needs no further arm
MOST_FAILED = 3


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of all choices for some arms."""

    # (n, c), the level of each of the c choices; `NO_LEVEL` if the choice does not exist
    of_arms: Indices
    # for each choice, the number of evaluations (L,) that each level should have
    quotas: tuple[Indices, ...]

    @staticmethod
    def of(features: Floats, layout: Layout) -> "Levels":
        """Return the levels of arms with `features` (n, d)."""
        columns = [np.flatnonzero(layout.parameters == number) for number in range(layout.parameter_count)]
        blocks = [features[:, places] for places in columns if len(places) > 1]
        by_parameter = [np.where((block > 0.0).sum(axis=1) == 1, block.argmax(axis=1), NO_LEVEL) for block in blocks]
        levels = np.stack(by_parameter, axis=1) if by_parameter else np.empty((len(features), 0), np.intp)
        numbers = features[:, [int(places[0]) for places in columns if len(places) == 1]]
        quotas = [
            [_quota(numbers[column == level]) for level in range(block.shape[1])]
            for column, block in zip(by_parameter, blocks, strict=True)
        ]
        return Levels(levels, tuple(np.array(choice, np.intp) for choice in quotas))

    def lacking(self, evaluated: Indices, failed: Indices, eligible: Indices) -> tuple[Indices, int]:
        """Return the `eligible` arms of the level that lacks the largest share of its quota, and
        the number of evaluations of this level; no arms if no level lacks evaluations.

        Arms are positions in `of_arms`.

        Args:
            evaluated: arms that were evaluated or are being evaluated, once for each evaluation.
            failed: the arms whose evaluations failed.
            eligible: arms that may be chosen, ascending.
        """
        counted = [
            _count(column, evaluated, len(quotas)) for column, quotas in zip(self.of_arms.T, self.quotas, strict=True)
        ]
        for column, counts in zip(self.of_arms.T, counted, strict=True):
            failures = _count(column, failed, len(counts))
            hopeless = np.flatnonzero((failures >= MOST_FAILED) & (failures == counts))
            eligible = eligible[~np.isin(column[eligible], hopeless)]
        least = 1.0
        candidates = eligible[:0]
        evaluations = 0
        for column, counts, quotas in zip(self.of_arms.T, counted, self.quotas, strict=True):
            for level in np.flatnonzero(quotas).tolist():
                share = counts[level] / quotas[level]
                if share < least and len(arms := eligible[column[eligible] == level]):
                    least = share
                    candidates = arms
                    evaluations = int(counts[level])
        return candidates, evaluations


def _count(column: Indices, arms: Indices, levels: int) -> Indices:
    """Return, for each of the `levels` levels, the number of `arms` with this level in `column`
    (n,)."""
    return np.bincount(column[arms] + 1, minlength=levels + 1)[1:]


def _quota(numbers: Floats) -> int:
    """Return the number of evaluations that a level should have. `numbers` (n, k): the features of
    its arms for parameters with a single feature."""
    return EACH * (1 + int(np.count_nonzero(np.ptp(numbers, axis=0)))) if len(numbers) else 0
