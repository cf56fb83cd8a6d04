"""A campaign's places and its worker actors, which can be started before there is an executor to
use them.

The process that evaluates for a campaign takes about a second to start, and so does the session
that decides what it evaluates. So the first workers are started first, and import the objective
while the session is built.
"""

from dataclasses import dataclass

from objectives.objective import HasPreparation
from workers.messages import Limits
from workers.on_ray.actors import WorkerPool
from workers.on_ray.places import Placement, Places


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWorkers:
    """What to start: `count` workers of a campaign that has at most `slots`. `objective` is
    prepared by each of them; None where there is nothing to prepare."""

    count: int
    slots: int
    limits: Limits
    placement: Placement
    objective: HasPreparation | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """The places and workers of one campaign, for one executor."""

    places: Places
    pool: WorkerPool

    def release(self) -> None:
        """End the workers and give the places back, where no executor does it."""
        self.pool.end_idle_workers(0.0)
        self.places.close()


def allocate(slots: int, limits: Limits, placement: Placement) -> Allocation:
    """Return places for at most `slots` evaluations, and no workers yet."""
    places = Places(placement, limits, slots)
    return Allocation(places, WorkerPool(places.count, limits, placement))


def start_workers(first: FirstWorkers) -> Allocation:
    """Start as many of these workers as there are places for, without waiting for them."""
    allocation = allocate(first.slots, first.limits, first.placement)
    allocation.pool.start_idle(min(first.count, allocation.places.count), first.objective)
    return allocation
