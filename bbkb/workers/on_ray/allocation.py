"""Starts the first workers of a campaign before its executor exists.

A worker process takes about a second to start, as does the session. So the first workers are
started first, and import the objective while the session is built.
"""

from dataclasses import dataclass

from bbkb.objectives.objective import HasPreparation
from bbkb.workers.on_ray.actors import WorkerPool
from bbkb.workers.on_ray.places import Capacity, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWorkers:
    """The workers to start early."""

    count: int  # the number of workers
    slots: int  # the largest number of concurrent evaluations of the campaign
    placement: Placement  # the resources of one evaluation
    # the objective that each worker prepares; None if it needs no preparation
    objective: HasPreparation | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """The capacity and the workers of a campaign, for an executor."""

    capacity: Capacity
    pool: WorkerPool

    def release(self) -> None:
        """Kill the workers and release the capacity, unless an executor takes them over."""
        self.pool.end_idle_workers(0.0)
        self.capacity.close()


def allocate(slots: int, placement: Placement) -> Allocation:
    """Return capacity for at most `slots` evaluations, without workers."""
    capacity = Capacity(placement, slots)
    return Allocation(capacity, WorkerPool(capacity.slots, placement))


def start_workers(first: FirstWorkers) -> Allocation:
    """Start as many of these workers as there are slots, without waiting for them."""
    allocation = allocate(first.slots, first.placement)
    allocation.pool.start_idle(min(first.count, allocation.capacity.slots), first.objective)
    return allocation
