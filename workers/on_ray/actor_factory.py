"""Creates, finds and ends the worker actors of a campaign, with their placement groups.

Their names end in an index, beginning with 1. The index of a worker that has ended is used again,
because each name makes new series of metrics.
"""

import itertools
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from workers.messages import Limits, Share
from workers.on_ray.groups import make_group, remove_group
from workers.on_ray.ledger import NAMESPACE
from workers.on_ray.places import Placement, need_of
from workers.on_ray.processes import end_actor
from workers.on_ray.worker_actor import WorkerActor

_LOGGER = logging.getLogger("bbkb.executor")


@dataclass(eq=False, slots=True)
class Worker:
    """A worker actor of this campaign.

    name: the actor's name, which begins with `title_of` the campaign.
    actor: Ray's handle.
    memory: the memory that it reserves, in bytes; None if it is not limited, 0 if unknown.
    share: its CPUs and GPUs; None if unknown.
    has_begun: whether it is known to run, and not to wait for resources.
    group: its placement group, if an evaluation takes several machines.
    made: when it was created, on the monotonic clock.
    idle_since: since when it has no attempt, on the monotonic clock.
    acknowledged: (trial, attempt) whose outcomes it may delete, which its next call says.
    """

    name: str
    actor: Any
    memory: int | None
    share: Share | None = None
    has_begun: bool = False
    group: PlacementGroup | None = None
    made: float = field(default_factory=time.monotonic)
    idle_since: float = field(default_factory=time.monotonic)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)


class ActorFactory:
    """Creates and finds the worker actors of one campaign."""

    def __init__(self, limits: Limits, placement: Placement) -> None:
        self.title = title_of(placement.campaign)
        self._limits = limits
        self._placement = placement
        self._remote: Any = ray.remote(WorkerActor)  # once, because Ray exports each such object

    def make(self, names: Collection[str], memory: int | None, share: Share) -> Worker:
        """Create a worker with these resources, with a name that is not among `names`."""
        candidates = (f"{self.title}{index}" for index in itertools.count(1))
        for name in candidates:
            if name in names:
                continue
            group = None
            try:
                group = self._make_group(name, memory, share)
                actor = self._create(name, memory, share, group)
            except ValueError:  # a worker with this name has not quite ended
                if group is not None:
                    remove_group(group)
                continue
            _LOGGER.debug("started worker %s", name)
            return Worker(name, actor, memory, share, group=group)
        raise AssertionError("the candidates are infinite")

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

    def _make_group(self, name: str, memory: int | None, share: Share) -> PlacementGroup | None:
        """Return a placement group if an evaluation needs one.

        Raises ValueError if a group with this name exists.
        """
        if not self._placement.has_group(share):
            return None
        need = need_of(self._placement, self._limits, share)
        need = replace(need, memory=float(memory or 0))
        return make_group(name, need, is_packed=self._placement.is_train)

    def _create(
        self,
        name: str,
        memory: int | None,
        share: Share,
        group: PlacementGroup | None,
    ) -> Any:
        """Create an actor, in bundle 0 of its group. Raises ValueError if the name is taken."""
        is_train = self._placement.is_train  # then the trainer's workers have the whole group
        strategy = "DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, 0)
        return self._remote.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=0,
            max_task_retries=0,
            num_cpus=0.0 if is_train else share.cpus,
            num_gpus=0.0 if is_train else share.gpus,
            memory=None if is_train else memory,
            scheduling_strategy=strategy,
        ).remote(name, self._placement.campaign, self._placement.keep_seconds, is_train)


def end_worker(worker: Worker, may_hang: bool) -> None:
    """Kill a worker and remove its group; `may_hang`: its process may not react to Ray."""
    end_actor(worker.actor, reaches_other_nodes=may_hang)
    if worker.group is not None:
        remove_group(worker.group)
    _LOGGER.debug("ended worker %s", worker.name)


def title_of(campaign: str) -> str:
    """Return the beginning of the names of the campaign's workers and of their groups."""
    return f"bbkb {campaign} worker "
