"""The interface by which a strategy says when arms should be added, around which arms, and which to
retire.

Arms are added when the model is fitted first, and then whenever the number of results has grown by
15 %: around the five pulled arms of largest posterior mean, at steps of the order of the fitted
lengthscales. `orchestrator.candidates.pool` makes the features of new arms from the search space,
which the strategy does not know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from orchestrator.bandit.arrays import Floats

GROWTH_SHARE = 0.15  # of the results at the last growth
AROUND = 5  # arms


S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A request for new arms."""

    around: tuple[int, ...]  # the arms around which they are drawn, the best first
    lengthscales: tuple[float, ...]  # (p,), one for each parameter, in units of its features


@runtime_checkable
class Grows(Protocol[S]):
    """A strategy whose set of arms may grow while it runs."""

    @property
    def grows(self) -> bool:
        """Whether it ever wants more arms, with the options it has."""

    def growth(self, state: S) -> Growth | None:
        """Return the request for new arms at `state`; None for none."""

    def extend(self, state: S, features: Floats, retired: Sequence[int], log_prior: Floats | None = None) -> S:
        """Return the state with new arms after the others, `features` (n, d), n ≥ 0, and without
        the `retired` ones, which are never chosen again. Growth is due again only after further
        results. `log_prior` (n,): see `Arms`."""

    def arms_to_retire(self, state: S, pending: Sequence[int], most: int) -> tuple[int, ...]:
        """Return arms to retire so that at most `most` are left: those of least upper bound among
        the arms that were never pulled and are not `pending`; as many as there are of these."""


def is_growth_due(results: int, at_last: int, first: int) -> bool:
    """Return whether arms are to be added after `results` results; the last time was at `at_last`,
    0 before the one at `first` results."""
    return results >= max(first, (1.0 + GROWTH_SHARE) * at_last)
