"""One campaign on a cluster whose processes are killed: its commands, and its log as it grows."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bbkb.orchestrator.campaign.events import Event, SessionClosed, TrialSucceeded
from bbkb.orchestrator.engine.engine import TRIALS
from bbkb.orchestrator.errors import BbkbError
from bbkb.orchestrator.store.lease import Identity, Watch
from bbkb.orchestrator.store.runs import Run, open_run
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.processes import wait_for

_CREATED_SECONDS = 120.0
_CHECKED_SECONDS = 120.0

_GROUPS = """
import json, logging, sys
import ray
from bbkb.workers.on_ray.gangs import groups_named
ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.ERROR)
print(json.dumps(list(groups_named("bbkb "))))
"""

_SECONDS = 60.0  # of an evaluation, at most
_TRAINER_SECONDS = 150.0  # a trainer starts five processes
_KINDS = {
    "gang": f"kind: actor, machines: 2, timeout_seconds: {_SECONDS}",
    "train": f"kind: actor, machines: 2, ray_train: true, timeout_seconds: {_TRAINER_SECONDS}",
}
_FILE = """
name: chaos
seed: {seed}
objective: {{callable: "benchmarks.chaos.objective:{function}", direction: maximize}}
space: {{x: {{low: 0.0, high: 1.0}}}}
candidates: {{size: 512}}
strategy: {{name: bbkb, kernel: {{name: rbf, lengthscale: 0.5}}, regularization: 0.5, ratio_threshold: 3}}
budget: {{evaluations: {evaluations}}}
workers: {{count: {workers}, {kind}}}
store: {store}
runs: {runs}
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a campaign. `kind`: of workers; `gang`: worker actors on two machines;
    `train`: a trainer of Ray Train with two workers. `store`: sqlite or a database's URL."""

    kind: str
    evaluations: int
    workers: int
    seed: int
    store: str = "sqlite"

    def seeds(self) -> Mapping[int, int]:
        """The trial of each seed that an evaluation of this campaign can have."""
        streams = ((trial, np.random.default_rng([self.seed, TRIALS, trial])) for trial in range(self.evaluations))
        return {int(rng.integers(2**31)): trial for trial, rng in streams}


class Campaign:
    """A campaign that `bbkb run` has started: the processes that run or watch it, and the log.

    Its processes are found by the lease in the store and by the mark of the cluster.
    """

    def __init__(self, cluster: Cluster, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self._cluster = cluster
        self._folder = folder
        self._events: list[Event] = []
        self._holds = Watch()
        self._count = 0  # of commands so far
        runs = folder / f"runs-{plan.kind}-{plan.seed}"
        file = folder / f"campaign-{plan.kind}-{plan.seed}.yaml"
        file.write_text(
            _FILE.format(
                seed=plan.seed,
                evaluations=plan.evaluations,
                workers=plan.workers,
                function="evaluate_with_trainer" if plan.kind == "train" else "evaluate",
                kind=_KINDS.get(plan.kind, f"kind: {plan.kind}, timeout_seconds: {_SECONDS}"),
                store=plan.store,
                runs=runs,
            )
        )
        self._drives: list[tuple[subprocess.Popen[bytes], Path]] = []  # `run`s and `resume`s, with their output
        self._drive("run", str(file))
        self.run: Run = wait_for(lambda: _find_run(runs), _CREATED_SECONDS, f"{file} must become a run")

    def events(self) -> list[Event]:
        """The log so far."""
        with self.run.store() as store:
            self._events += store.read(self.run.name, after=len(self._events))
        return self._events

    def results(self) -> int:
        """The number of successful trials in the log so far."""
        return sum(isinstance(event, TrialSucceeded) for event in self.events())

    def is_over(self) -> bool:
        """Whether the last session has finished the campaign."""
        events = self.events()
        return bool(events) and isinstance(events[-1], SessionClosed) and events[-1].outcome == "finished"

    def coordinator(self) -> int | None:
        """The central actor's process, which holds the lease; None while there is none."""
        with self.run.store() as store:
            identity = Identity.read(store.holding(self.run.name).identity)
        return identity.pid if identity is not None and self._cluster.mark.is_on(identity.pid) else None

    def is_held(self) -> bool:
        """Whether a process holds the lease, as `bbkb attach` determines it."""
        with self.run.store() as store:
            return self._holds.is_held(store.holding(self.run.name)) is not False

    def watcher(self) -> int | None:
        """The process that runs or watches the campaign; None if there is none."""
        return self.driver.pid if self.driver.poll() is None else None

    def exit_code(self) -> int:
        """The exit code of the last `run` or `resume`.

        An `attach` does not count: it exits when the coordinator is dead at that moment. A `resume`
        that was rejected because a process runs the campaign does not count either: the restart of
        the coordinator took longer than this harness waits.
        """
        ended = [(process.wait(), output) for process, output in self._drives]
        return [code for code, output in ended if not _is_refused(code, output)][-1]

    def attach(self) -> None:
        """Start `bbkb attach`, after the process that ran or watched the campaign has ended."""
        self.driver, _ = self._command("attach", str(self.run.folder))

    def resume(self) -> None:
        """Start `bbkb resume`, when no process runs the campaign."""
        self._drive("resume", str(self.run.folder))

    def verify(self) -> str:
        """The complaints of `bbkb verify`; empty for an intact log."""
        done = self._ask("-m", "bbkb", "verify", str(self.run.folder))
        return done.stdout + done.stderr if done.returncode else ""

    def groups(self) -> list[str]:
        """The pending and created placement groups of this campaign."""
        done = self._ask("-c", _GROUPS, self._cluster.address or "auto")
        done.check_returncode()
        return [name for name in json.loads(done.stdout.splitlines()[-1]) if self.run.name in name]

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._cluster.command("head", *arguments),
            cwd=self._folder,
            env=self._cluster.environment(),
            capture_output=True,
            text=True,
            timeout=_CHECKED_SECONDS,
        )

    def said(self) -> str:
        """The last lines that its commands printed."""
        outputs = sorted(self._folder.glob(f"said-{self.plan.kind}-{self.plan.seed}-*.txt"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-3000:]}" for path in outputs)

    def _drive(self, command: str, target: str) -> None:
        address = self._cluster.address
        self._drives.append(self._command(command, target, *(("--address", address) if address else ())))
        self.driver, _ = self._drives[-1]

    def _command(self, *arguments: str) -> "tuple[subprocess.Popen[bytes], Path]":
        self._count += 1
        output = self._folder / f"said-{self.plan.kind}-{self.plan.seed}-{self._count:02d}-{arguments[0]}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._cluster.command("head", "-m", "bbkb", *arguments),
                cwd=self._folder,
                env=self._cluster.environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        return process, output


def _is_refused(code: int, output: Path) -> bool:
    """Whether a command was rejected because a process already runs the campaign."""
    return code == 2 and "watch it with `bbkb attach" in output.read_text(errors="replace")


def _find_run(runs: Path) -> Run | None:
    """The run in that folder, once its log has started."""
    for folder in runs.glob("chaos-*"):
        try:
            run = open_run(folder)
            run.events()
        except BbkbError:  # not complete yet
            continue
        return run
    return None
