"""The CPU time of a suggestion of a search that learns from learning curves, by the number of
trainings."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.speed.problems import load
from benchmarks.speed.rows import Answer
from orchestrator.ask_tell.strategy import named_strategy
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.curves import TrialCurve
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategy import Choose, Observation

ARMS, DIMENSION, LAST = 8192, 6, 31
NOISE = 0.02


def trainings(trials: int, workers: int = 8, cycles: int = 5, suggestions: int | None = None, seed: int = 0) -> Answer:
    """CPU seconds at a state that knows so many trainings of six values each, half of them stopped.

    Args:
        trials: how many trainings are known.
        workers: how many more are running; after each suggestion one of them ends.
        cycles: refreshes of the model that are measured.
        suggestions: after each refresh; None: 3 % of `trials`, the growth at which the default
            strategy refreshes.
        seed: of the values.

    Returns:
        Medians: `refresh`, with forecasts of all stopped and running trainings, without a fit;
        `first` suggestion after it; each `further` one; `suggestion`, the mean of these with the
        refresh; `fit`, made when trials have grown by
        a quarter. `picks`: what was suggested.

    """
    search, suggestions = _Search(trials, seed), suggestions or max(2, round(0.03 * trials))
    seconds: dict[str, list[float]] = {name: [] for name in ("refresh", "first", "further")}
    fit = _timed(lambda: search.tell(trials + workers))
    for _ in range(cycles):
        seconds["refresh"].append(_timed(lambda: search.tell(search.ended + suggestions)))
        for number in range(suggestions):
            seconds["first" if not number else "further"].append(_timed(search.ask))
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    whole = medians["refresh"] + medians["first"] + float(np.mean(seconds["further"])) * (suggestions - 1)
    return {
        **medians,
        "suggestion": whole / suggestions,
        "fit": fit,
        "picks": search.picks,
        "values": search.values,
        "dictionary": len(search.state.dictionary),
    }


class _Search:
    """A strategy and the trainings that it was told of. The last of every two was stopped at two
    thirds."""

    def __init__(self, trials: int, seed: int) -> None:
        strategy: Any = named_strategy("bbkb", {})
        assert isinstance(strategy, BBKB)
        self._strategy, self._seed = strategy, seed
        problem = load("synthetic", ARMS, DIMENSION)
        rng = np.random.default_rng([seed, 1])
        self._quality: Floats = problem.values
        self._speed: Floats = 0.3 + rng.random(ARMS)
        self._noise = rng.standard_normal((ARMS, LAST)) * NOISE
        arms = Arms.of(problem.features, repeats=False)
        self.state = strategy.init(arms, np.random.default_rng([seed, 0]))
        self._queue = list(dict.fromkeys([*self.state.initial, *rng.permutation(ARMS).tolist()]))
        self.ended, self.values, self.picks = 0, 0, list[int]()
        self.tell(max(16, trials // 2))  # the state is that of a search which has learned before
        self.tell(trials)

    def tell(self, trials: int) -> None:
        """Let the trainings up to `trials` end, and refresh the model as a campaign does."""
        curves, evaluated = [], []
        for trial in range(self.ended, trials):
            arm, is_stopped = self._queue[trial], trial % 2 == 1
            curve = TrialCurve(trial, arm)
            for step in range(1, (2 * LAST // 3 if is_stopped else LAST) + 1):
                value = self._quality[arm] * (1.0 - np.exp(-self._speed[arm] * step / 10.0))
                curve = curve.after(step, float(value + self._noise[arm, step - 1]))
            curves.append(curve if is_stopped else curve.end(curve.rewards[-1]))
            self.values += len(curve.steps)
            evaluated.append(Observation(arm, curve.rewards[-1], is_stopped=is_stopped))
        self.ended = trials
        paused = range(1, trials, 2)
        rng = np.random.default_rng([self._seed, 2, trials])
        self.state = self._strategy.tell(self._strategy.with_curves(self.state, curves, paused, LAST), evaluated, rng)
        self._strategy.predict_trials(self.state, paused)
        self._strategy.growth(self.state)
        self._strategy.recommend(self.state)
        self._pending = list[int]()

    def ask(self) -> None:
        """One suggestion, with those since the refresh pending."""
        decision = self._strategy.ask(self.state, tuple(self._pending), 1)
        assert isinstance(decision, Choose)
        self._pending.append(decision.picks[0].arm)
        self.picks.append(decision.picks[0].trial if decision.picks[0].trial is not None else -decision.picks[0].arm)


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
