"""Decides which attempt starts next, and whether the cluster has capacity for it."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from bbkb.workers.messages import Attempt
from bbkb.workers.on_ray.durations import Durations
from bbkb.workers.on_ray.in_flight import InFlight
from bbkb.workers.on_ray.objective import Reference
from bbkb.workers.on_ray.places import Capacity, Placement, is_saturated

READY_TASKS = 8  # the least number of very short tasks that may wait in Ray's queue


class Admission:
    """The queue of attempts that Ray does not have yet, and the capacity they wait for."""

    def __init__(self, capacity: Capacity, placement: Placement) -> None:
        self._capacity = capacity
        self._placement = placement
        self._is_saturated = is_saturated(placement, capacity.slots)
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # by trial, in order of submission
        # the first queued attempt if it did not fit, and the attempts in flight at that time
        self._blocked: tuple[Attempt, frozenset[Reference]] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Queue these attempts."""
        self._queue.update((attempt.trial, attempt) for attempt in attempts)

    def put_back(self, attempt: Attempt) -> None:
        """Queue an attempt that Ray did not start, before all others."""
        self._queue[attempt.trial] = attempt
        self._queue.move_to_end(attempt.trial, last=False)

    def withdraw(self, trials: Iterable[int]) -> list[Attempt]:
        """Remove these trials from the queue, and return their attempts."""
        return [self._queue.pop(trial) for trial in trials if trial in self._queue]

    def take_next(self, in_flight: InFlight, durations: Durations) -> Attempt | None:
        """Remove the attempt that may start now from the queue and return it; None if there is
        none."""
        if not self._queue or len(in_flight) >= self._window(durations):
            return None
        attempt = self._first_that_fits(in_flight)
        if attempt is not None:
            del self._queue[attempt.trial]
        return attempt

    def update_slots(self) -> bool:
        """Count the slots again, and return whether their number has changed."""
        before = self._capacity.slots
        if self._capacity.update() == before:
            return False
        self._is_saturated = is_saturated(self._placement, self._capacity.slots)
        return True

    def clear(self) -> None:
        """Clear the queue."""
        self._queue.clear()

    def _window(self, durations: Durations) -> int:
        """Return the number of attempts that may be passed to Ray.

        Very short tasks may exceed `slots` if the cluster itself limits their number. The next task
        then starts without waiting for this process.
        """
        slots = self._capacity.slots
        if not (self._is_saturated and durations.is_short and durations.is_very_short):
            return slots
        return slots + max(slots, READY_TASKS)

    def _first_that_fits(self, in_flight: InFlight) -> Attempt | None:
        """Return the first queued attempt if it fits, else one that may overtake it.

        All attempts that were in flight when the first one was blocked will end. Until then,
        attempts that fit beside the first one may start; afterwards it comes next.
        """
        first = next(iter(self._queue.values()))
        running = {reference: attempt.request for reference, attempt in in_flight.items()}
        if self._capacity.has_room(first, running.values()):
            return first
        if self._blocked is None or self._blocked[0] != first:
            self._blocked = first, frozenset(running)
        older = self._blocked[1]
        if older.isdisjoint(running):
            return None
        newer = [request for reference, request in running.items() if reference not in older]
        neighbors = (running.values(), [first, *newer])  # now, and when the first one starts
        for attempt in self._one_of_each_size():
            if all(self._capacity.has_room(attempt, beside) for beside in neighbors):
                return attempt
        return None

    def _one_of_each_size(self) -> Iterator[Attempt]:
        """Yield the first attempt of each demand; if it fits, so do the others with this demand."""
        sizes: set[tuple[object, float]] = set()
        for attempt in self._queue.values():
            size = attempt.share, attempt.memory_factor
            if size not in sizes:
                sizes.add(size)
                yield attempt
