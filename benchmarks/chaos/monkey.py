"""The choice of processes to kill, by a seed. They get SIGKILL, without any signal before."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.chaos.accounting import Kill, Victim
from benchmarks.chaos.campaign import Campaign
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.objective import Execution, executions
from benchmarks.chaos.processes import Mark, age_of, parent_of
from tests.postgresql import Server

# Weights of the choice. Evaluations have many processes, and a campaign has one coordinator.
_WEIGHTS: dict[Victim, float] = {
    "worker": 5.0,
    "coordinator": 3.0,
    "driver": 2.0,
    "node": 1.5,
    "head": 0.5,
    "server": 1.5,
}
_LONGEST_AWAY = 6.0  # seconds until a database server is started again
_SEVERAL = 0.35  # the share of strikes with two or three victims


def random_strikes(rng: random.Random, has_server: bool) -> Iterator[tuple[Victim, ...]]:
    """An infinite sequence of strikes: most have one victim. Victims that need long to restart are
    last in a strike."""
    weights = {victim: weight for victim, weight in _WEIGHTS.items() if has_server or victim != "server"}
    while True:
        count = rng.choice((2, 3)) if rng.random() < _SEVERAL else 1
        kinds = rng.choices(list(weights), list(weights.values()), k=count)
        yield tuple(sorted(kinds, key=list(weights).index))


def alive_processes(execution: Execution, mark: Mark) -> list[int]:
    """The processes of an execution, of all its ranks, that run. After its end a newer process may
    have the same process id."""
    seconds = time.time() - execution.began
    return [pid for pid in execution.pids if age_of(pid) > seconds and mark.is_on(pid)]


class Monkey:
    """Kills processes of a campaign on a cluster.

    Args:
        notes: the folder in which evaluations record their start and end.
        server: the server of the campaign's database, when it may be killed.
    """

    def __init__(self, cluster: Cluster, rng: random.Random, notes: Path, server: Server | None = None) -> None:
        self._cluster = cluster
        self._rng = rng
        self._notes = notes
        self._server = server
        self._strikes = 0

    def strike(self, campaign: Campaign, victims: Sequence[Victim]) -> list[Kill]:
        """Kill those of the victims that run, one directly after the other. A killed node is
        replaced by a new one."""
        self._strikes += 1
        done: dict[int, Kill] = {}  # by process id: a process that is ending still exists, and is counted once
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
                running = [
                    execution
                    for execution in executions(self._notes)
                    if execution.ended is None and execution.seed in seeds
                ]
                alive = [pid for execution in running for pid in alive_processes(execution, self._cluster.mark)]
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
        """Kill the database server. It is started again after a while; until then connections are
        refused."""
        if self._server is None:
            return None
        now, pid = time.time(), self._server.kill()
        time.sleep(self._rng.uniform(0.0, _LONGEST_AWAY))
        self._server.start()
        return Kill(self._strikes, now, "server", pid)

    def _kill_node(self, campaign: Campaign) -> Kill | None:
        names = self._cluster.workers
        if not names or not self._cluster.is_whole:  # on a slow machine no node would be left
            return None
        name, coordinator = self._rng.choice(names), campaign.coordinator()
        begun_by, now = None if coordinator is None else parent_of(coordinator), time.time()
        raylet = self._cluster.kill_node(name)
        return None if raylet is None else Kill(self._strikes, now, "node", raylet, name, begun_by == raylet)
