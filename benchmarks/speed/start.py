"""Seconds until all workers of a campaign evaluate, and the seconds that Ray itself needs for as
many processes."""

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.speed.rows import Answer
from orchestrator.campaign.events import TrialSucceeded
from orchestrator.store.runs import open_run

RAY_IS_UP = "evaluating on a local Ray"  # in a line that `bbkb run` prints
_OBJECTIVE = "import time\ndef wait(x):\n    time.sleep(5.0)\n    return x\n"  # longer than the others need to start
_NEEDED = ["workers.on_ray.worker_actor", "objectives.external"]


def start(workers: int) -> Answer:
    """Seconds from Ray's start until `workers` processes run: empty actors of Ray, actors that
    import the modules of an evaluation, and the evaluations of a campaign."""
    return {"bare": _actors(workers, []), "importing": _actors(workers, _NEEDED), "campaign": _campaign(workers)}


_BARE = """
import importlib, json, sys, time
import ray
from orchestrator.running.coordinator.cluster import connect
workers, modules = json.loads(sys.argv[1])
class Bare:
    def begin(self):
        for name in modules:
            importlib.import_module(name)
        return time.time()
connect("local", workers, 1.0, 0.0, dashboard=True)
began = time.time()
actors = [ray.remote(Bare).options(num_cpus=1).remote() for _ in range(workers)]
print(json.dumps(sorted(when - began for when in ray.get([actor.begin.remote() for actor in actors]))))
ray.shutdown()
"""


def _actors(workers: int, modules: list[str]) -> list[float]:
    """The times (s) at which each of `workers` actors had imported these modules."""
    done = subprocess.run(
        [sys.executable, "-c", _BARE, json.dumps([workers, modules])], check=True, capture_output=True, text=True
    )
    seconds: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return seconds


def _campaign(workers: int) -> list[float]:
    """The times (s) at which the first evaluations of a campaign began."""
    with TemporaryDirectory() as folder:
        with begin_campaign(Path(folder), workers) as process:
            assert process.stdout is not None
            is_up = next(time.time() for line in process.stdout if line.startswith(RAY_IS_UP))
            process.stdout.read()
        return [start - is_up for start in begun_attempts(Path(folder))]


def begin_campaign(folder: Path, workers: int) -> "subprocess.Popen[str]":
    """Start `bbkb run` in `folder`, with an evaluation of five seconds for each worker."""
    settings: dict[str, Any] = {
        "name": "start",
        "objective": {"callable": f"{folder}/objective.py:wait"},
        "space": {"x": {"low": 0.0, "high": 1.0}},
        "strategy": {"name": "bbkb"},
        "budget": {"evaluations": workers},
        "workers": {"count": workers},
        "runs": str(folder),
        "run": "start",
    }
    (folder / "objective.py").write_text(_OBJECTIVE, encoding="utf-8")
    file = folder / "campaign.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-u", "-m", "orchestrator", "run", str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def begun_attempts(folder: Path) -> list[float]:
    """Return when each evaluation of the campaign in `folder` began, ascending, in seconds of the
    clock."""
    events = open_run(folder / "start").events()
    return sorted(event.started for event in events if isinstance(event, TrialSucceeded))
