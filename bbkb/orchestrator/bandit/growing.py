"""The interface by which a strategy requests new arms and chooses the arms to retire.

Arms are added at the first fit of the model, and then whenever the number of results has grown by
15 %. They are drawn around the five pulled arms with the largest posterior means, at distances of
the order of the fitted lengthscales. `bbkb.orchestrator.candidates.pool` makes the features of new arms
from the search space, which the strategy does not know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from bbkb.orchestrator.bandit.arrays import Floats

GROWTH_SHARE = 0.15  # the relative growth of the results between two growths
AROUND = 5  # arms


S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A request for new arms."""

    around: tuple[int, ...]  # the arms around which the new arms are drawn, the best first
    lengthscales: tuple[float, ...]  # (p,), one per parameter, in units of its features


class Perturbation(NamedTuple):
    """A request for a perturbed configuration of each of some arms."""

    arms: tuple[int, ...]  # may contain repetitions
    factors: tuple[float, float]  # the factors on numbers
    resample_probability: float  # the probability of a new draw, for each parameter


@runtime_checkable
class Grows(Protocol[S]):
    """A strategy whose set of arms may grow during a campaign."""

    @property
    def grows(self) -> bool:
        """Whether the strategy, with its options, ever requests more arms."""

    def growth(self, state: S) -> Growth | Perturbation | None:
        """Return the request for new arms at `state`; None if there is none."""

    def extend(self, state: S, features: Floats, retired: Sequence[int], log_prior: Floats | None = None) -> S:
        """Return the state with n ≥ 0 appended arms, `features` (n, d), and with the `retired` arms
        excluded from later choices; a retired new arm only has results from elsewhere. Growth is
        then due again only after further results. `log_prior` (n,): see `Arms`."""

    def arms_to_retire(self, state: S, pending: Sequence[int], most: int) -> tuple[int, ...]:
        """Return arms to retire, so that at most `most` remain if possible: those with the smallest
        upper bounds, among the arms that were never pulled and are not `pending`."""


def is_growth_due(results: int, at_last: int, first: int) -> bool:
    """Return whether arms should be added after `results` results. `at_last`: the number of results
    at the last growth; 0 before the first growth, which is due at `first` results."""
    return results >= max(first, (1.0 + GROWTH_SHARE) * at_last)
