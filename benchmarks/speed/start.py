"""The start and the end of `bbkb run`, and short commands: `python -m benchmarks.speed.start`.

Prints medians of seconds from the start of the process, measured in turns, with those of a Ray that
only starts four actors, and of an import of numpy. `--against` names another checkout.
"""

import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from orchestrator.campaign.events import TrialSucceeded
from orchestrator.store.runs import open_run

REPOSITORY = Path(__file__).parents[2]
BARE = """
import ray, time
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
class Actor:
    def time(self):
        return time.time()
actors = [ray.remote(Actor).options(num_cpus=0.5).remote() for _ in range(4)]
print(*sorted(ray.get([actor.time.remote() for actor in actors])))
"""
Seconds = dict[str, float]


def _python(checkout: Path, folder: str, *arguments: str) -> tuple[float, float, str]:
    """Return when a Python process began and ended, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "RAY_AUTH_MODE": "token"}
    command = [sys.executable, *arguments]
    began = time.time()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return began, time.time(), done.stdout


def _campaign(checkout: Path, folder: str) -> Seconds:
    """Run the quickstart, then the commands that show its run."""
    file = str(checkout / "configs" / "quickstart.yaml")
    began, ended, _ = _python(checkout, folder, "-m", "bbkb", "run", file, "--run", "quick")
    run = Path("runs", "quick")
    trials = [event for event in open_run(Path(folder, run)).events() if isinstance(event, TrialSucceeded)]
    first: Seconds = {}
    for trial in sorted(trials, key=lambda trial: trial.started):
        first.setdefault(trial.worker, trial.started - began)
    last = max(trial.finished for trial in trials)
    found = {"first evaluation": min(first.values()), "all workers": sorted(first.values())[3]}
    found |= {"processes": len(first), "last result to the end": ended - last, "whole command": ended - began}
    for command in (["--help"], ["list"], ["status", str(run)], ["best", str(run)]):
        began, ended, _ = _python(checkout, folder, "-m", "bbkb", *command)
        found[f"bbkb {command[0]}"] = ended - began
    return found


def _floor(folder: str) -> Seconds:
    began, ended, said = _python(REPOSITORY, folder, "-c", BARE)
    times = [float(text) - began for text in said.split()]
    numpy_began, numpy_ended, _ = _python(REPOSITORY, folder, "-c", "import numpy")
    found = {"first evaluation": times[0], "all workers": times[-1], "whole command": ended - began}
    return {**found, "import numpy": numpy_ended - numpy_began}


def main(
    repeats: Annotated[int, typer.Option(min=1)] = 10,
    against: Annotated[Path | None, typer.Option(help="Another checkout, measured in turns.")] = None,
) -> None:
    """Measure and print a table."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    checkouts = {"here": REPOSITORY} | ({} if against is None else {"against": against.resolve()})
    for _ in range(repeats):
        for name in (*checkouts, "bare Ray"):
            with TemporaryDirectory() as folder:
                measured = _campaign(checkouts[name], folder) if name in checkouts else _floor(folder)
            for what, value in measured.items():
                found[name, what].append(value)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, medians of {repeats}")
    for (name, what), seconds in found.items():
        print(f"{name:10} {what:24} {statistics.median(seconds):7.2f}  ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    typer.run(main)
