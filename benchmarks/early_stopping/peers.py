"""The peers' schedulers on the same curves and the same simulated workers.

Ray Tune's ASHA and Optuna's pruners are the libraries' own objects; only the time is simulated. The
k-th accuracy is reported when k/28 of a training's seconds have passed, as by the simulated
executor of `bbkb` with 27 reports.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna

from benchmarks.curves.problems import Configuration, CurveProblem, Floats
from benchmarks.curves.simulate import Method, Search, Start
from benchmarks.early_stopping.curves import EPOCHS, Grid, LearningCurve, key_of
from benchmarks.early_stopping.ours import MOST_EVALUATIONS, Found

REDUCTION = 3  # of all rules: rungs at 1, 3, 9 and 27 epochs

optuna.logging.set_verbosity(optuna.logging.ERROR)


class RayTune:
    """Random search with `AsyncHyperBandScheduler`, which is Ray Tune's ASHA."""

    watches = True

    def __init__(self, grid: Grid, seed: int) -> None:
        from ray.tune.schedulers import ASHAScheduler

        self._grid, self._rng = grid, np.random.default_rng([seed, 21])
        self._scheduler: Any = ASHAScheduler(
            "training_iteration", metric="accuracy", mode="max", max_t=EPOCHS, reduction_factor=REDUCTION
        )
        self._trials: list[Any] = []

    def suggest(self) -> Start:
        from ray.tune.experiment import Trial

        self._trials.append(Trial("recorded", stub=True))
        self._scheduler.on_trial_add(None, self._trials[-1])
        return Start(
            {
                name: parameter.ordered[self._rng.integers(len(parameter.ordered))]
                for name, parameter in self._grid.items()
            }
        )

    def report(self, trial: int, step: int, value: float) -> bool:
        result = {"training_iteration": step, "accuracy": value}
        decision = self._scheduler.on_trial_result(None, self._trials[trial], result)
        return bool(decision != "STOP") or step == EPOCHS

    def end(self, trial: int, value: float) -> None:
        result = {"training_iteration": EPOCHS, "accuracy": value}
        self._scheduler.on_trial_complete(None, self._trials[trial], result)

    def recommend(self) -> None:
        return None


class Optuna:
    """An Optuna study in memory with the default sampler (TPE) or random search, and a pruner."""

    watches = True

    def __init__(self, grid: Grid, seed: int, sampler: str, is_pruned: bool) -> None:
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        self._study = optuna.create_study(
            direction="maximize",
            sampler=samplers[sampler](seed=seed),
            pruner=pruner if is_pruned else optuna.pruners.NopPruner(),
        )
        self._grid, self._trials = grid, list[optuna.Trial]()

    def suggest(self) -> Start:
        trial = self._study.ask()
        self._trials.append(trial)
        places = {
            name: trial.suggest_int(name, 0, len(parameter.ordered) - 1) for name, parameter in self._grid.items()
        }
        return Start({name: self._grid[name].ordered[place] for name, place in places.items()})

    def report(self, trial: int, step: int, value: float) -> bool:
        running = self._trials[trial]
        running.report(value, step)
        if step == EPOCHS or not running.should_prune():
            return True
        self._study.tell(running, state=optuna.trial.TrialState.PRUNED)
        return False

    def end(self, trial: int, value: float) -> None:
        self._study.tell(self._trials[trial], value)

    def recommend(self) -> None:
        return None


def make_tuner(name: str, grid: Grid, seed: int) -> Method:
    """`ray-asha`, or `optuna-SAMPLER-sha` or `optuna-SAMPLER-none`."""
    if name == "ray-asha":
        return RayTune(grid, seed)
    _, sampler, rule = name.split("-")
    return Optuna(grid, seed, sampler, rule == "sha")


def search(tuner: Method, curves: Sequence[LearningCurve], target: float, workers: int) -> Found:
    """Simulate until a finished training reaches the target, or MOST_EVALUATIONS have started.

    Args:
        tuner: the searcher with its scheduler.
        curves: the curves of all configurations of the grid.
        target: the accuracy that counts as found, in [0, 1].
        workers: trainings at the same time.

    """
    state = Search(_problem(curves), tuner, is_timed=True)
    while True:
        state.fill(workers)
        if len(state.trials) >= MOST_EVALUATIONS:
            return Found(seconds=state.now, trials=MOST_EVALUATIONS, is_found=False)
        final = state.step()
        if final is not None and final >= target:
            return Found(seconds=state.now, trials=len(state.trials))


def _problem(curves: Sequence[LearningCurve]) -> CurveProblem:
    """The curves as a problem: a report after each epoch, and the end some time after the last
    one."""
    recorded: Mapping[str, LearningCurve] = {key_of(curve.configuration): curve for curve in curves}
    reports = EPOCHS + 1

    def values(configuration: Configuration) -> Floats:
        accuracies = recorded[key_of(configuration)].accuracies
        return np.array([*accuracies, accuracies[-1]])

    def durations(configuration: Configuration) -> Floats:
        return np.full(reports, recorded[key_of(configuration)].seconds / reports)

    return CurveProblem(
        name="early stopping",
        family="own",
        space={},
        arms=None,
        steps=tuple(range(1, reports + 1)),
        costs=(1,) * reports,
        whole_cost=reports,
        curve=values,
        durations=durations,
        best=1.0,
        median=0.0,
    )
