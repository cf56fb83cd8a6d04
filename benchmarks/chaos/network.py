"""Nodes in their own network namespaces, and links that are cut: no process ends and no connection
is closed, but packets are lost. Needs root.
"""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bbkb.orchestrator.campaign.events import TrialFailed
from benchmarks.chaos.accounting import account, recorded_executions
from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import CPUS, Cluster
from benchmarks.chaos.course import settings
from benchmarks.chaos.objective import Execution, executions
from benchmarks.chaos.processes import wait_for
from tests.deploy.namespaces import Machines, missing

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


def ray_settings(file: Path) -> dict[str, str]:
    """The environment variables in deploy/ray.env."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))


def cuts(folder: Path, seed: int, kinds: Sequence[str] = ("actor", "task")) -> Iterator[Cut]:
    """Cut a link for 5 s, until after the node was declared dead, and until the end of the
    campaign; each with every kind of worker. Yields nothing if namespaces cannot be created."""
    if missing():
        return
    for kind in kinds:
        for healed in _HEALINGS:
            plan = Plan(kind, _EVALUATIONS, len(_WORKERS) * CPUS, seed)
            yield cut(folder / f"cut-{kind}-{'never' if healed is None else format(healed, 'g')}", plan, healed)


def cut(folder: Path, plan: Plan, healed_after: float | None) -> Cut:
    """One campaign on three nodes, one of which is disconnected while it evaluates."""
    folder.mkdir(parents=True)
    notes, rng = folder / "notes", random.Random(plan.seed)
    env = ray_settings(Path(__file__).parents[2] / "deploy" / "ray.env") | settings(notes, *_SECONDS)
    with ExitStack() as cleared:
        names = ("head", *_WORKERS)
        network = cleared.enter_context(Machines(names, "10.79.0", folder))
        prefixes = {name: network.inside(name) for name in names}
        cluster = cleared.enter_context(Cluster(env, prefixes, network.addresses))
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
        events = campaign.events()
        executed = executions(notes)
        finished = account(plan.evaluations, plan.seeds(), events, executed, ())
        complaints += [
            f"failed for a reason other than a lost node: {event}"
            for event in events
            if isinstance(event, TrialFailed) and event.failure != "node lost"
        ]
        complaints += [f"{finished.twice} recorded twice"] if finished.twice else []
        complaints += [f"bbkb verify: {text}"] if (text := campaign.verify()) else []
    recorded = recorded_executions(events)
    lost = [execution for execution in behind if execution.identity not in recorded]
    later = [[other for other in executed if other.seed == one.seed and other.began > moment] for one in lost]
    seconds = tuple(min(other.began for other in others) - moment for others in later if others)
    late = sum(execution.ended is not None for execution in executed if execution.identity not in recorded)
    return Cut(plan.kind, healed_after, len(behind), seconds, late, tuple(complaints))


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
