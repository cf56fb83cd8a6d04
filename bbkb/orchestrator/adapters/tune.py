"""BBKB as a search algorithm of Ray Tune (Liaw et al. 2018).

Parameters are called p0, p1, … in the order of the configuration, and a choice is represented by
its index, because Tune allows any keys, including nested ones, and any objects.
"""

import math
import pickle
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat, cast

from ray.tune.search import Searcher
from ray.tune.search.sample import Categorical, Domain, Float, Integer, LogUniform, Quantized, Uniform

from bbkb.objectives.errors import checks_arguments
from bbkb.objectives.parameters import Choice, Constant, Parameter, Range, Scalar
from bbkb.orchestrator.ask_tell.checks import check_seed, named_strategy
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.strategies.presets import StrategyChoice

Config = dict[str, Any]  # Tune's configuration: keys and values of any type
Configuration = Mapping[str, Scalar]

_GRID = "grid_search"


@dataclass(frozen=True)
class TuneSpace:
    """The domains of a configuration by path, in order. Fixed values remain with Tune."""

    domains: Mapping[tuple[str, ...], Domain]

    @staticmethod
    def of(config: Mapping[str, object]) -> "TuneSpace":
        """Return the domains of `config`. Raises ValueError, with path and remedy, for grid_search
        and for a domain in a list."""
        return TuneSpace(dict(_domains(config, ())))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The project's parameters. Raises ValueError with path and remedy for other sampling."""
        return {f"p{place}": _parameter(path, domain) for place, (path, domain) in enumerate(self.domains.items())}

    def config(self, configuration: Mapping[str, Scalar]) -> Config:
        """Convert a configuration of this project to Tune's nested form."""
        config: Config = {}
        for place, (path, domain) in enumerate(self.domains.items()):
            inner = config
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            value: Any = configuration[f"p{place}"]
            inner[path[-1]] = domain.categories[value] if isinstance(domain, Categorical) else value
        return config

    def configuration(self, config: Mapping[str, object]) -> dict[str, Scalar]:
        """Convert Tune's configuration. Raises KeyError (parameter) or ValueError (choice)."""
        values: dict[str, Scalar] = {}
        for place, (path, domain) in enumerate(self.domains.items()):
            value: Any = config
            for key in path:
                value = value[key]
            values[f"p{place}"] = domain.categories.index(value) if isinstance(domain, Categorical) else value
        return values


def _domains(config: Mapping[str, object], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Domain]]:
    for key, value in config.items():
        path = (*above, key)
        if isinstance(value, Domain):
            yield path, value
        elif isinstance(value, Mapping) and _GRID in value:
            raise ValueError(f"{'/'.join(path)} must not be tune.grid_search: values are proposed; write tune.choice")
        elif isinstance(value, list | tuple) and any(isinstance(item, Domain | Mapping) for item in value):
            if dict(_domains({str(place): item for place, item in enumerate(value)}, path)):
                raise ValueError(f"{'/'.join(path)} must not be a list with tune's domains; write a dictionary")
        elif isinstance(value, Mapping):
            yield from _domains(value, path)


def _parameter(path: tuple[str, ...], domain: Domain) -> Parameter:
    sampler: Any = domain.get_sampler()
    step = sampler.q if isinstance(sampler, Quantized) else None
    unrounded = sampler.sampler if isinstance(sampler, Quantized) else sampler
    is_log = isinstance(unrounded, LogUniform)
    match domain:
        case Categorical(categories=levels):
            return Choice(tuple(range(len(levels)))) if len(levels) > 1 else Constant(0)
        case Float(lower=low, upper=high) if isinstance(unrounded, Uniform | LogUniform):
            return Range(low, high, log=is_log, step=step)
        case Integer(lower=low, upper=high) if isinstance(unrounded, Uniform | LogUniform):
            # excludes the end unless quantized
            last = high if step is not None and step > 1 else high - 1
            return Range(low, last, log=is_log, integer=True, step=step) if last > low else Constant(low)
    kinds = "uniform, loguniform, randint, lograndint, a quantized one of these, or choice"
    raise ValueError(
        f"{'/'.join(path)} must be tune.{kinds}, got {type(unrounded).__name__}; write a choice of its values"
    )


@dataclass(frozen=True, slots=True)
class Result:
    """A report or a result of a trial."""

    configuration: Configuration  # its parameters
    # with `step`, the value there, or None if it was stopped; else its final value, or None if it failed
    value: float | None
    step: int | None = None  # the step of a training, counted from 1; None if the trial has ended


class Backlog:
    """Keeps up to `size` proposals ready, so that Tune does not wait for a refit.

    The same thread learns results before it makes a proposal. Each proposal is based on the results
    at the time, so the proposals of a long backlog are based on older results. With `size` 0, there
    is no thread: every call computes at once, and the same calls return the same proposals.
    """

    def __init__(self, optimizer: Optimizer, size: int) -> None:
        if size < 0:
            raise ValueError(f"backlog must be >= 0, got {size}")
        self._optimizer = optimizer
        self._size = size
        self._ready: deque[Configuration] = deque()
        self._results: deque[Result] = deque()
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()  # never held while the proposer computes
        self._worker: threading.Thread | None = None
        self._error: Exception | None = None

    def take(self) -> Configuration | None:
        """Return a configuration; None if none is ready. Raises the thread's error, if any."""
        if not self._size:
            return self._propose()
        self._raise()
        with self._lock:
            configuration = self._ready.popleft() if self._ready else None
        self._work()
        return configuration

    def learn(self, result: Result) -> None:
        """Learn a result: at once if there is no thread, otherwise before the next proposal."""
        if not self._size:
            self._learn([result])
            return
        self._raise()
        with self._lock:
            self._results.append(result)
        self._work()

    def wait_until_filled(self) -> None:
        """Wait until all results are learned and the backlog is full. Raises as `take` does."""
        while (worker := self._worker) is not None:
            worker.join()
        self._raise()

    def _learn(self, results: Sequence[Result]) -> None:
        for result in results:
            match result.value, result.step:
                case None, None:
                    self._optimizer.fail(result.configuration)
                case None, _:
                    self._optimizer.stop(result.configuration)
                case value, None:
                    self._optimizer.tell(result.configuration, value)
                case value, step:
                    self._optimizer.report(result.configuration, value, step)

    def _propose(self) -> Configuration | None:
        configurations = self._optimizer.ask(1)
        return configurations[0] if configurations else None

    def _work(self) -> None:
        """Start the thread unless it is running."""
        with self._lock:
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="bbkb-backlog", daemon=True)
                self._worker.start()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except Exception as error:  # raised again by the next call
            with self._lock:
                self._error = error
                self._worker = None

    def _step(self) -> bool:
        """Learn all results, or make one proposal. Return False if there is nothing to do."""
        with self._lock:
            results = list(self._results)
            if not results and len(self._ready) >= self._size:
                self._worker = None
                return False
        if results:
            self._learn(results)
            with self._lock:
                for _ in results:
                    self._results.popleft()
        configuration = None if results else self._propose()
        with self._lock:
            if configuration is not None:
                self._ready.append(configuration)
            waits = configuration is None and not results and not self._results  # for more results
            if waits:
                self._worker = None
        return not waits

    def _raise(self) -> None:
        with self._lock:
            error = self._error
            self._error = None
        if error is not None:
            raise error

    def __getstate__(self) -> dict[str, object]:
        """Return the state without threads and locks. Waits for the thread's current step."""
        self.wait_until_filled()
        left_out = ("_lock", "_worker", "_error")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._begin()


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
        """Return a configuration; None, and Tune asks again, if too many run or none is ready; `FINISHED` if none
        is left."""
        if self._backlog is None:
            raise ValueError(
                "BBKBSearch has no space: give it one, or give Tuner a param_space with a range or a choice"
            )
        if self._metric is None or self._mode is None:
            raise ValueError("BBKBSearch needs metric and mode: pass them to it or to TuneConfig")
        if self._max_concurrent is not None and len(self._running) >= self._max_concurrent:
            return None
        configuration = self._backlog.take()
        if configuration is None and not self._running:
            self._backlog.wait_until_filled()
            configuration = self._backlog.take()
            if configuration is None:
                return cast(Config, self.FINISHED)  # a text, which Tune's own annotation omits
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
