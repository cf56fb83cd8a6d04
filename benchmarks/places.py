"""Worker actors on a cluster that grows from 2 to 6 places and shrinks to 3 during a campaign.

Measures the utilisation, the number of worker processes, and the time between two evaluations of a
worker:

    python -m benchmarks.places --seconds 2

All nodes are on this machine (Ray's multi-node test harness), so evaluations sleep. The steady
state begins when six evaluations run at the same time for the first time. It ends one evaluation
before three nodes are removed, because the log has no times of the evaluations that run at that
moment.
"""

import argparse
import json
import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from orchestrator.campaign.events import (
    Event,
    PlacesChanged,
    SessionClosed,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from orchestrator.session.assemble import build, open_session
from orchestrator.session.first_events import first_events
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.store import runs
from orchestrator.store.runs import Run

SMALL, LARGE, LEFT = 2, 6, 3  # places at the beginning, after the growth, and at the end
_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


def sleep_then_return(x: float, seconds: float) -> dict[str, float]:
    """An evaluation that sleeps for `seconds`; returns `x`, the number of the worker actor and its
    process id."""
    time.sleep(seconds)
    name = ray.get_runtime_context().get_actor_name() or ""
    return {"value": x, "pid": os.getpid(), "number": int(name.rpartition(" ")[2])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The course of a campaign."""

    first: int
    slots: tuple[int, ...]  # the number of places after each change
    succeeded: int
    failures: tuple[str, ...]
    processes: int
    numbers: tuple[int, ...]
    utilisation: float
    gaps: tuple[float, ...]  # seconds between two evaluations of a worker
    least_in_flight: int  # the smallest number of evaluations in flight after a dispatch in the steady state
    reason: str


def measure(folder: Path, seconds: float, steady: int) -> Course:
    """Run a campaign: 8 evaluations of `seconds` on two places, `steady` on six, 12 on three."""
    cluster = Cluster(initialize_head=True, head_node_args={**_NODE, "num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(**_NODE) for _ in range(SMALL)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        settings = _settings(folder, seconds)
        parts = build(settings)
        events = first_events(settings, parts.problem.candidates, parts.description)
        run = runs.create(settings, events, "a benchmark")
        session = open_session(run, settings)
        thread = threading.Thread(target=session.run)
        thread.start()
        _wait_for_results(run, 8)
        nodes.extend(cluster.add_node(**_NODE) for _ in range(LARGE - SMALL))
        _wait_for_places(run, LARGE)
        _wait_for_results(run, steady)
        shrunk = time.time()
        for node in nodes[:LEFT]:
            cluster.remove_node(node, allow_graceful=False)
        _wait_for_places(run, LEFT)
        _wait_for_results(run, 12)
        session.driver.stop()
        thread.join()
        return course_of(run.events(), session.opened.slots, shrunk - seconds)
    finally:
        ray.shutdown()
        cluster.shutdown()


def course_of(events: Sequence[Event], first: int, until: float) -> Course:
    """The course in a log, with the steady state until `until` (wall-clock seconds)."""
    succeeded = [event for event in events if isinstance(event, TrialSucceeded)]
    since = _first_full(succeeded)
    busy = sum(max(0.0, min(trial.finished, until) - max(trial.started, since)) for trial in succeeded)
    return Course(
        first=first,
        slots=tuple(event.slots for event in events if isinstance(event, PlacesChanged)),
        succeeded=len(succeeded),
        failures=tuple(event.failure for event in events if isinstance(event, TrialFailed)),
        processes=len({trial.metrics["pid"] for trial in succeeded}),
        numbers=tuple(sorted({int(trial.metrics["number"]) for trial in succeeded})),
        utilisation=busy / (LARGE * (until - since)),
        gaps=_gaps([trial for trial in succeeded if since <= trial.started and trial.finished <= until]),
        least_in_flight=min(_count_in_flight(events, since, until)),
        reason=next(event.reason for event in events if isinstance(event, SessionClosed)),
    )


def _first_full(succeeded: Sequence[TrialSucceeded]) -> float:
    """The time at which all places of the large cluster were busy for the first time."""
    changes = sorted([(trial.started, 1) for trial in succeeded] + [(trial.finished, -1) for trial in succeeded])
    running = accumulate(change for _, change in changes)
    return next(when for (when, _), count in zip(changes, running, strict=True) if count == LARGE)


def _gaps(succeeded: Sequence[TrialSucceeded]) -> tuple[float, ...]:
    lanes: dict[str, list[TrialSucceeded]] = {}
    for trial in sorted(succeeded, key=lambda trial: trial.started):
        lanes.setdefault(trial.worker, []).append(trial)
    return tuple(sorted(after.started - before.finished for lane in lanes.values() for before, after in pairwise(lane)))


def _count_in_flight(events: Sequence[Event], since: float, until: float) -> list[int]:
    """The number of running attempts after each dispatch from `since` to `until`."""
    running, gaps = 0, []
    for event in events:
        if isinstance(event, TrialsDispatched):
            running += len(event.attempts)
            gaps += [running] * (since <= event.time <= until)
        running -= isinstance(event, TrialSucceeded | TrialFailed)
    return gaps


def _settings(folder: Path, seconds: float) -> Settings:
    return from_mapping(
        {
            "name": "places",
            "objective": {"callable": "benchmarks.places:sleep_then_return"},
            "space": {"x": {"low": 0.0, "high": 1.0}, "seconds": {"constant": seconds}},
            "candidates": {"size": 1024},
            "strategy": {"name": "uniform"},
            "budget": {"evaluations": 1000},
            "workers": {"count": LARGE, "kind": "actor"},
            "runs": str(folder),
        }
    )


def _wait_for_results(run: Run, count: int) -> None:
    least = _results(run) + count
    while _results(run) < least:
        time.sleep(0.2)


def _results(run: Run) -> int:
    return sum(isinstance(event, TrialSucceeded) for event in run.events())


def _wait_for_places(run: Run, count: int) -> None:
    while next((event.slots for event in reversed(run.events()) if isinstance(event, PlacesChanged)), SMALL) != count:
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.places", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of one evaluation")
    parser.add_argument("--steady", type=int, default=90, help="evaluations on six places")
    parser.add_argument("--out", type=Path, help="JSON file for all results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as folder:
        course = measure(Path(folder), arguments.seconds, arguments.steady)
    print(f"utilisation in steady state on {LARGE} places: {course.utilisation:.1%}")
    if course.gaps:
        print(
            f"between two evaluations of a worker: median {1000 * statistics.median(course.gaps):.0f} ms, "
            f"longest {1000 * course.gaps[-1]:.0f} ms"
        )
    print(
        f"{course.processes} worker processes, numbers up to {course.numbers[-1]}, for {course.succeeded} evaluations"
    )
    print(f"failures: {', '.join(course.failures) or 'none'}")
    if arguments.out:
        arguments.out.write_text(json.dumps(asdict(course)), encoding="utf-8")


if __name__ == "__main__":
    main()
