"""Nodes in their own network namespaces, joined by a bridge, and links that are cut: no process
ends and no connection is closed, but packets are lost. Needs root.

    bridge namespace   bc<n>b: a bridge, to which the virtual cables of the nodes are connected
    node namespaces    bc<n>h (head), bc<n>1, bc<n>2, …: addresses 10.79.0.1, .2, …
"""

import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.chaos.accounting import Account, account
from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import CPUS, Cluster
from benchmarks.chaos.course import settings
from benchmarks.chaos.objective import Execution, executions
from benchmarks.chaos.processes import wait_for
from orchestrator.campaign.events import TrialFailed, TrialSucceeded

_WORKERS = ("node1", "node2")
_EVALUATIONS = 12
_SECONDS = (4.0, 12.0)  # seconds of the shortest and the longest evaluation
# seconds after which a link is connected again; with deploy/ray.env Ray declares a node dead after
# 24 to 30 s
_HEALINGS = (5.0, 60.0, None)
_FOUND_SECONDS = 300.0  # for the campaign to end, for any duration of the cut


@dataclass(frozen=True, slots=True)
class Cut:
    """The result of one cut."""

    kind: str
    healed_after: float | None  # seconds until the link was connected again, None: never
    behind: int
    # seconds from the cut until the evaluations on the cut node ran again on another one
    elsewhere: tuple[float, ...]
    late: int  # executions that ended on the cut node and are not in the log
    complaints: tuple[str, ...]


class Network:
    """Network namespaces for these nodes. A context manager, which removes them on exit."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._stem = f"bc{os.getpid() % 100000}"
        self._nodes = list(nodes)
        self._bridge = f"{self._stem}b"

    def __enter__(self) -> "Network":
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._remove()

    @property
    def hosts(self) -> dict[str, str]:
        """The address of each node."""
        return {node: f"10.79.0.{number}" for number, node in enumerate(self._nodes, start=1)}

    @property
    def prefixes(self) -> dict[str, list[str]]:
        """For each node, the words that its commands begin with."""
        return {node: ["ip", "netns", "exec", self._space(node)] for node in self._nodes}

    def cut(self, node: str) -> None:
        """Disconnect the node at the bridge: all packets are lost, and no process is notified."""
        _ip("-n", self._bridge, "link", "set", self._space(node), "down")

    def heal(self, node: str) -> None:
        """Connect the node again."""
        _ip("-n", self._bridge, "link", "set", self._space(node), "up")

    def _space(self, node: str) -> str:
        """The name of a node's namespace, and of the bridge's end of its cable."""
        return f"{self._stem}n{self._nodes.index(node)}"

    def _make(self) -> None:
        _ip("netns", "add", self._bridge)
        _ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._bridge, "link", "set", "bridge", "up")
        for node, host in self.hosts.items():
            space = self._space(node)
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", self._bridge, "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", self._bridge, "link", "set", space, "master", "bridge", "up")
            _ip("-n", space, "address", "add", f"{host}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "default", "via", self.hosts[self._nodes[0]])

    def _remove(self) -> None:
        for space in (*(self._space(node) for node in self._nodes), self._bridge):
            # a namespace that was not created cannot be removed
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


def is_possible() -> bool:
    """Whether this process may create network namespaces; it creates one to find out."""
    if shutil.which("ip") is None:
        return False
    name = f"bc{os.getpid() % 100000}t"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if done.returncode:
        return False
    _ip("netns", "delete", name)
    return True


def ray_settings(file: Path) -> dict[str, str]:
    """The environment variables in deploy/ray.env."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))


def cuts(folder: Path, seed: int, kinds: Sequence[str] = ("actor", "task")) -> Iterator[Cut]:
    """Cut a link for 5 s, until after the node was declared dead, and until the end of the
    campaign; each with every kind of worker. Yields nothing when namespaces cannot be created."""
    if not is_possible():
        return
    for kind in kinds:
        for healed in _HEALINGS:
            plan = Plan(kind, _EVALUATIONS, len(_WORKERS) * CPUS, seed)
            yield cut(folder / f"cut-{kind}-{'never' if healed is None else format(healed, 'g')}", plan, healed)


def cut(folder: Path, plan: Plan, healed_after: float | None) -> Cut:
    """One campaign on a head and two worker nodes, one of which is disconnected while it
    evaluates."""
    folder.mkdir(parents=True)
    notes, rng = folder / "notes", random.Random(plan.seed)
    env = ray_settings(Path(__file__).parents[2] / "deploy" / "ray.env") | settings(notes, *_SECONDS)
    with ExitStack() as cleared:
        network = cleared.enter_context(Network(("head", *_WORKERS)))
        cluster = cleared.enter_context(Cluster(env, network.prefixes, network.hosts))
        cluster.start(len(_WORKERS))
        campaign = Campaign(cluster, plan, folder)
        node = rng.choice(_WORKERS)
        behind = wait_for(lambda: _running_on(node, notes), _FOUND_SECONDS, f"{node} must evaluate")
        time.sleep(1.0)
        behind = _running_on(node, notes) or behind
        network.cut(node)
        moment = time.time()
        if healed_after is not None:
            time.sleep(healed_after)
            network.heal(node)
        complaints = []
        try:
            wait_for(campaign.is_over, _FOUND_SECONDS, "the campaign must end")
        except TimeoutError as error:
            complaints.append(f"{error}\n{campaign.said()}")
        finished = account(plan.evaluations, plan.seeds(), campaign.events(), executions(notes), ())
        return _outcome(campaign, plan, healed_after, behind, moment, finished, notes, complaints)


def _outcome(
    campaign: Campaign,
    plan: Plan,
    healed_after: float | None,
    behind: Sequence[Execution],
    moment: float,
    finished: Account,
    notes: Path,
    complaints: list[str],
) -> Cut:
    executed = executions(notes)
    events = campaign.events()
    recorded = {(event.metrics["pid"], event.metrics["began"]) for event in events if isinstance(event, TrialSucceeded)}
    repeated = [
        min(
            (
                execution.began - moment
                for execution in executed
                if execution.seed == lost.seed and execution.began > moment
            ),
            default=None,
        )
        for lost in behind
        if (float(lost.pid), lost.began) not in recorded
    ]
    late = [
        execution
        for execution in executed
        if execution.ended is not None and (float(execution.pid), execution.began) not in recorded
    ]
    failures = [event for event in events if isinstance(event, TrialFailed) and event.failure != "node lost"]
    complaints += [f"failed with another kind than node lost: {failure}" for failure in failures]
    complaints += [f"{finished.twice} recorded twice"] if finished.twice else []
    complaints += [f"bbkb verify: {text}"] if (text := campaign.verify()) else []
    seconds = tuple(wait for wait in repeated if wait is not None)
    return Cut(plan.kind, healed_after, len(behind), seconds, len(late), tuple(complaints))


def cuts_report(cuts: Sequence[Cut]) -> str:
    """A table of all cuts."""
    if not cuts:
        return "Cut links: not run. Network namespaces cannot be created here (they need root and `ip`)."
    lines = [
        "| workers | link connected again after s | evaluations on the cut node | ran elsewhere after, median s "
        "| longest s | late results ignored | promises broken |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cut_ in cuts:
        healed = "never" if cut_.healed_after is None else f"{cut_.healed_after:g}"
        middle = f"{statistics.median(cut_.elsewhere):.1f}" if cut_.elsewhere else "not needed"
        most = f"{max(cut_.elsewhere):.1f}" if cut_.elsewhere else ""
        broken = "; ".join(cut_.complaints) or "none"
        lines.append(f"| {cut_.kind} | {healed} | {cut_.behind} | {middle} | {most} | {cut_.late} | {broken} |")
    return "\n".join(lines)


def _running_on(node: str, notes: Path) -> list[Execution]:
    return [execution for execution in executions(notes) if execution.node == node and execution.ended is None]


def _ip(*arguments: str) -> None:
    """Run `ip` with these arguments. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], capture_output=True, check=True)
