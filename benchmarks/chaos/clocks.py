"""`python -m benchmarks.chaos.clocks`: a campaign on two nodes, one of which has the wrong time.

A `sitecustomize` shifts `time.time` in the Python of that node's workers, which is the only clock
that this software reads there. (libfaketime would also shift the clock of Ray's own processes,
whose waits then fail with EINVAL.) Exit code 1 when a result was lost or recorded twice, or when
its times are not between its dispatch and its arrival.
"""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.course import settings
from benchmarks.chaos.objective import executions
from benchmarks.chaos.processes import wait_for
from orchestrator.campaign.events import TrialSucceeded

_PATIENCE_SECONDS = 240.0
_SHORTEST, _LONGEST = 0.2, 1.0  # of an evaluation, in seconds
_SHIFTED = """
import sys, time
if any("default_worker" in argument for argument in sys.orig_argv):
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + {seconds}
    time.time_ns = lambda: _time_ns() + int({seconds} * 1e9)
"""


def main(
    hours: Annotated[float, typer.Option(help="How far the second node's clock is ahead; negative: behind.")] = 1.0,
    evaluations: Annotated[int, typer.Option(help="Evaluations of the campaign.")] = 40,
    kind: Annotated[str, typer.Option(help="Of workers.")] = "actor",
    out: Annotated[Path, typer.Option(help="Folder for the run and the records of executions.")] = Path("runs/clocks"),
) -> None:
    """Run the campaign, count its results and compare their times."""
    folder = (out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True)
    notes, began = folder / "notes", time.time()
    (folder / "sitecustomize.py").write_text(_SHIFTED.format(seconds=3600.0 * hours))
    shifted = ["env", f"PYTHONPATH={folder}:{Path(__file__).parents[2]}"]
    with Cluster(settings(notes, _SHORTEST, _LONGEST), prefixes={"node1": shifted}) as cluster:
        cluster.start(workers=1)
        campaign = Campaign(cluster, Plan(kind, evaluations, 4, 9), folder)
        wait_for(campaign.is_over, _PATIENCE_SECONDS, "the campaign must end")
        code, unsound = campaign.driver.wait(_PATIENCE_SECONDS), campaign.verify()
        successes = [event for event in campaign.events() if isinstance(event, TrialSucceeded)]
    results = Counter(event.trial for event in successes)
    far = sum(abs(execution.began - began) > abs(1800.0 * hours) for execution in executions(notes))
    wrong = sum(not began <= event.started <= event.finished <= event.time for event in successes)
    print(f"{len(results)} of {evaluations} results, {len(successes) - len(results)} doubled, exit code {code}")
    print(f"{far} evaluations on the wrong clock, {wrong} with a wrong time in the log", unsound)
    sys.exit(bool(unsound or code or wrong or not far or len(successes) != len(results) or len(results) != evaluations))


if __name__ == "__main__":
    typer.run(main)
