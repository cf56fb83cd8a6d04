"""BBKB as a sampler of Optuna (Akiba, Sano, Yanase, Ohta, Koyama 2019)."""

import math
import threading
from collections.abc import Mapping, Sequence
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
from orchestrator.ask_tell.older import accepts_options
from orchestrator.ask_tell.space import Optimizer, ask_after
from orchestrator.ask_tell.strategy import StrategyChoice, named_strategy

Configuration = Mapping[str, Scalar]


class BBKBSampler(BaseSampler):  # type: ignore[misc]  # Optuna's types are not followed
    """Proposes the parameters that all trials of a study have in common. `independent_sampler` draws
    the others.

    Each finished trial is read once, so the cost of a suggestion hardly grows with the study.
    Running trials count as pending, those of other processes too. The model learns the reports
    (`trial.report`) of running, pruned and complete trials. The parameters of a failed trial, and of
    one that was pruned without a finite value, are not proposed again. The study must have one
    objective. A sampler that is given to a second study forgets the first one.

    Args:
        seed: a whole number, >= 0; the same study with the same seed gets the same parameters.
        independent_sampler: draws the other parameters; None: at random.
        strategy: as for `Optimizer`.

    Raises:
        ValueError: if the seed or the strategy is not allowed; during a study, if it has several
            objectives.

    >>> import optuna
    >>> from bbkb.adapters import BBKBSampler
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=BBKBSampler(seed=1))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=30)
    >>> print(f"{study.best_params['x']:.1f}")
    0.3
    """

    @accepts_options
    def __init__(
        self,
        *,
        seed: int = 0,
        independent_sampler: BaseSampler | None = None,
        strategy: StrategyChoice = "bbkb",
    ) -> None:
        self._strategy = named_strategy(strategy)  # raises before the first trial, not after it
        self._seed = check_seed(seed)
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
            configurations = ask_after(optimizer, self._choosing)
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
        """Draw a new seed for independent draws. Proposals depend on results and the given seed."""
        self._independent.reseed_rng()

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # earlier versions had no reports, options beside the strategy, and another name of `_trials_read`
        now = dict(state)
        if "_seen" in now:
            now["_trials_read"] = now.pop("_seen")
        now["_strategy"] = named_strategy(now["_strategy"], now.pop("_options", {}))
        self.__dict__.update({"_reported": {}, "_first_step": None, **now})
        self._lock = threading.RLock()

    def _begin(self, study_name: str | None) -> None:
        """Forget everything, and start with a study."""
        self._study_name = study_name
        self._intersection = IntersectionSearchSpace()
        self._space: dict[str, BaseDistribution] = {}
        self._optimizer: Optimizer | None = None
        self._trials_read = 0  # the number of trials that were read
        self._open: dict[int, Configuration | None] = {}  # by open trial; None: its parameters are not known yet
        self._choosing = 0  # earlier running trials whose parameters are not known yet
        self._reported: dict[int, int] = {}  # open trial → its largest step that was learned
        self._first_step: int | None = None  # 0 or 1: the first step of the study's trials

    def _take_in(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Optimizer:
        """Return the optimizer of this space, after all that the study knows now."""
        optimizer = self._optimizer_of(space)
        trials = study.get_trials(deepcopy=False)
        self._open |= dict.fromkeys(range(self._trials_read, len(trials)))
        self._trials_read = len(trials)
        for number, configuration in self._open.items():
            if configuration is None and number != trial.number:
                self._open[number] = self._add_pending(optimizer, trials[number])
        known = {number: each for number, each in self._open.items() if each is not None}
        for number, configuration in known.items():
            self._report(optimizer, trials[number], configuration, _sign(study.direction))
        self._end(optimizer, [each for each in trials if each.number in known and each.state.is_finished()], study)
        self._open = {number: each for number, each in self._open.items() if not trials[number].state.is_finished()}
        self._choosing = sum(
            configuration is None and number < trial.number and trials[number].state == TrialState.RUNNING
            for number, configuration in self._open.items()
        )
        return optimizer

    def _optimizer_of(self, space: dict[str, BaseDistribution]) -> Optimizer:
        """Return the optimizer of this space; a new one if the space has changed."""
        if self._optimizer is None or self._space != space:
            self._optimizer = Optimizer(space_of(space), "maximize", strategy=self._strategy, seed=self._seed)
            self._space = dict(space)
            self._trials_read = 0
            self._open = {}
            self._reported = {}
        return self._optimizer

    def _end(self, optimizer: Optimizer, ended: Sequence[FrozenTrial], study: Study) -> None:
        """Let the optimizer learn the results of trials that have ended since the last time."""
        complete: list[tuple[Configuration, float]] = []
        failed: list[Configuration] = []
        for trial in ended:
            self._reported.pop(trial.number, None)
            configuration = self._open[trial.number] or {}
            value = _reward(study.direction, trial)
            if trial.state == TrialState.PRUNED:
                optimizer.stop(configuration)
            elif value is None:
                failed.append(configuration)
            else:
                complete.append((configuration, value))
        if complete:
            optimizer.tell([configuration for configuration, _ in complete], [value for _, value in complete])
        if failed:
            optimizer.fail(failed)

    def _report(self, optimizer: Optimizer, trial: FrozenTrial, configuration: Configuration, sign: float) -> None:
        """Let the optimizer learn the trial's reports since the last time."""
        before = self._reported.get(trial.number, -1)
        for step in sorted(reported_step for reported_step in trial.intermediate_values if reported_step > before):
            if self._first_step is None:
                self._first_step = min(1, max(0, step))
            at = step + 1 - self._first_step
            if at >= 1:
                optimizer.report(configuration, sign * trial.intermediate_values[step], at)
            self._reported[trial.number] = step

    def _add_pending(self, optimizer: Optimizer, trial: FrozenTrial) -> Configuration | None:
        """Mark a trial that was proposed elsewhere as pending, and return its parameters; None if they
        are not known yet, are not of the space, or the strategy takes none from elsewhere."""
        if not set(self._space) <= set(trial.params):
            return None
        try:
            configuration = to_ours(self._space, trial.params)
            optimizer.mark_pending(configuration)
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
