"""An artificial event log like that of a real campaign, for tests of the code that reads a
`History`.

Batches grow, evaluations take different times on several workers, some fail (with messages that
would break a careless page or file) and are tried again, some fail finally, and sessions are killed
in the middle and resumed.
"""

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from bbkb.orchestrator.bandit.results import Observation
from bbkb.orchestrator.campaign.events import (
    BatchChosen,
    Event,
    ModelRefreshed,
    PickedTrial,
    SessionClosed,
    SessionOutcome,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from bbkb.orchestrator.history.fold import History, fold
from bbkb.workers.messages import FailureKind
from tests.orchestrator.events import created, opening

NASTY_MESSAGES = (
    'ValueError: <script>alert(1)</script>\n  File "train.py", line 3, in <module>\n    fit(x, y)',
    "</script><!-- <b>bold</b> & \"quoted\", 'single', comma, semicolon; tab\there",
    "UnicodeError: τ → ∞ 😀\r\nsecond line after a carriage return",
    "=cmd|' /C calc'!A0",
)
ACTIVATIONS = ("relu", "tanh", "<b>gelu</b>")
OPTIMUM = 0.95


@dataclass(frozen=True)
class SyntheticLog:
    """Parameters of a synthetic log; `events()` makes it, `history()` folds it. The same fields
    give the same log."""

    trials: int = 80
    workers: int = 4
    sessions: int = 2
    failure_share: float = 0.12  # of attempts; 1 makes every trial fail
    direction: str = "maximize"
    seed: int = 0
    start: float = 1.75e9  # small numbers for virtual time
    is_closed: bool = True
    has_optimum: bool = True

    def events(self) -> list[Event]:
        """The log, in order of time."""
        return _Simulation(self).run()

    def history(self) -> History:
        """The log, folded."""
        return fold(self.events())

    def settings(self) -> dict[str, Any]:
        """Its campaign file."""
        return settings_of(self)


def settings_of(log: SyntheticLog) -> dict[str, Any]:
    """The campaign file that belongs to the log."""
    return {
        "name": "synthetic",
        "seed": log.seed,
        "objective": {"name": "made_up", "direction": log.direction, "options": {"note": "<i>&amp;</i>"}},
        "space": {
            "learning_rate": {"low": 1.0e-4, "high": 1.0, "log": True},
            "batch_size": {"low": 16, "high": 512, "log": True, "integer": True},
            "dropout": {"low": 0.0, "high": 0.5},
            "activation": {"choices": list(ACTIVATIONS)},
        },
        "candidates": {"size": 4096, "sampler": "sobol"},
        "strategy": {"name": "bbkb", "kernel": {"name": "rbf", "lengthscale": 0.5}},
        "budget": {"evaluations": max(1, log.trials)},
        "workers": {"count": log.workers, "cpus": 1, "timeout_seconds": 600, "retries": 2},
        "store": "sqlite",
    }


@dataclass
class _Simulation:
    log: SyntheticLog
    events: list[Event] = field(default_factory=list)
    running: list[tuple[float, float, int, int, int]] = field(
        default_factory=list
    )  # finish, start, worker, (trial, attempt)
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    idle: list[int] = field(default_factory=list)
    picks: list[PickedTrial] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)  # of the batch
    outcomes: int = 0
    epoch: int = 0
    rounds: int = 0

    def run(self) -> list[Event]:
        log = self.log
        self.rng, self.now, self.settings = np.random.default_rng(log.seed), log.start, settings_of(log)
        optimum = (OPTIMUM if log.direction == "maximize" else 1 - OPTIMUM) if log.has_optimum else None
        self.events.append(created(self.settings, time=self.now, arms=4096, optimum=optimum))
        if log.sessions:
            self._open()
            while len(self.picks) < log.trials:
                self._batch()
        if log.sessions and log.is_closed:
            self.events.append(
                SessionClosed(time=self.now, outcome=SessionOutcome.FINISHED, reason="the budget is spent")
            )
        return self.events

    def _open(self) -> None:
        self.epoch += 1
        self.idle, lost = list(range(self.log.workers)), sorted(self.running, key=lambda job: job[3])
        self.queue.extendleft((trial, attempt + 1) for _, _, _, trial, attempt in reversed(lost))
        self.running.clear()
        self.events.append(opening(self.settings, self.log.workers, self.now, self.epoch, "ray"))

    def _batch(self) -> None:
        self.rounds += 1
        self.observations.clear()
        first, size = len(self.picks), min(2 + 3 * self.rounds // 2, self.log.trials - len(self.picks))
        self.picks += [self._pick(first + i) for i in range(size)]
        self.now += 0.05
        self.events.append(
            BatchChosen(
                time=self.now, round=self.rounds, picks=tuple(self.picks[first:]),
                reason="the variance ratio reached C̃ = 2", seconds=0.05,
            )
        )  # fmt: skip
        self.queue.extend((trial, 1) for trial in range(first, first + size))
        while self.queue or self.running:
            self._dispatch()
            self._finish_one()
        self.now += 0.2
        self.events.append(
            ModelRefreshed(
                time=self.now, round=self.rounds, trials=tuple(range(first, first + size)),
                observations=tuple(self.observations),
                dictionary_size=int(12 * np.log1p(len(self.picks))), record={}, seconds=0.2,
            )
        )  # fmt: skip

    def _pick(self, trial: int) -> PickedTrial:
        """Parameters that close in on the optimum as the campaign continues."""
        spread = 1.0 / (1.0 + 4.0 * trial / max(1, self.log.trials))
        unit = np.clip(0.6 + spread * (self.rng.random(3) - 0.55), 0, 1)
        parameters = {
            "learning_rate": float(10 ** (4 * unit[0] - 4)),
            "batch_size": int(16 * 32 ** unit[1]),
            "dropout": float(0.5 * unit[2]),
            "activation": ACTIVATIONS[int(self.rng.integers(3))],
        }
        return PickedTrial(
            trial=trial, arm=int(self.rng.integers(4096)), parameters=parameters, mean=0.5, width=0.1, variance=0.2
        )

    def _dispatch(self) -> None:
        sent = []
        while self.queue and self.idle:
            trial, attempt = self.queue.popleft()
            finish = self.now + float(self.rng.lognormal(1.0, 0.5))
            heapq.heappush(self.running, (finish, self.now + 0.01, self.idle.pop(), trial, attempt))
            sent.append((trial, attempt))
        if sent:
            self.events.append(TrialsDispatched(time=self.now, attempts=tuple(sent)))

    def _finish_one(self) -> None:
        self.now, started, worker, trial, attempt = heapq.heappop(self.running)
        self.idle.append(worker)
        self.outcomes += 1
        is_lost = self.rng.random() < self.log.failure_share
        make = self._failure if is_lost else self._success
        event = make(started, worker, trial, attempt)
        self.events.append(event)
        if isinstance(event, TrialSucceeded):
            reward = event.value if self.log.direction == "maximize" else -event.value
            self.observations.append(Observation(self.picks[trial].arm, reward))
        elif event.is_final:
            self.observations.append(Observation(self.picks[trial].arm, None))
        if self.epoch < self.log.sessions and self.outcomes >= self.epoch * self.log.trials / self.log.sessions:
            self.now += 3600.0  # killed here, and resumed an hour later
            self._open()

    def _failure(self, started: float, worker: int, trial: int, attempt: int) -> TrialFailed:
        kind = list(FailureKind)[int(self.rng.integers(5))]
        is_final = attempt >= 3 or kind == FailureKind.INVALID_VALUE
        if not is_final:
            self.queue.append((trial, attempt + 1))
        return TrialFailed(
            time=self.now, trial=trial, attempt=attempt, failure=kind, is_final=is_final,
            message=NASTY_MESSAGES[int(self.rng.integers(len(NASTY_MESSAGES)))],
            started=started, finished=self.now, worker=f"10.0.0.{worker + 1}",
        )  # fmt: skip

    def _success(self, started: float, worker: int, trial: int, attempt: int) -> TrialSucceeded:
        parameters = cast(Mapping[str, Any], self.picks[trial].parameters)
        miss = (np.log10(parameters["learning_rate"]) + 1.6) / 2, parameters["dropout"] - 0.3
        quality = OPTIMUM - 0.3 * miss[0] ** 2 - miss[1] ** 2 - 0.02 * ACTIVATIONS.index(parameters["activation"])
        sign, offset = (1.0, 0.0) if self.log.direction == "maximize" else (-1.0, 1.0)
        return TrialSucceeded(
            time=self.now, trial=trial, attempt=attempt,
            value=float(offset + sign * quality + 0.01 * self.rng.standard_normal()),
            started=started, finished=self.now, worker=f"10.0.0.{worker + 1}",
            metrics={"noise_free": float(offset + sign * quality), "loss": float("nan") if trial % 7 == 3 else 0.25},
        )  # fmt: skip
