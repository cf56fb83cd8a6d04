"""`python -m benchmarks.chaos`: campaigns on a real Ray cluster of three nodes, killed at random;
exit code 1 when a promise was broken. `--into FOLDER` continues with an earlier run's folder, and
reports on both."""

import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.chaos.campaign import Plan
from benchmarks.chaos.cluster import CPUS, Cluster
from benchmarks.chaos.course import Course, Monkey, Result, Setting, random_strikes, settings
from benchmarks.chaos.network import cuts, cuts_report
from benchmarks.chaos.reporting import keep, line, read_earlier, report
from tests.postgresql import Server

BROKEN = 1
_SHORTEST, _LONGEST = 0.05, 2.0  # of an evaluation, in seconds

Kills = Annotated[int, typer.Option(min=0, help="The number of SIGKILLs; campaigns are started until all are used.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the choice of processes and times, and of the campaigns.")]
Kind = Annotated[str, typer.Option(help="actor, auto, task, gang and train, separated by commas: used in turn.")]
Evaluations = Annotated[int, typer.Option(min=1, help="Evaluations of one campaign.")]
Pause = Annotated[tuple[float, float], typer.Option(help="Shortest and longest seconds between two strikes.")]
Store = Annotated[
    str, typer.Option(help="sqlite, the URL of a database, or postgresql: a new server, which is killed, too.")
]
Nodes = Annotated[int, typer.Option(min=2, help="Nodes of the cluster, with the head; each has two logical CPUs.")]
Network = Annotated[bool, typer.Option(help="Cut links between nodes in network namespaces, too (root only).")]
Into = Annotated[Path | None, typer.Option(help="Folder of an earlier run to continue, instead of a new one.")]


def main(
    kills: Kills = 200,
    seed: Seed = 0,
    kind: Kind = "actor,auto,task",
    evaluations: Evaluations = 300,
    pause: Pause = (2.0, 6.0),
    store: Store = "sqlite",
    minutes: Annotated[float, typer.Option(help="Start no campaign after this many minutes.")] = 60.0,
    nodes: Nodes = 3,
    network: Network = True,
    out: Annotated[Path, typer.Option(help="Folder for runs, notes and the report.")] = Path("runs/chaos"),
    into: Into = None,
) -> None:
    """Kill processes of campaigns; count lost and repeated evaluations, and recovery times."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # all processes are ended
    folder = (into or out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results, begun = read_earlier(folder), len(list(folder.glob("campaign-*.yaml")))
    with ExitStack() as cleared:
        server = cleared.enter_context(Server()) if store == "postgresql" else None
        url = store if server is None else server.url
        plans = (
            Plan(name, evaluations, nodes * CPUS, 1000 * seed + number, url)
            for number, name in islice(enumerate(cycle(kind.split(","))), begun, None)
        )
        rng = random.Random(f"{seed} {begun}")
        for result in _courses(plans, kills, pause, rng, folder, time.monotonic() + 60.0 * minutes, nodes, server):
            results.append(result)
            keep(folder, result)
            print(line(result), flush=True)
            (folder / "report.md").write_text(report(results) + "\n")
    texts = [report(results)] if results else []
    is_broken = any(result.complaints for result in results)
    if network:
        outcomes = []
        for cut in cuts(folder, seed):
            outcomes.append(cut)
            print(cuts_report(outcomes[-1:]).splitlines()[-1], flush=True)
        texts.append(cuts_report(outcomes))
        is_broken = is_broken or any(cut.complaints for cut in outcomes)
    text = "\n\n".join(texts)
    (folder / "report.md").write_text(text + "\n")
    print(f"\n{text}\n\nreport {folder / 'report.md'}")
    sys.exit(BROKEN if is_broken else 0)


def _courses(
    plans: Iterator[Plan],
    kills: int,
    pause: tuple[float, float],
    rng: random.Random,
    folder: Path,
    deadline: float,
    nodes: int,
    server: Server | None,
) -> Iterator[Result]:
    """One campaign after the other on one cluster, and on a new one if a campaign did not end."""
    notes, remaining = folder / "notes", kills
    while remaining > 0 and time.monotonic() < deadline:
        with ExitStack() as cleared:
            cluster = cleared.enter_context(Cluster(settings(notes, _SHORTEST, _LONGEST)))
            cluster.start(workers=nodes - 1)
            monkey, is_hung = Monkey(cluster, rng, notes, server), False
            while remaining > 0 and not is_hung and time.monotonic() < deadline:
                course = Course(cluster, monkey, rng, folder, notes)
                result = course.run(Setting(next(plans), pause, remaining), random_strikes(rng, server is not None))
                remaining -= sum(result.account.kills.values())
                is_hung = result.is_hung
                yield result


if __name__ == "__main__":
    typer.run(main)
