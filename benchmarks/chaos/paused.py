"""`python -m benchmarks.chaos.paused`: a coordinator on Ray gets SIGSTOP, `bbkb resume` takes over
its run from another cluster in its own process namespace (root only), and the coordinator gets
SIGCONT long after its session has ended.

Exit code 1 when a result was lost or recorded twice, or when the first coordinator did not end by
itself.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import Cluster, Local
from benchmarks.chaos.course import settings
from benchmarks.chaos.objective import executions
from benchmarks.chaos.processes import wait_for
from orchestrator.campaign.events import TrialSucceeded

_PATIENCE_SECONDS = 180.0  # for a cluster to start, a takeover, and a campaign to end
# On its own machine a stopped process still exists, so a resume is refused. A namespace counts as
# another machine.
_ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_SHORTEST, _LONGEST = 0.5, 2.0  # of an evaluation, in seconds


def main(
    seconds: Annotated[float, typer.Option(help="How long the coordinator is stopped.")] = 60.0,
    evaluations: Annotated[int, typer.Option(min=12, help="Evaluations of the campaign.")] = 120,
    kind: Annotated[str, typer.Option(help="Of workers.")] = "actor",
    out: Annotated[Path, typer.Option(help="Folder for the run and the records of executions.")] = Path("runs/paused"),
) -> None:
    """Stop the coordinator, take over its run, continue the coordinator, and count the results."""
    folder = (out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True)
    notes = folder / "notes"
    environment = settings(notes, _SHORTEST, _LONGEST)
    with Cluster(environment) as first, Local(environment) as second:
        first.start(workers=0)
        campaign = Campaign(first, Plan(kind, evaluations, 2, 5), folder)
        wait_for(lambda: campaign.results() >= evaluations // 6, _PATIENCE_SECONDS, "the campaign must make progress")
        stopped = wait_for(campaign.coordinator, _PATIENCE_SECONDS, "the campaign must be held")
        os.kill(stopped, signal.SIGSTOP)
        began = time.monotonic()
        with (folder / "said-by-the-second").open("wb") as output:
            command = [*_ELSEWHERE, *second.command("head", "-m", "orchestrator", "resume", str(campaign.run.folder))]
            taker = subprocess.Popen(command, cwd=folder, env=second.environment(), stdout=output, stderr=output)
        wait_for(lambda: _epoch(campaign) > 1, _PATIENCE_SECONDS, "the run must be taken over")
        print(f"taken over {time.monotonic() - began:.0f} s after SIGSTOP", flush=True)
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        before = campaign.results()
        os.kill(stopped, signal.SIGCONT)
        print(f"SIGCONT after {time.monotonic() - began:.0f} s, at {before} of {evaluations} results", flush=True)
        codes = campaign.driver.wait(_PATIENCE_SECONDS), taker.wait(_PATIENCE_SECONDS)
        wait_for(lambda: not first.mark.is_on(stopped), _PATIENCE_SECONDS, "the first coordinator must end")
        complaints = _complaints(campaign)
        print(f"exit codes {codes[0]} and {codes[1]}; {len(executions(notes))} executions", *complaints, sep="\n")
        print(campaign.said())
    sys.exit(bool(complaints or codes != (1, 0)))


def _epoch(campaign: Campaign) -> int:
    with campaign.run.store() as store:
        return store.holding(campaign.run.name).epoch


def _complaints(campaign: Campaign) -> list[str]:
    """A sentence for each promise that was broken."""
    counted = Counter(event.trial for event in campaign.events() if isinstance(event, TrialSucceeded))
    lost, doubled = campaign.plan.evaluations - len(counted), sum(count > 1 for count in counted.values())
    print(f"{len(counted)} results, {lost} lost, {doubled} doubled", flush=True)
    return [*(["results were lost or recorded twice"] if lost or doubled else []), *filter(None, [campaign.verify()])]


if __name__ == "__main__":
    typer.run(main)
