"""Which attempt starts next, and whether the cluster has room for it."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from workers.messages import Attempt
from workers.on_ray.actor_factory import title_of
from workers.on_ray.durations import Durations
from workers.on_ray.in_flight import InFlight
from workers.on_ray.objective import Reference
from workers.on_ray.places import Capacity, Placement, is_saturated
from workers.on_ray.turns import Turns

READY_TASKS = 8  # very short tasks that may wait in Ray's queue, at least


class Admission:
    """The queue of attempts that Ray does not have yet, and the capacity that they wait for."""

    def __init__(self, capacity: Capacity, placement: Placement) -> None:
        self.is_held_back = False  # whether attempts wait because it is another campaign's turn
        self._capacity = capacity
        self._placement = placement
        self._is_saturated = is_saturated(placement, capacity.slots)
        self._turns = Turns()
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # by trial, in order of submission
        # the first attempt of the queue when it did not fit, and the attempts in flight then
        self._blocked: tuple[Attempt, frozenset[Reference]] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def slots(self) -> int:
        """The number of concurrent evaluations that the cluster has capacity for."""
        return self._capacity.slots

    @property
    def is_crowded(self) -> bool:
        """Whether the campaigns on the cluster take turns."""
        return self._capacity.is_crowded

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
        """Remove the attempt that may start now from the queue, and return it; None if there is no
        such attempt."""
        self.is_held_back = False
        if not self._queue or len(in_flight) >= self._window(durations):
            return None
        self.is_held_back = self._turns.is_of_others()
        attempt = None if self.is_held_back else self._first_that_fits(in_flight)
        if attempt is not None:
            del self._queue[attempt.trial]
        return attempt

    def give_turn(self) -> None:
        """Let campaigns that wait for a slot have the one that was just given back."""
        self._turns.give(title_of(campaign) for campaign in self._capacity.others)

    def update_slots(self) -> bool:
        """Count the slots again. Returns whether their number has changed."""
        before = self.slots
        if self._capacity.update() == before:
            return False
        self._is_saturated = is_saturated(self._placement, self.slots)
        return True

    def close(self) -> None:
        """Give the capacity back."""
        self._capacity.close()

    def clear(self) -> None:
        """Forget the queue."""
        self._queue.clear()

    def _window(self, durations: Durations) -> int:
        """Return the number of attempts that Ray may have.

        Very short tasks may exceed `slots` if the cluster itself bounds their number: the next task
        then starts without waiting for this process.
        """
        if not (self._is_saturated and durations.is_short and durations.is_very_short):
            return self.slots
        return self.slots + max(self.slots, READY_TASKS)

    def _first_that_fits(self, in_flight: InFlight) -> Attempt | None:
        """Return the first attempt of the queue if it fits, else one that may overtake it.

        Attempts that were in flight when the first one was blocked will end. Until the last of them
        has ended, attempts may start that fit beside the first one; then it comes next.
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
        """Yield the first attempt of each demand: the others fit exactly if this one does."""
        sizes: set[tuple[object, float]] = set()
        for attempt in self._queue.values():
            size = attempt.share, attempt.memory_factor
            if size not in sizes:
                sizes.add(size)
                yield attempt
