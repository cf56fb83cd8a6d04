"""BBKB as a sampler of Optuna (Akiba, Sano, Yanase, Ohta, Koyama 2019)."""

import math
import threading
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from objectives.objective import ObjectiveError
from orchestrator.adapters.optuna_space import space_of, to_optuna, to_ours
from orchestrator.adapters.proposing import Proposer, Result


class BBKBSampler(BaseSampler):  # type: ignore[misc]  # Optuna's types are not followed
    """Proposes the parameters that all trials of a study have in common; others are drawn by `independent_sampler`.

    `candidates`: how many stand for a space with a continuous parameter; a finite space is taken whole. `strategy` and
    `options` are those of `Optimizer`. A trial that is over is looked at once, so the cost of a suggestion hardly
    grows with the study. Running trials count as pending, those of other processes at the candidate nearest to their
    parameters. A pruned trial counts with its last intermediate value, a failed one as a candidate that cannot be
    evaluated. For studies with one objective; raises ValueError on others.

    >>> import optuna
    >>> from orchestrator.adapters.optuna import BBKBSampler
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=BBKBSampler(seed=1, candidates=256))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=30)
    >>> print(f"{study.best_params['x']:.1f}")
    0.3
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        candidates: int = 4096,
        independent_sampler: BaseSampler | None = None,
        strategy: str = "bbkb",
        **options: Any,
    ) -> None:
        self._seed, self._candidates, self._strategy, self._options = seed, candidates, strategy, options
        self._independent = independent_sampler or RandomSampler(seed=seed)
        self._intersection = IntersectionSearchSpace()
        self._lock = threading.RLock()  # of what follows: a study may run trials in threads
        self._space: dict[str, BaseDistribution] = {}
        self._proposer: Proposer | None = None
        self._seen = 0  # how many trials were looked at
        self._open: dict[int, int | None] = {}  # those that are not over, and their candidates; None: not known yet

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all finished trials have in common and that can vary."""
        with self._lock:
            common = self._intersection.calculate(study)
        return {name: distribution for name, distribution in common.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A proposal for the whole space; empty before there is one."""
        if len(study.directions) > 1:
            raise ValueError(f"BBKBSampler is for one objective, the study has {len(study.directions)}")
        if not search_space:
            return {}
        with self._lock:
            proposer = self._take_in(study, trial, search_space)
            candidate = proposer.propose()
            if candidate is None:  # the strategy waits for results: a worker of Optuna cannot
                return {}
            self._open[trial.number] = candidate
            return to_optuna(search_space, proposer.parameters(candidate))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value of a parameter that is not common to all trials."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """A new seed for independent draws; proposals depend on the results and the given seed."""
        self._independent.reseed_rng()

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock."""
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def _take_in(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> Proposer:
        """The proposer of this space, with everything that the study knows by now."""
        if self._proposer is None or self._space != space:
            self._proposer = Proposer(space_of(space), self._seed, self._candidates, self._strategy, self._options)
            self._space, self._seen, self._open = dict(space), 0, {}
        trials = study.get_trials(deepcopy=False)
        self._open |= dict.fromkeys(range(self._seen, len(trials)))
        self._seen = len(trials)
        results: list[Result] = []
        for number, candidate in list(self._open.items()):
            one = trials[number]
            place = self._nearest(one) if candidate is None and number != trial.number else candidate
            if one.state.is_finished():
                del self._open[number]
                results += [] if place is None else [(place, _reward(study.direction, one))]
            elif candidate is None and place is not None:
                self._open[number] = place
                self._proposer.expect(place)
        self._proposer.report(results)
        return self._proposer

    def _nearest(self, trial: FrozenTrial) -> int | None:
        """The candidate that stands for the trial; None when its parameters are not those of the space."""
        if self._proposer is None or not set(self._space) <= set(trial.params):
            return None
        try:
            return self._proposer.nearest(to_ours(self._space, trial.params))
        except (ObjectiveError, ValueError):  # a value outside of the distribution that trials have now
            return None


def _reward(direction: StudyDirection, trial: FrozenTrial) -> float | None:
    """What the trial found, maximised; None when it failed, or was pruned before it reported a finite value."""
    value: float | None = trial.value if trial.state == TrialState.COMPLETE else None
    if trial.state == TrialState.PRUNED and trial.last_step is not None:
        value = trial.intermediate_values[trial.last_step]
    if value is None or not math.isfinite(value):
        return None
    return value if direction == StudyDirection.MAXIMIZE else -value
