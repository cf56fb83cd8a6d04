"""BBKB as a sampler of Optuna (Akiba, Sano, Yanase, Ohta, Koyama 2019)."""

import math
import threading
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from objectives.conditions import Scalar
from objectives.objective import ObjectiveError
from orchestrator.adapters.optuna_space import Values, space_of, to_optuna, to_ours
from orchestrator.ask_tell.checks import check_seed
from orchestrator.ask_tell.space import Optimizer
from orchestrator.ask_tell.strategy import StrategyChoice, named_strategy

Configuration = Mapping[str, Scalar]


class BBKBSampler(BaseSampler):  # type: ignore[misc]  # Optuna's types are not followed
    """Proposes the parameters that all trials of a study have in common; others are drawn by
    `independent_sampler`.

    Each finished trial is read once, so the cost of a suggestion hardly grows with the study.
    Running trials count as pending, those of other processes too. What running, pruned and complete
    trials report (`trial.report`) is learned. A failed trial counts as parameters that cannot be
    evaluated, as does one that was pruned without a finite value. For studies with one objective. A
    sampler that is given to a second study begins anew.

    Args:
        seed: a whole number, >= 0; the same study with the same seed gets the same parameters.
        independent_sampler: draws the other parameters; None: at random.
        strategy: as for `Optimizer`.
        **options: fields of the strategy.

    Raises:
        ValueError: when the seed or an option is not allowed; during a study, when it has several
            objectives.

    >>> import optuna
    >>> from bbkb.adapters import BBKBSampler
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=BBKBSampler(seed=1))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=30)
    >>> print(f"{study.best_params['x']:.1f}")
    0.3
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        independent_sampler: BaseSampler | None = None,
        strategy: StrategyChoice = "bbkb",
        **options: Any,
    ) -> None:
        named_strategy(strategy, options)  # raises before the first trial, not after it
        self._seed = check_seed(seed)
        self._strategy = strategy
        self._options = options
        self._independent = independent_sampler or RandomSampler(seed=seed)
        self._lock = threading.RLock()  # guards the fields below: a study may run trials in threads
        self._begin(None)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that all finished trials have in common and that can vary."""
        study = _whole(study)
        with self._lock:
            if self._study_name != study.study_name:
                self._begin(study.study_name)
            common = self._intersection.calculate(study)
        return {name: distribution for name, distribution in common.items() if not distribution.single()}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> Values:
        """Return a proposal for the whole space; empty before there is one."""
        if len(study.directions) > 1:
            raise ValueError(f"BBKBSampler is for one objective, the study has {len(study.directions)}")
        if not search_space:
            return {}
        with self._lock:
            optimizer = self._take_in(_whole(study), trial, search_space)
            if search_space.keys() & trial.system_attrs.get("fixed_params", {}).keys():
                return {}  # an enqueued trial, which has its own values: taken in when they are known
            configurations = optimizer.ask(1, skip=self._choosing)
            if not configurations:  # the strategy waits for results, but a worker of Optuna cannot wait
                return {}
            self._open[trial.number] = configurations[0]
            return to_optuna(self._space, configurations[0])  # in the order the optimizer knows

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> object:
        """Return a value of a parameter that is not common to all trials."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """A new seed for independent draws; proposals depend on the results and the given seed."""
        self._independent.reseed_rng()

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        # earlier versions had no reports, and another name of the number of trials that were read
        read = {"_trials_read": state["_seen"]} if "_seen" in state else {}
        self.__dict__.update({"_reported": {}, "_first_step": None, **state, **read})
        self.__dict__.pop("_seen", None)
        self._lock = threading.RLock()

    def _begin(self, study_name: str | None) -> None:
        """Nothing is known of the study yet."""
        self._study_name = study_name
        self._intersection = IntersectionSearchSpace()
        self._space: dict[str, BaseDistribution] = {}
        self._optimizer: Optimizer | None = None
        self._trials_read = 0  # the number of trials that were read
        self._open: dict[int, Configuration | None] = {}  # trials that have not ended; None: parameters not known yet
        self._choosing = 0  # earlier trials that run and whose parameters are being chosen at the same time
        self._reported: dict[int, int] = {}  # by open trial, its largest step that was learned
        self._first_step: int | None = None  # 0 or 1: from which the study's trials count their steps

    def _take_in(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Optimizer:
        """Return the optimizer of this space, with everything that the study knows by now."""
        if self._optimizer is None or self._space != space:
            self._optimizer = Optimizer(space_of(space), strategy=self._strategy, seed=self._seed, **self._options)
            self._space = dict(space)
            self._trials_read = 0
            self._open = {}
            self._reported = {}
        trials = study.get_trials(deepcopy=False)
        self._open |= dict.fromkeys(range(self._trials_read, len(trials)))
        self._trials_read = len(trials)
        self._choosing = 0
        ended: list[Configuration] = []
        values: list[float | None] = []
        for number, previous in list(self._open.items()):
            finished_trial = trials[number]
            configuration = (
                self._add_pending(self._optimizer, finished_trial)
                if previous is None and number != trial.number
                else previous
            )
            self._open[number] = configuration
            if configuration is not None:
                self._report(self._optimizer, finished_trial, configuration, _sign(study.direction))
            if finished_trial.state.is_finished():
                del self._open[number]
                self._reported.pop(number, None)
                if configuration is not None and finished_trial.state == TrialState.PRUNED:
                    self._optimizer.stop(configuration)
                elif configuration is not None:
                    ended.append(configuration)
                    values.append(_reward(study.direction, finished_trial))
            elif configuration is None and finished_trial.state == TrialState.RUNNING and number < trial.number:
                self._choosing += 1
        if ended:
            self._optimizer.tell(ended, values)
        return self._optimizer

    def _report(self, optimizer: Optimizer, trial: FrozenTrial, configuration: Configuration, sign: float) -> None:
        """Let the optimizer learn what the trial has reported since the last time."""
        before = self._reported.get(trial.number, -1)
        for step in sorted(reported_step for reported_step in trial.intermediate_values if reported_step > before):
            if self._first_step is None:
                self._first_step = min(1, max(0, step))
            at = step + 1 - self._first_step
            if at >= 1:
                optimizer.report(configuration, sign * trial.intermediate_values[step], at)
            self._reported[trial.number] = step

    def _add_pending(self, optimizer: Optimizer, trial: FrozenTrial) -> Configuration | None:
        """Return a trial that was proposed elsewhere, pending from now on; None when its parameters
        are not known yet or not those of the space, or the strategy takes none from elsewhere."""
        if not set(self._space) <= set(trial.params):
            return None
        try:
            configuration = to_ours(self._space, trial.params)
            optimizer.expect([configuration])
        except (ObjectiveError, ValueError):  # a value outside of the distribution that trials have now
            return None
        return configuration


def _whole(study: Study) -> Study:
    """Return the study of which a Hyperband pruner shows one bracket; any other study itself."""
    whole: Study = getattr(study, "_study", study)
    return whole


def _reward(direction: StudyDirection, trial: FrozenTrial) -> float | None:
    """Return the reward of a trial that was not pruned; None when it failed."""
    value: float | None = trial.value if trial.state == TrialState.COMPLETE else None
    return None if value is None or not math.isfinite(value) else _sign(direction) * value


def _sign(direction: StudyDirection) -> float:
    return 1.0 if direction == StudyDirection.MAXIMIZE else -1.0
