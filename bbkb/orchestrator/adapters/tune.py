"""BBKB as a search algorithm of Ray Tune (Liaw et al. 2018)."""

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import SupportsFloat

from ray.tune.search import Searcher

from bbkb.objectives.keywords import checks_arguments
from bbkb.orchestrator.adapters.backlog import Backlog, Configuration, Result
from bbkb.orchestrator.adapters.tune_space import Config, TuneSpace
from bbkb.orchestrator.ask_tell.checks import StrategyChoice, check_seed, named_strategy
from bbkb.orchestrator.ask_tell.space import Optimizer


class BBKBSearch(Searcher):
    """Proposes configurations for `tune.TuneConfig(search_alg=BBKBSearch(), …)`.

    The model learns the metrics of all results, including those of running and stopped trials. A
    trial that ends with an error, or without a finite metric, counts as failed. If the last
    `training_iteration` of a trial is smaller than the largest of the experiment, the trial counts
    as stopped early by a scheduler.

    Args:
        space: as in `param_space`; None: use `param_space`.
        metric: the metric; None: that of TuneConfig.
        mode: `max` or `min`; None: that of TuneConfig.
        seed: a whole number, >= 0; with `backlog` 0, the same calls with the same seed return the
            same configurations.
        max_concurrent: the largest number of running trials, also with a `ConcurrencyLimiter`;
            None: as many as Tune starts.
        backlog: the number of proposals to make in advance, so that Tune does not wait for a refit;
            0: make each one on request.
        strategy: as for `Optimizer`.

    Raises:
        ValueError: if the space cannot be searched, or an argument is invalid.
    """

    @checks_arguments
    def __init__(
        self,
        space: Mapping[str, object] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        *,
        seed: int = 0,
        max_concurrent: int | None = None,
        backlog: int = 2,
        strategy: StrategyChoice = "bbkb",
    ) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f"mode must be min or max, got {mode!r}")
        chosen = named_strategy(strategy)  # raises here instead of after Tune has begun
        super().__init__(metric=metric, mode=mode)
        self._metric = metric
        self._mode = mode
        self._seed = check_seed(seed)
        self._size = backlog
        self._strategy = chosen
        self._running: dict[str, Configuration] = {}  # by trial
        self._last_step = 0  # the largest `training_iteration` of all trials
        self._space = TuneSpace({})
        self._backlog: Backlog | None = None
        self.set_max_concurrency(max_concurrent)
        if space is not None:
            self._begin(space)

    def set_search_properties(self, metric: str | None, mode: str | None, config: Config, **spec: object) -> bool:
        """Set TuneConfig's metric and mode and `param_space`; return False if it has a space."""
        if self._backlog is not None and TuneSpace.of(config).domains:
            return False
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        if self._backlog is None:
            self._begin(config)
        return True

    def set_max_concurrency(self, max_concurrent: int | None) -> bool:
        """Set the largest number of concurrent trials."""
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"max_concurrent must be >= 1, got {max_concurrent}")
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> Config | None:
        """Return a configuration; None, and Tune asks again, if too many run or none is ready."""
        if self._backlog is None:
            raise ValueError(
                "BBKBSearch has no space: give it one, or give Tuner a param_space with a range or a choice"
            )
        if self._metric is None or self._mode is None:
            raise ValueError("BBKBSearch needs metric and mode: pass them to it or to TuneConfig")
        if self._max_concurrent is not None and len(self._running) >= self._max_concurrent:
            return None
        configuration = self._backlog.take()
        if configuration is None:
            return None
        self._running[trial_id] = configuration
        return self._space.config(configuration)

    def on_trial_result(self, trial_id: str, result: Config) -> None:
        """Record a metric of a running trial."""
        configuration = self._running.get(trial_id)
        step = _step(result)
        if configuration is not None and self._backlog is not None and step:
            self._last_step = max(self._last_step, step)
            reward = self._reward(result)
            self._backlog.learn(Result(configuration, -math.inf if reward is None else reward, step))

    def on_trial_complete(self, trial_id: str, result: Config | None = None, error: bool = False) -> None:
        """Record the trial's last metric. Ignores trials that were not suggested here."""
        configuration = self._running.pop(trial_id, None)
        if configuration is None or self._backlog is None:
            return
        reward = None if error else self._reward(result or {})
        step = _step(result or {})
        is_stopped = reward is not None and 0 < step < self._last_step
        if is_stopped or (reward is not None and step > 1):  # Tune passes the last result only here
            self._backlog.learn(Result(configuration, reward, step))
        self._last_step = max(self._last_step, step)
        self._backlog.learn(Result(configuration, None, step) if is_stopped else Result(configuration, reward))

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Record a result from elsewhere.

        Raises ValueError before the space and the metric's mode are known, ObjectiveError or
        ValueError if `parameters` do not belong to the space, and KeyError if one is missing.
        """
        if self._backlog is None or self._metric is None or self._mode is None:
            raise ValueError(
                "BBKBSearch needs space, metric and mode before it can take existing results; pass them to it"
            )
        configuration = self._space.configuration(parameters)
        self._backlog.learn(Result(configuration, None if error else self._reward({self._metric: value})))
        self._backlog.wait_until_filled()

    def save(self, checkpoint_path: str) -> None:
        """Write results, proposals and running trials to a file."""
        state = (self._space, self._running, self._metric, self._mode, self._backlog, self._last_step)
        Path(checkpoint_path).write_bytes(pickle.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Continue from a file that `save` wrote. Load only files that you trust."""
        state = pickle.loads(Path(checkpoint_path).read_bytes())
        self._space, self._running, self._metric, self._mode, self._backlog, self._last_step = state

    def _begin(self, config: Mapping[str, object]) -> None:
        self._space = TuneSpace.of(config)
        if self._space.domains:
            optimizer = Optimizer(self._space.parameters, "maximize", strategy=self._strategy, seed=self._seed)
            self._backlog = Backlog(optimizer, self._size)

    def _reward(self, result: Mapping[str, object]) -> float | None:
        """Return the reward of the last metric (also from numpy or torch); None if not finite."""
        value = None if self._metric is None else result.get(self._metric)
        number = float(value) if isinstance(value, SupportsFloat) else math.nan
        if not math.isfinite(number):
            return None
        return number if self._mode == "max" else -number


def _step(result: Mapping[str, object]) -> int:
    """Return the step of a result, counted from 1; 0 if it has none."""
    step = result.get("training_iteration")
    return int(step) if isinstance(step, int) and step > 0 else 0
