"""BBKB as a sampler of Optuna (Akiba, Sano, Yanase, Ohta, Koyama 2019).

Parameters are called p0, p1, … in the order of Optuna's distributions, and a categorical value is
represented by its index, because Optuna allows any names and any objects.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from bbkb.objectives.errors import checks_arguments
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Choice, Parameter, Range, Scalar, Space
from bbkb.orchestrator.ask_tell.checks import check_seed, named_strategy
from bbkb.orchestrator.ask_tell.space import Optimizer, ask_after
from bbkb.orchestrator.bandit.strategies.presets import StrategyChoice

Configuration = Mapping[str, Scalar]
Distributions = Mapping[str, BaseDistribution]
Values = dict[str, Any]  # Optuna's values: a choice may be any object


@dataclass
class _Read:
    """The trials of a study that were read."""

    study_name: str | None = None
    intersection: IntersectionSearchSpace = field(default_factory=IntersectionSearchSpace)
    trials_read: int = 0  # the number of trials read so far
    # open trial → its parameters; None: unknown
    open: dict[int, Configuration | None] = field(default_factory=dict)
    choosing: int = 0  # the number of earlier open trials with unknown parameters
    # open trial → the largest step that was learned
    reported: dict[int, int] = field(default_factory=dict)
    first_step: int | None = None  # 0 or 1, the first step of the study's trials


class BBKBSampler(BaseSampler):  # type: ignore[misc]  # Optuna's types are not followed
    """Proposes the parameters that all trials of a study have in common. `independent_sampler` draws
    the others.

    Each finished trial is read once, so the cost of a suggestion hardly grows with the study.
    Running trials, including those of other processes, count as pending. The model learns the
    reports (`trial.report`) of running, pruned and complete trials. The parameters of a failed
    trial, and of one that was pruned without a finite value, are not proposed again. The study must
    have one objective. A sampler that is passed to a second study forgets the first one.

    Args:
        seed: a whole number, >= 0; the same study with the same seed gets the same parameters.
        independent_sampler: draws the other parameters; None: random draws.
        strategy: as for `Optimizer`.

    Raises:
        ValueError: if the seed or the strategy is invalid; during a study, if it has several
            objectives.

    >>> import optuna
    >>> from bbkb.adapters import BBKBSampler
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=BBKBSampler(seed=1))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=30)
    >>> print(f"{study.best_params['x']:.1f}")
    0.3
    """

    @checks_arguments
    def __init__(
        self,
        *,
        seed: int = 0,
        independent_sampler: BaseSampler | None = None,
        strategy: StrategyChoice = "bbkb",
    ) -> None:
        self._strategy = named_strategy(strategy)  # raises before the first trial
        self._seed = check_seed(seed)
        self._independent = independent_sampler or RandomSampler(seed=seed)
        self._lock = threading.RLock()  # guards the fields below: a study may run trials in threads
        self._optimizer: Optimizer | None = None
        self._space: dict[str, BaseDistribution] = {}
        self._read = _Read()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that all finished trials have in common and that can vary."""
        study = _whole(study)
        with self._lock:
            if self._read.study_name != study.study_name:
                self._optimizer = None
                self._read = _Read(study.study_name)
            common = self._read.intersection.calculate(study)
        return {name: distribution for name, distribution in common.items() if not distribution.single()}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> Values:
        """Return a proposal for the whole space; empty if there is none yet."""
        if len(study.directions) > 1:
            raise ValueError(f"BBKBSampler is for one objective, the study has {len(study.directions)}")
        if not search_space:
            return {}
        with self._lock:
            optimizer = self._take_in(_whole(study), trial, search_space)
            if search_space.keys() & trial.system_attrs.get("fixed_params", {}).keys():
                # an enqueued trial has its own values, which are read when they are known
                return {}
            configurations = ask_after(optimizer, self._read.choosing)
            if not configurations:  # the strategy waits for results, but Optuna's workers cannot
                return {}
            self._read.open[trial.number] = configurations[0]
            return to_optuna(self._space, configurations[0])  # in the order of the optimizer

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> object:
        """Return a value of a parameter that is not common to all trials."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Draw a new seed for independent draws. Proposals depend on results and the seed."""
        self._independent.reseed_rng()

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def _take_in(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Optimizer:
        """Return the optimizer of this space, after learning everything that the study contains."""
        if self._optimizer is None or self._space != space:
            self._optimizer = Optimizer(space_of(space), "maximize", strategy=self._strategy, seed=self._seed)
            self._space = dict(space)
            # all trials are read again, for the new optimizer
            self._read = replace(self._read, trials_read=0, open={}, reported={})
        optimizer, read = self._optimizer, self._read
        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        trials = study.get_trials(deepcopy=False)
        read.open |= dict.fromkeys(range(read.trials_read, len(trials)))
        read.trials_read = len(trials)
        for number, configuration in read.open.items():
            if configuration is None and number != trial.number:
                read.open[number] = self._add_pending(optimizer, trials[number])
        known = {number: each for number, each in read.open.items() if each is not None}
        for number, configuration in known.items():
            values = trials[number].intermediate_values
            before = read.reported.get(number, -1)
            for step in sorted(reported_step for reported_step in values if reported_step > before):
                if read.first_step is None:
                    read.first_step = min(1, max(0, step))
                at = step + 1 - read.first_step
                if at >= 1:
                    optimizer.report(configuration, sign * values[step], at)
                read.reported[number] = step
        complete: list[tuple[Configuration, float]] = []
        failed: list[Configuration] = []
        for ended in (each for each in trials if each.number in known and each.state.is_finished()):
            read.reported.pop(ended.number, None)
            configuration = known[ended.number]
            value = ended.value if ended.state == TrialState.COMPLETE else None
            if ended.state == TrialState.PRUNED:
                optimizer.stop(configuration)
            elif value is None or not math.isfinite(value):
                failed.append(configuration)
            else:
                complete.append((configuration, sign * value))
        if complete:
            optimizer.tell([configuration for configuration, _ in complete], [value for _, value in complete])
        if failed:
            optimizer.fail(failed)
        read.open = {number: each for number, each in read.open.items() if not trials[number].state.is_finished()}
        read.choosing = sum(
            configuration is None and number < trial.number and trials[number].state == TrialState.RUNNING
            for number, configuration in read.open.items()
        )
        return optimizer

    def _add_pending(self, optimizer: Optimizer, trial: FrozenTrial) -> Configuration | None:
        """Mark a trial that was proposed elsewhere as pending, and return its parameters; None if
        they are not known yet, are not in the space, or the strategy accepts none from
        elsewhere."""
        if not set(self._space) <= set(trial.params):
            return None
        try:
            configuration = to_ours(self._space, trial.params)
            optimizer.mark_pending(configuration)
        except (ObjectiveError, ValueError):  # a value outside the present distribution
            return None
        return configuration


def _whole(study: Study) -> Study:
    """Return the complete study if a Hyperband pruner shows one bracket of it, else `study`."""
    whole: Study = getattr(study, "_study", study)
    return whole


def space_of(distributions: Distributions) -> Space:
    """Return the parameters by name; all `distributions` must have more than one value."""
    return {f"p{place}": _parameter(each) for place, each in enumerate(distributions.values())}


def to_ours(distributions: Distributions, values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Convert Optuna's values to values of the space."""
    return {
        f"p{place}": int(each.to_internal_repr(values[name])) if _is_choice(each) else values[name]
        for place, (name, each) in enumerate(distributions.items())
    }


def to_optuna(distributions: Distributions, values: Mapping[str, Any]) -> Values:
    """Convert values of the space to Optuna's."""
    return {
        name: each.choices[values[f"p{place}"]] if _is_choice(each) else values[f"p{place}"]
        for place, (name, each) in enumerate(distributions.items())
    }


def _is_choice(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, CategoricalDistribution)


def _parameter(distribution: BaseDistribution) -> Parameter:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return Choice(tuple(range(len(choices))))
        case IntDistribution(low=low, high=high, log=log, step=step):
            return Range(low, high, log=log, integer=True, step=None if step == 1 else step)
        case FloatDistribution(low=low, high=high, log=log, step=step):
            return Range(low, high, log=log, step=step)
    raise ValueError(f"BBKBSampler does not support {distribution}")
