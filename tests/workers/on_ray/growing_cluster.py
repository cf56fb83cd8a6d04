"""A campaign on a cluster that grows from 2 to 6 slots and shrinks to 3: run by `test_places`.

All nodes are on this machine (Ray's multi-node test harness), so evaluations sleep. The steady
state begins when six evaluations run at the same time for the first time, and ends one evaluation
before three nodes are removed.
"""

import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from bbkb.orchestrator.campaign.events import (
    Event,
    PlacesChanged,
    SessionClosed,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.runs import Run

SMALL, LARGE, LEFT = 2, 6, 3  # slots at the beginning, after the growth, and at the end
SECONDS = 1.0  # of an evaluation
STEADY = 48  # evaluations on six places
_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def sleep_then_return(x: float) -> dict[str, float]:
    """Sleep; return `x`, the index of the worker actor, and its process id."""
    time.sleep(SECONDS)
    name = ray.get_runtime_context().get_actor_name() or ""
    return {"value": x, "pid": os.getpid(), "number": int(name.rpartition(" ")[2])}


def measure(folder: Path) -> dict[str, object]:
    """Run 8 evaluations on two slots, `STEADY` on six, and 12 on three."""
    head = {**_NODE, "num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(**_NODE) for _ in range(SMALL)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        run, session = _start(folder)
        thread = threading.Thread(target=session.run)
        thread.start()
        _wait_for_results(run, 8)
        nodes.extend(cluster.add_node(**_NODE) for _ in range(LARGE - SMALL))
        _wait_for_places(run, LARGE)
        _wait_for_results(run, STEADY)
        shrunk = time.time()
        for node in nodes[:LEFT]:
            cluster.remove_node(node, allow_graceful=False)
        _wait_for_places(run, LEFT)
        _wait_for_results(run, 12)
        session.driver.stop()
        thread.join()
        return {"first": session.opened.slots, **_summary(run.events(), shrunk - SECONDS)}
    finally:
        ray.shutdown()
        cluster.shutdown()


def _start(folder: Path) -> tuple[Run, Any]:
    settings = from_mapping(
        {
            "name": "places",
            "objective": {"callable": f"{Path(__file__)}:sleep_then_return", "direction": "maximize"},
            "space": {"x": {"low": 0.0, "high": 1.0}},
            "candidates": {"size": 1024},
            "strategy": {"name": "uniform"},
            "budget": {"evaluations": 1000},
            "workers": {"count": LARGE, "kind": "actor"},
            "runs": str(folder),
        }
    )
    parts = build(settings)
    run = create_run(settings, parts)
    return run, open_session(run, settings)


def _summary(events: Sequence[Event], until: float) -> dict[str, object]:
    """Summarize a log whose steady state ends at `until` (wall-clock seconds)."""
    succeeded = [event for event in events if isinstance(event, TrialSucceeded)]
    return {
        "slots": [event.slots for event in events if isinstance(event, PlacesChanged)],
        "failures": [event.failure for event in events if isinstance(event, TrialFailed)],
        "processes": len({trial.metrics["pid"] for trial in succeeded}),
        "numbers": sorted({int(trial.metrics["number"]) for trial in succeeded}),
        "least_in_flight": min(_in_flight(events, _first_full(succeeded), until)),
        "reason": next(event.reason for event in events if isinstance(event, SessionClosed)),
    }


def _first_full(succeeded: Sequence[TrialSucceeded]) -> float:
    """Return the time at which six evaluations ran at the same time for the first time."""
    begun = [(trial.started, 1) for trial in succeeded]
    ended = [(trial.finished, -1) for trial in succeeded]
    changes = sorted(begun + ended)
    running = accumulate(change for _, change in changes)
    return next(when for (when, _), count in zip(changes, running, strict=True) if count == LARGE)


def _in_flight(events: Sequence[Event], since: float, until: float) -> list[int]:
    """Count the attempts in flight after each dispatch from `since` to `until`."""
    running = 0
    counts = []
    for event in events:
        if isinstance(event, TrialsDispatched):
            running += len(event.attempts)
            counts += [running] * (since <= event.time <= until)
        running -= isinstance(event, TrialSucceeded | TrialFailed)
    return counts


def _wait_for_results(run: Run, count: int) -> None:
    least = _results(run) + count
    while _results(run) < least:
        time.sleep(0.2)


def _results(run: Run) -> int:
    return sum(isinstance(event, TrialSucceeded) for event in run.events())


def _wait_for_places(run: Run, count: int) -> None:
    def slots() -> int:
        changed = [event.slots for event in run.events() if isinstance(event, PlacesChanged)]
        return changed[-1] if changed else SMALL

    while slots() != count:
        time.sleep(0.1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as runs_folder:
        found = measure(Path(runs_folder))
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
