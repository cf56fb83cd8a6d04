"""What optimisers share that ask for a configuration and the step that it is trained to.

A configuration that was trained before continues from where it was paused, at the cost of the
further steps only.
"""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from benchmarks.curves.problems import Configuration, CurveProblem
from benchmarks.curves.simulate import Continue, Start, Suggestion


@dataclass(frozen=True)
class Job:
    """A training of `configuration` to the recorded step nearest to `step`."""

    configuration: Configuration
    step: float
    origin: Any  # the optimiser's own object


@dataclass
class _Trial:
    """`job` and `target`: what it is trained for now, and to which step; None while it is
    paused."""

    number: int
    seen: dict[int, float] = field(default_factory=dict)
    job: Job | None = None
    target: int = 0


class JobSearch(ABC):
    """Trains what `_ask` wants, and passes the value at its step to `_tell`."""

    watches = True

    def __init__(self, problem: CurveProblem) -> None:
        self._steps = problem.steps
        self._by_key: dict[str, _Trial] = {}
        self._by_number: list[_Trial] = []
        self._held: list[Job] = []  # jobs of configurations that are being trained for another job

    def suggest(self) -> Suggestion:
        for job in list(self._held):
            if self._trial_of(job).job is None:
                self._held.remove(job)
                if (work := self._begin(job)) is not None:
                    return work
        while True:
            job = self._ask()
            if self._trial_of(job).job is not None:
                self._held.append(job)
            elif (work := self._begin(job)) is not None:
                return work

    def report(self, trial: int, step: int, value: float) -> bool:
        started_job = self._by_number[trial]
        started_job.seen[step] = value
        if step < started_job.target:
            return True
        job, started_job.job = started_job.job, None
        if job is not None:
            self._tell(job, value)
        return False

    def end(self, trial: int, value: float) -> None:
        self.report(trial, self._steps[-1], value)

    def recommend(self) -> None:
        return None

    @abstractmethod
    def _ask(self) -> Job:
        """The next job."""

    @abstractmethod
    def _tell(self, job: Job, value: float) -> None:
        """Pass the value of a job, which is maximised."""

    def _begin(self, job: Job) -> Suggestion | None:
        """What a worker does for a job; None when its value is known already, and told."""
        trial = self._trial_of(job)
        target = min(self._steps, key=lambda step: (abs(step - job.step), step))
        if target in trial.seen:
            self._tell(job, trial.seen[target])
            return None
        trial.job, trial.target = job, target
        if trial.seen:
            return Continue(trial.number)
        trial.number = len(self._by_number)
        self._by_number.append(trial)
        return Start(job.configuration)

    def _trial_of(self, job: Job) -> _Trial:
        return self._by_key.setdefault(json.dumps(job.configuration, sort_keys=True), _Trial(-1))
