"""The start and the end of `bbkb run`, and short commands: `python -m benchmarks.speed.start`.

Prints the median seconds, measured alternately, and those of starting Ray and of importing numpy."""

import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bbkb.orchestrator.campaign.events import TrialSucceeded
from bbkb.orchestrator.store.runs import open_run

HERE = Path(__file__).parents[2]
BARE = """
import ray, time; ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
class Actor:
    def time(self): return time.time()
actors = [ray.remote(Actor).options(num_cpus=0.5).remote() for _ in range(4)]
print(*sorted(ray.get([actor.time.remote() for actor in actors])))
"""


def _python(checkout: Path, folder: str, *arguments: str) -> tuple[float, float, str]:
    """Return when a Python process began and ended, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    began = time.time()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return began, time.time(), done.stdout


def _campaign(checkout: Path, folder: str) -> dict[str, float]:
    """Run the quickstart, then the commands that show its run."""
    file = str(checkout / "configs" / "quickstart.yaml")
    began, ended, _ = _python(checkout, folder, "-m", "bbkb", "run", file, "--run", "quick")
    events = open_run(Path(folder, "runs", "quick")).events()
    trials = [event for event in events if isinstance(event, TrialSucceeded)]
    first = {trial.worker: trial.started - began for trial in sorted(trials, key=lambda trial: -trial.started)}
    last = max(trial.finished for trial in trials)
    found = {"first evaluation": min(first.values()), "four workers": sorted(first.values())[3]}
    found |= {"last result to the end": ended - last, "whole command": ended - began}
    for command in (["--help"], ["list"], ["status", "runs/quick"], ["best", "runs/quick"]):
        began, ended, _ = _python(checkout, folder, "-m", "bbkb", *command)
        found[f"bbkb {command[0]}"] = ended - began
    return found


def _floor(folder: str) -> dict[str, float]:
    began, ended, said = _python(HERE, folder, "-c", BARE)
    times = [float(text) - began for text in said.split()]
    found = {"first evaluation": times[0], "four workers": times[-1], "whole command": ended - began}
    began, ended, _ = _python(HERE, folder, "-c", "import numpy")
    return {**found, "import numpy": ended - began}


def main(repeats: int = 10, against: Annotated[Path | None, typer.Option(help="Another checkout.")] = None) -> None:
    """Measure alternately, and print a table."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    checkouts = {"here": HERE} | ({} if against is None else {"against": against.resolve()})
    for _ in range(repeats):
        for name in (*checkouts, "bare Ray"):
            with TemporaryDirectory() as folder:
                measured = _campaign(checkouts[name], folder) if name in checkouts else _floor(folder)
            for what, value in measured.items():
                found[name, what].append(value)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, medians of {repeats} and ranges")
    for (name, what), values in found.items():
        print(f"{name:10} {what:24} {median(values):7.2f}  {min(values):.2f} to {max(values):.2f}")


if __name__ == "__main__":
    typer.run(main)
