"""What is killed: a seeded choice among the living, by SIGKILL and without a warning."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.chaos.accounting import Kill, Victim
from benchmarks.chaos.campaign import Campaign
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.objective import Execution, executions
from benchmarks.chaos.postgresql import Server
from benchmarks.chaos.processes import Mark, age_of, parent_of

# How often each is chosen. Evaluations have many processes, the campaign has one coordinator.
_WEIGHTS: dict[Victim, float] = {
    "worker": 5.0,
    "coordinator": 3.0,
    "driver": 2.0,
    "node": 1.5,
    "head": 0.5,
    "server": 1.5,
}
_LONGEST_AWAY = 6.0  # seconds that a database server stays away
_SEVERAL = 0.35  # the share of strikes that hit two or three at once


def random_strikes(rng: random.Random, has_server: bool) -> Iterator[tuple[Victim, ...]]:
    """Strikes without end: most of one victim, some of several. What takes a while to come back is the last of them."""
    weights = {victim: weight for victim, weight in _WEIGHTS.items() if has_server or victim != "server"}
    while True:
        count = rng.choice((2, 3)) if rng.random() < _SEVERAL else 1
        chosen = rng.choices(list(weights), list(weights.values()), k=count)
        yield tuple(sorted(chosen, key=list(weights).index))


def is_alive(execution: Execution, mark: Mark) -> bool:
    """Whether the process of an execution is there: one that ended early may have left its number to a younger one."""
    return age_of(execution.pid) > time.time() - execution.began and mark.is_on(execution.pid)


class Monkey:
    """Strikes at a campaign on a cluster. `notes`: where evaluations say that they run; `server`: the database's, if
    it may be killed."""

    def __init__(self, cluster: Cluster, rng: random.Random, notes: Path, server: Server | None = None) -> None:
        self._cluster = cluster
        self._rng = rng
        self._notes = notes
        self._server = server
        self._strikes = 0

    def strike(self, campaign: Campaign, victims: Sequence[Victim]) -> list[Kill]:
        """Kill these, one right after the other, as far as they are there. A killed node is replaced by a new one."""
        self._strikes += 1
        done: dict[int, Kill] = {}  # by pid: one that dies is not yet gone, and does not count twice
        for victim in victims:
            if (kill := self._kill(campaign, victim)) is not None:
                done.setdefault(kill.pid, kill)
        for kill in done.values():
            if kill.victim == "node":
                self._cluster.add()
        return list(done.values())

    def _kill(self, campaign: Campaign, victim: Victim) -> Kill | None:
        match victim:
            case "node":
                return self._kill_node(campaign)
            case "head":
                return self._kill_head()
            case "server":
                return self._kill_server()
        pid = self._choose_process(campaign, victim)
        now = time.time()
        if pid is None or not self._cluster.mark.kill(pid):
            return None
        return Kill(self._strikes, now, victim, pid)

    def _choose_process(self, campaign: Campaign, victim: Victim) -> int | None:
        match victim:
            case "worker":
                seeds = campaign.plan.seeds()
                running = [it for it in executions(self._notes) if it.ended is None and it.seed in seeds]
                alive = [it.pid for it in running if is_alive(it, self._cluster.mark)]
                return self._rng.choice(alive) if alive else None
            case "coordinator":
                return campaign.coordinator()
            case _:
                return campaign.watcher()

    def _kill_head(self) -> Kill | None:
        if not self._cluster.is_whole:
            return None
        now = time.time()
        raylet = self._cluster.replace()
        return None if raylet is None else Kill(self._strikes, now, "head", raylet)

    def _kill_server(self) -> Kill | None:
        """It is away for a while: all that asks it meanwhile finds nothing."""
        if self._server is None:
            return None
        now, pid = time.time(), self._server.kill()
        time.sleep(self._rng.uniform(0.0, _LONGEST_AWAY))
        self._server.start()
        return Kill(self._strikes, now, "server", pid)

    def _kill_node(self, campaign: Campaign) -> Kill | None:
        names = self._cluster.workers
        if not names or not self._cluster.is_whole:  # a slow machine would be left without any
            return None
        name, coordinator = self._rng.choice(names), campaign.coordinator()
        begun_by, now = None if coordinator is None else parent_of(coordinator), time.time()
        raylet = self._cluster.kill_node(name)
        return None if raylet is None else Kill(self._strikes, now, "node", raylet, name, begun_by == raylet)
