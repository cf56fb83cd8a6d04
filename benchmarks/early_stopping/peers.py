"""The peers' schedulers on the same curves and the same simulated workers.

Ray Tune's ASHA and Optuna's pruners are the libraries' own objects; only the time is simulated. The
k-th accuracy is reported when k/28 of a training's seconds have passed, as by the simulated
executor of `bbkb` with 27 reports.
"""

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import optuna

from benchmarks.early_stopping.curves import EPOCHS, Configuration, Grid, LearningCurve, key_of
from benchmarks.early_stopping.ours import MOST_EVALUATIONS, Found

REDUCTION = 3  # of all rules: rungs at 1, 3, 9 and 27 epochs

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Tuner(Protocol):
    """A searcher with its scheduler. The harness numbers the trials 0, 1, …."""

    def ask(self, number: int) -> Configuration: ...

    def report(self, number: int, step: int, value: float) -> bool:
        """Report a value; returns whether the trial is stopped at this step."""
        ...

    def finish(self, number: int, value: float) -> None: ...


class RayTune:
    """Random search with `AsyncHyperBandScheduler`, which is Ray Tune's ASHA."""

    def __init__(self, grid: Grid, seed: int) -> None:
        from ray.tune.schedulers import ASHAScheduler

        self._grid, self._rng = grid, np.random.default_rng([seed, 21])
        self._scheduler: Any = ASHAScheduler(
            "training_iteration", metric="accuracy", mode="max", max_t=EPOCHS, reduction_factor=REDUCTION
        )
        self._trials: dict[int, Any] = {}

    def ask(self, number: int) -> Configuration:
        from ray.tune.experiment import Trial

        self._trials[number] = trial = Trial("recorded", stub=True)
        self._scheduler.on_trial_add(None, trial)
        return {name: one.ordered[self._rng.integers(len(one.ordered))] for name, one in self._grid.items()}

    def report(self, number: int, step: int, value: float) -> bool:
        result = {"training_iteration": step, "accuracy": value}
        decision = self._scheduler.on_trial_result(None, self._trials[number], result)
        return bool(decision == "STOP") and step < EPOCHS

    def finish(self, number: int, value: float) -> None:
        result = {"training_iteration": EPOCHS, "accuracy": value}
        self._scheduler.on_trial_complete(None, self._trials.pop(number), result)


class Optuna:
    """An Optuna study in memory with the default sampler (TPE) or random search, and a pruner."""

    def __init__(self, grid: Grid, seed: int, sampler: str, is_pruned: bool) -> None:
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        self._study = optuna.create_study(
            direction="maximize",
            sampler=samplers[sampler](seed=seed),
            pruner=pruner if is_pruned else optuna.pruners.NopPruner(),
        )
        self._grid, self._running = grid, dict[int, Any]()

    def ask(self, number: int) -> Configuration:
        trial = self._study.ask()
        self._running[number] = trial
        return {name: one.ordered[trial.suggest_int(name, 0, len(one.ordered) - 1)] for name, one in self._grid.items()}

    def report(self, number: int, step: int, value: float) -> bool:
        trial = self._running[number]
        trial.report(value, step)
        if step == EPOCHS or not trial.should_prune():
            return False
        self._study.tell(self._running.pop(number), state=optuna.trial.TrialState.PRUNED)
        return True

    def finish(self, number: int, value: float) -> None:
        self._study.tell(self._running.pop(number), value)


def make_tuner(name: str, grid: Grid, seed: int) -> Tuner:
    """`ray-asha`, or `optuna-SAMPLER-sha` or `optuna-SAMPLER-none`."""
    if name == "ray-asha":
        return RayTune(grid, seed)
    _, sampler, rule = name.split("-")
    return Optuna(grid, seed, sampler, rule == "sha")


def search(tuner: Tuner, curves: Sequence[LearningCurve], target: float, workers: int) -> Found:
    """Simulate until a finished training reaches the target, or MOST_EVALUATIONS have started.

    Args:
        tuner: the searcher with its scheduler.
        curves: the curves of all configurations of the grid.
        target: the accuracy that counts as found, in [0, 1].
        workers: trainings at the same time.

    """
    recorded: Mapping[str, LearningCurve] = {key_of(curve.configuration): curve for curve in curves}
    running: list[tuple[float, int, int]] = []  # time, trial, step; a step after the last epoch ends it
    began: dict[int, tuple[float, LearningCurve]] = {}
    numbers = itertools.count()

    def start(now: float) -> None:
        number = next(numbers)
        began[number] = (now, recorded[key_of(tuner.ask(number))])
        follow(number, 1)

    def follow(number: int, step: int) -> None:
        since, curve = began[number]
        heapq.heappush(running, (since + curve.seconds * step / (EPOCHS + 1), number, step))

    now = 0.0
    for _ in range(workers):
        start(now)
    while len(began) < MOST_EVALUATIONS:
        now, number, step = heapq.heappop(running)
        curve = began[number][1]
        if step > EPOCHS:
            tuner.finish(number, curve.accuracies[-1])
            if curve.accuracies[-1] >= target:
                return Found(seconds=now, trials=len(began))
            start(now)
        elif tuner.report(number, step, curve.accuracies[step - 1]):
            start(now)
        else:
            follow(number, step + 1)
    return Found(seconds=now, trials=MOST_EVALUATIONS, is_found=False)
