"""Creates, finds and ends the worker actors of a campaign.

Their names end in an index that starts at 1. The index of an ended worker is reused, because each
name creates new series of metrics.
"""

import contextlib
import itertools
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from workers.messages import Limits, Share
from workers.on_ray.ledger import NAMESPACE
from workers.on_ray.packing import Need
from workers.on_ray.places import Placement, need_of
from workers.on_ray.processes import end_actor
from workers.on_ray.worker_actor import WorkerActor

_LOGGER = logging.getLogger("bbkb.executor")


@dataclass(eq=False, slots=True)
class Worker:
    """A worker actor of this campaign.

    name: the actor's name, which begins with `title_of` the campaign.
    actor: Ray's handle.
    memory: the memory that it reserves, in bytes; None if unlimited, 0 if unknown.
    share: its CPUs and GPUs; None if unknown.
    has_begun: whether it is known to be running, not waiting for resources.
    made: the time of its creation, on the monotonic clock.
    idle_since: the time since which it has had no attempt, on the monotonic clock.
    acknowledged: (trial, attempt) of outcomes that it may delete; its next call passes them on.
    """

    name: str
    actor: Any
    memory: int | None
    share: Share | None = None
    has_begun: bool = False
    made: float = field(default_factory=time.monotonic)
    idle_since: float = field(default_factory=time.monotonic)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)


class ActorFactory:
    """Creates and finds the worker actors of one campaign."""

    def __init__(self, limits: Limits, placement: Placement) -> None:
        self.title = title_of(placement.campaign)
        self._limits = limits
        self._placement = placement
        self._remote: Any = ray.remote(WorkerActor)  # once: Ray exports each such object

    def make(self, names: Collection[str], memory: int | None, share: Share) -> Worker:
        """Create a worker with these resources and a name that is not among `names`."""
        need = need_of(self._placement, self._limits, share)
        need = replace(need, memory=float(memory or 0))
        for index in itertools.count(1):
            name = f"{self.title}{index}"
            if name in names:
                continue
            with contextlib.suppress(ValueError):  # the old worker has not quite ended
                worker = Worker(name, self._create(name, need), memory, share)
                _LOGGER.debug("started worker %s", name)
                return worker
        raise AssertionError("the indices are infinite")

    def find(self) -> dict[str, Any]:
        """Return the campaign's worker actors that are alive, by name."""
        actors = {}
        for listed in ray.util.list_named_actors(all_namespaces=True):
            name = listed["name"]
            if listed["namespace"] == NAMESPACE and name.startswith(self.title):
                try:
                    actors[name] = ray.get_actor(name, NAMESPACE)
                except ValueError:  # it has died since it was listed
                    continue
        return actors

    def end(self, worker: Worker, may_hang: bool) -> None:
        """Kill a worker and release its resources; `may_hang`: it may not respond to Ray."""
        end_actor(worker.actor, reaches_other_nodes=may_hang)
        self._placement.crew.release(worker.name)
        _LOGGER.debug("ended worker %s", worker.name)

    def _create(self, name: str, need: Need) -> Any:
        """Create an actor. Raises ValueError if the name is taken."""
        crew = self._placement.crew
        options = crew.reserve(name, need)
        try:
            return self._remote.options(
                name=name,
                namespace=NAMESPACE,
                lifetime="detached",
                max_restarts=0,
                max_task_retries=0,
                **options,
            ).remote(name, self._placement.campaign, self._placement.keep_seconds, crew)
        except ValueError:
            crew.release(name)
            raise


def title_of(campaign: str) -> str:
    """Return the prefix of the names of the campaign's workers and of their crew's resources."""
    return f"bbkb {campaign} worker "
