"""One campaign with strikes, each of which kills one or several processes at once.

The victims are chosen by a seed. They get SIGKILL, without any signal before.
"""

import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.accounting import Account, Kill, Victim, account
from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.objective import CHILD, NOTES, SECONDS, Execution, executions
from benchmarks.chaos.processes import Mark, age_of, parent_of, program_of, title_of, wait_for
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
    """An infinite sequence of strikes; victims that need long to restart are last in a strike."""
    weights = {victim: weight for victim, weight in _WEIGHTS.items() if has_server or victim != "server"}
    while True:
        count = rng.choice((2, 3)) if rng.random() < _SEVERAL else 1
        kinds = rng.choices(list(weights), list(weights.values()), k=count)
        yield tuple(sorted(kinds, key=list(weights).index))


def alive_processes(execution: Execution, mark: Mark) -> list[int]:
    """The running processes of an execution; a newer process may have the id of an ended one."""
    seconds = time.time() - execution.began
    return [pid for pid in execution.pids if age_of(pid) > seconds and mark.is_on(pid)]


class Monkey:
    """Kills processes of a campaign on a cluster, and its database server, if one is given."""

    def __init__(self, cluster: Cluster, rng: random.Random, notes: Path, server: Server | None = None) -> None:
        self._cluster = cluster
        self._rng = rng
        self._notes = notes
        self._server = server
        self._strikes = 0

    def strike(self, campaign: Campaign, victims: Sequence[Victim]) -> list[Kill]:
        """Kill those of the victims that run, one directly after the other, and replace nodes."""
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
        """Kill the database server, and start it again after a while."""
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


HANG_SECONDS = 180.0  # without an event in the log, until a campaign counts as hung; the longest lease is shorter
_UNHELD_SECONDS = 30.0  # for a coordinator to restart; after it the campaign is resumed
_FAREWELL_SECONDS = 60.0  # for a driver to print its summary, and for workers to end
_LOOK_SECONDS = 0.1
_ATTACHED_PER_SECOND = 0.2  # drawn at random: the time from the end of a driver to the start of the next one
_EAGER = 0.25  # the share of strikes that do not wait for a result after the strike before
_PATIENCE_SECONDS = 45.0  # of normal work before the next strike; without it a busy machine would only recover


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of the strikes on a campaign."""

    plan: Plan
    pause: tuple[float, float]  # the shortest and the longest time between two strikes, in seconds
    kills: int  # no strike starts after this number of kills


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one campaign."""

    plan: Plan
    account: Account
    complaints: tuple[str, ...]  # a sentence for each promise that was broken
    is_hung: bool  # the campaign and its cluster did not continue and were ended
    seconds: float
    attaches: int
    resumes: int


def settings(notes: Path, shortest: float, longest: float) -> dict[str, str]:
    """The environment variables that the objective needs on a cluster."""
    return {NOTES: str(notes), SECONDS: f"{shortest} {longest}"}


class Course:
    """One campaign with strikes."""

    def __init__(self, cluster: Cluster, monkey: Monkey, rng: random.Random, folder: Path, notes: Path) -> None:
        self._cluster = cluster
        self._monkey = monkey
        self._rng = rng
        self._folder = folder
        self._notes = notes
        self._kills: list[Kill] = []
        self._attaches = 0
        self._resumes = 0
        self._unheld_since: float | None = None

    def run(self, setting: Setting, victims: Iterator[tuple[Victim, ...]]) -> Result:
        """Start the campaign, strike until it ends, and check the log and remaining workers."""
        began = time.monotonic()
        campaign = Campaign(self._cluster, setting.plan, self._folder)
        is_hung = not self._run_until_end(campaign, setting, victims)
        plan = setting.plan
        finished = account(plan.evaluations, plan.seeds(), campaign.events(), executions(self._notes), self._kills)
        complaints = [*finished.broken, *self._check_after(campaign, is_hung)]
        if complaints:
            complaints.append(f"output of its commands:\n{campaign.said()}")
        seconds = time.monotonic() - began
        return Result(plan, finished, tuple(complaints), is_hung, seconds, self._attaches, self._resumes)

    def _run_until_end(self, campaign: Campaign, setting: Setting, victims: Iterator[tuple[Victim, ...]]) -> bool:
        """Return whether the campaign has ended."""
        next_strike = time.monotonic() + self._rng.uniform(*setting.pause)
        length, last_event, results, is_eager = 0, time.monotonic(), 0, False
        missed: tuple[Victim, ...] = ()  # victims of the last strike that were not alive; they are tried again
        while not campaign.is_over():
            now, known_length = time.monotonic(), length
            length = len(campaign.events())
            last_event = now if length > known_length else last_event
            if now - last_event > HANG_SECONDS:
                return False
            is_due = now >= next_strike and (
                is_eager or campaign.results() > results or now - next_strike > _PATIENCE_SECONDS
            )
            if is_due and len(self._kills) < setting.kills and (strike := missed or next(victims, ())):
                done = self._monkey.strike(campaign, strike)
                missed = tuple(victim for victim in strike if victim not in {kill.victim for kill in done})
                with (self._folder / "kills.txt").open("a") as file:  # beside the account
                    file.writelines(f"{kill}; nodes now {self._cluster.workers}\n" for kill in done)
                self._kills += done
                results, is_eager = campaign.results(), self._rng.random() < _EAGER
                last_event = time.monotonic()  # a strike waits for a new cluster, or for a server that does not run
                next_strike = last_event + self._rng.uniform(*setting.pause)
                if any(kill.victim == "head" for kill in done):  # its coordinator cannot restart: resume at once
                    self._unheld_since = time.monotonic() - _UNHELD_SECONDS
            self._look_after(campaign)
            time.sleep(_LOOK_SECONDS)
        return True

    def _look_after(self, campaign: Campaign) -> None:
        """Attach to a campaign without a driver, and resume one that no process holds."""
        self._cluster.repair()
        if campaign.watcher() is not None:
            return
        if campaign.is_held():
            self._unheld_since = None
            if self._rng.random() < _ATTACHED_PER_SECOND * _LOOK_SECONDS:
                self._attaches += 1
                campaign.attach()
            return
        self._unheld_since = self._unheld_since or time.monotonic()
        if time.monotonic() - self._unheld_since >= _UNHELD_SECONDS:
            self._unheld_since = None
            self._resumes += 1
            campaign.resume()

    def _check_after(self, campaign: Campaign, is_hung: bool) -> list[str]:
        """Complaints about the ended campaign: its log, its driver, or workers that still run."""
        if is_hung:
            return [f"hung: no event in the log during {HANG_SECONDS:g} s"]
        complaints = []
        try:
            campaign.driver.wait(_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            return [f"its driver did not end within {_FAREWELL_SECONDS:g} s"]
        if (code := campaign.exit_code()) not in (0, -signal.SIGKILL):
            complaints.append(f"its driver ended with {code}")
        if complaint := campaign.verify():
            complaints.append(f"bbkb verify: {complaint}")
        try:
            wait_for(
                lambda: not self._remaining_workers(campaign),
                _FAREWELL_SECONDS,
                "worker actors and their children must end with the campaign",
            )
        except TimeoutError as error:
            complaints.append(f"{error}: {self._remaining_workers(campaign)}")
        if groups := campaign.groups():
            complaints.append(f"placement groups must end with the campaign: {groups}")
        return complaints

    def _remaining_workers(self, campaign: Campaign) -> list[str]:
        """Worker actors of this campaign that are alive, and processes that evaluations started."""
        seeds, mark = campaign.plan.seeds(), self._cluster.mark
        pids = [pid for pid in mark.pids() if program_of(pid) == CHILD]
        for execution in executions(self._notes):
            if execution.seed in seeds and execution.place == "actor":
                pids += alive_processes(execution, mark)
        return sorted({title_of(pid) for pid in pids})
