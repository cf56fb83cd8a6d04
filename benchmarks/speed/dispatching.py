"""Evaluations that take no time: their number per second, and the memory after them."""

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from bbkb.orchestrator.campaign.events import TrialsDispatched, TrialSucceeded
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.running.coordinator.cluster import connect, disconnect
from bbkb.orchestrator.running.launch import launch
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store import runs

Answer = dict[str, Any]  # a measurement
IN_FLIGHT = 256  # raw tasks in flight: the driver always has results to collect


def noop(x: float) -> float:
    """An objective that takes no time."""
    return -((x - 0.3) ** 2)


def _settings(folder: Path, strategy: Answer, evaluations: int, workers: Mapping[str, object]) -> Settings:
    return from_mapping(
        {
            "name": "noop",
            "objective": {"callable": f"{__name__}:noop", "direction": "maximize"},
            "space": {"x": {"low": 0.0, "high": 1.0}},
            "candidates": {"size": 4096},
            "strategy": strategy,
            "budget": {"evaluations": evaluations},
            "workers": workers,
            "runs": str(folder),
        }
    )


def _new_run(settings: Settings) -> runs.Run:
    return create_run(settings, build(settings))


def throughput(evaluations: int, tuned: int) -> Answer:
    """Evaluations per second on a local Ray with one CPU for each core: raw tasks with many in
    flight, raw tasks with as many in flight as the campaigns have workers, campaigns (store and
    central actor included), Ray Tune."""
    cores = os.cpu_count() or 1
    with TemporaryDirectory() as folder, ExitStack() as ending:
        ending.callback(disconnect, connect("local", cores, 1.0, 0.0, dashboard=False))
        answer: Answer = {"raw": _dispatch_with_ray(evaluations, IN_FLIGHT, 1.0)}
        for workers in (cores, 4 * cores):
            cpus = cores / workers
            answer[f"raw {workers}"] = _dispatch_with_ray(evaluations, workers, cpus)
            for strategy in ("uniform", "bbkb"):
                placement = {"count": workers, "cpus": cpus}
                settings = _settings(Path(folder), {"name": strategy}, evaluations, placement)
                answer[f"{strategy} {workers}"] = _campaign(settings)
        answer["raw again"] = _dispatch_with_ray(evaluations, IN_FLIGHT, 1.0)
        answer["tune"] = _tune(tuned, cores, Path(folder))
    return answer


def _dispatch_with_ray(evaluations: int, in_flight: int, cpus: float) -> float:
    import ray

    task: Any = ray.remote(noop).options(num_cpus=cpus, max_retries=0)
    ray.get([task.remote(0.5) for _ in range(64)])  # so that processes have started
    running: list[Any] = []
    began, remaining = time.perf_counter(), evaluations
    while remaining or running:
        starting = min(remaining, in_flight - len(running))
        running += [task.remote(0.5) for _ in range(starting)]
        remaining -= starting
        ready, running = ray.wait(running, num_returns=1)
        ended, running = ray.wait(running, num_returns=len(running), timeout=0) if running else ([], running)
        ray.get(ready + ended)
    return evaluations / (time.perf_counter() - began)


def _campaign(settings: Settings) -> float:
    """Seconds from the first dispatch to the last stored result, by the log."""
    run = _new_run(settings)
    with open(os.devnull, "w", encoding="utf-8") as silence:
        outcome, reason = launch(run, settings, Console(file=silence), address=None)
    if outcome != "finished":
        raise RuntimeError(f"{run.folder} {outcome}: {reason}")
    events = run.events()
    first = next(event.time for event in events if isinstance(event, TrialsDispatched))
    ends = [event.time for event in events if isinstance(event, TrialSucceeded)]
    skipped = len(ends) // 10  # worker processes are starting
    return (len(ends) - skipped) / (ends[-1] - (ends[skipped - 1] if skipped else first))


def _tune(evaluations: int, cores: int, folder: Path) -> float:
    """Evaluations per second of Ray Tune with reused actors and without loggers."""
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    from ray import tune

    def trainable(config: Answer) -> None:
        tune.report({"value": noop(config["x"])})

    tuner = tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(num_samples=evaluations, reuse_actors=True, max_concurrent_trials=cores),
        run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
    )
    began = time.perf_counter()
    tuner.fit()
    return evaluations / (time.perf_counter() - began)


def memory(strategy: str, counts: list[int]) -> Answer:
    """Resident memory (MiB) of the process with strategy and store after these evaluations."""
    memory_by_count: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        placement = {"executor": "simulated", "count": 32, "simulation": {"sigma": 0.5}}
        options = {"bbkb": {"refresh_growth": 1e9}}.get(strategy, {})
        settings = _settings(Path(folder), {"name": strategy, **options}, counts[-1], placement)

        def note_memory(status: Status) -> None:
            for count in counts:
                if status.trials.done >= count and str(count) not in memory_by_count:
                    resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
                    memory_by_count[str(count)] = resident * os.sysconf("SC_PAGE_SIZE") / 2**20

        open_session(_new_run(settings), settings, note_memory).run()
    return {"mebibytes": memory_by_count}
