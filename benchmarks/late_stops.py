"""How many steps a trial goes on after the report at which its campaign's rule stops it.

    python -m benchmarks.late_stops --seconds 0.05 0.15 1 --rules median asha model
    python -m benchmarks.late_stops --run runs/digits-cnn-20260301-140509

Each campaign runs on Ray in worker actors and in tasks. Its trainings sleep, so that the steps are
equally long; `--run` reads the log of any campaign. The decision is found again in the log: the
state after each single report says whether the rule stops its trial.
"""

import argparse
import logging
import math
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import ray

from objectives.objective import Report
from orchestrator.campaign.events import Event, ReportsArrived, TrialStopped
from orchestrator.campaign.state import CampaignState, is_running, stop_cause
from orchestrator.campaign.training_rule import StopCause
from orchestrator.campaign.transitions import apply
from orchestrator.session.assemble import build, open_session
from orchestrator.session.first_events import first_events
from orchestrator.settings.loading import from_mapping
from orchestrator.store import runs

STEPS = 27


def train(rate: float, seconds: float, report: Report, folder: Path) -> float:
    """Sleep `seconds` for each step; the value after step s is rate · (1 − exp(−s/9))."""
    done = folder / "step.txt"
    for step in range(int(done.read_text()) + 1 if done.exists() else 1, STEPS + 1):
        time.sleep(seconds)
        done.write_text(str(step))
        report(_value(rate, step), step=step)
    return _value(rate, STEPS)


def _value(rate: float, step: int) -> float:
    return rate * (1.0 - math.exp(-step / 9))


def late_steps(events: Iterable[Event]) -> list[int]:
    """Return, for each stop that the campaign decided, how many steps after the deciding report it
    took effect."""
    state = CampaignState()
    decided: dict[int, int] = {}
    late: list[int] = []
    for event in events:
        if isinstance(event, TrialStopped):
            step = decided.pop(event.trial, event.step)
            if event.cause not in (StopCause.FIRST_TRAINING, StopCause.PAUSE):  # their workers end them
                late.append(event.step - step)
        parts = (
            [replace(event, reports=(report,)) for report in event.reports]
            if isinstance(event, ReportsArrived)
            else [event]
        )
        for part in parts:
            state = apply(state, part)
            if isinstance(part, ReportsArrived):
                _note_decision(state, part, decided)
    return late


def _note_decision(state: CampaignState, event: ReportsArrived, decided: dict[int, int]) -> None:
    trial, attempt, step, _ = event.reports[0]
    if is_running(state, trial, attempt) and stop_cause(state, trial) is not None:
        decided.setdefault(trial, step)


def measure(folder: Path, rule: str, kind: str, seconds: float, workers: int, steps: int) -> tuple[list[int], float]:
    """Run a campaign; its late steps, and the share of the workers' time that its steps took."""
    settings = from_mapping(
        {
            "name": "late-stops",
            "objective": {"callable": "benchmarks.late_stops:train"},
            "space": {"rate": {"low": 0.0, "high": 1.0}, "seconds": {"constant": seconds}},
            "candidates": {"size": 1024},
            "budget": {"steps": steps},
            "early_stopping": {"rule": rule} | ({"last_step": STEPS} if rule == "model" else {}),
            "workers": {"count": workers, "kind": kind, "trial_folders": True},
            "runs": str(folder),
        }
    )
    parts = build(settings)
    run = runs.create(settings, first_events(settings, parts.problem.candidates, parts.description), "a benchmark")
    session = open_session(run, settings)
    session.run()
    events = list(run.events())
    ended = [event for event in events if hasattr(event, "started") and hasattr(event, "finished")]
    busy = sum(event.finished - event.started for event in ended)
    reports = sum(len(event.reports) for event in events if hasattr(event, "reports"))
    return late_steps(events), reports * seconds / busy


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.late_stops", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.05, 0.15, 1.0], help="duration of a step")
    parser.add_argument("--rules", nargs="+", default=["median", "model"])
    parser.add_argument("--kinds", nargs="+", default=["task", "actor"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=270, help="budget of each campaign")
    parser.add_argument("--run", type=Path, help="a run's folder: its late steps")
    arguments = parser.parse_args()
    if arguments.run:
        print(_summary(late_steps(runs.open_run(arguments.run).events())))
        return
    ray.init(num_cpus=arguments.workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    print("rule    kind   step     stops  late steps")
    for seconds in arguments.seconds:
        for rule in arguments.rules:
            for kind in arguments.kinds:
                with tempfile.TemporaryDirectory(prefix="bb", ignore_cleanup_errors=True) as folder:
                    late, share = measure(Path(folder), rule, kind, seconds, arguments.workers, arguments.steps)
                where = f"{rule:<7} {kind:<6} {seconds:4g} s"
                print(f"{where}  {_summary(late)}, steps took {share:.0%} of the time", flush=True)


def _summary(late: list[int]) -> str:
    if not late:
        return "    0"
    return f"{len(late):5}  mean {statistics.mean(late):.2f}, largest {max(late)}"


if __name__ == "__main__":
    main()
