"""`Optimizer`: ask and tell configurations of a search space, without a campaign.

It checks the arguments and converts configurations and values; `orchestrator.ask_tell.search` runs
the search.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from objectives.conditions import Scalar
from objectives.goals import Constraint, Direction, Objective
from objectives.objective import Candidates
from orchestrator.ask_tell.checks import (
    check_direction,
    check_limit,
    check_metrics,
    check_numbers,
    check_seed,
    check_values,
)
from orchestrator.ask_tell.learner import RewardSumError
from orchestrator.ask_tell.locking import exclusive
from orchestrator.ask_tell.logs import dump_log, repeat_log
from orchestrator.ask_tell.memory import ArmResult
from orchestrator.ask_tell.saving import FORMAT, Entry, read_saved, write_saved
from orchestrator.ask_tell.setup import SearchSetup
from orchestrator.ask_tell.space_arguments import (
    Space,
    as_list,
    build_goals,
    build_search_space,
    check_configurations,
    check_steps,
    complete_enqueue,
    refuse_array,
)
from orchestrator.ask_tell.strategy import StrategyChoice, named_strategy
from orchestrator.bandit.strategy import Posterior, never_waits
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.wording import facts_html

Configuration = dict[str, Scalar]
Configurations = Sequence[Mapping[str, Scalar]] | Mapping[str, Scalar]
Values = Sequence[float | Mapping[str, float] | Sequence[float] | None] | ArrayLike

CANDIDATE_LIMIT = 20_000  # candidates that are kept at most


class Optimizer:
    """Finds the best configuration of a search space, by asking for evaluations and learning their
    values.

    Candidates are all configurations of a finite space of at most 100 000; otherwise 1024 Sobol
    points, to which more are appended around the best ones as results come in. Several threads may
    use one optimizer. `CandidateOptimizer(array)` is the same for candidates that are the rows of
    an array.

    Args:
        space: parameters by name: `Range`, `Choice`, `Ordered`, or mappings as in a campaign file.
        direction: "minimize" or "maximize" the values; None: that of the first of `objectives`,
            else "maximize".
        objectives: several objectives, [Objective("accuracy"), Objective("seconds", "minimize")].
            Values are then mappings of metrics, or numbers in the order of `metrics`.
        constraints: bounds on metrics, [Constraint("memory_gb", at_most=4)].
        strategy: its name: bbkb, uniform, gp_ucb, …, which `bbkb strategies` lists; `module:Name`
            or a class of your own; or an object with all its options.
        seed: a whole number, >= 0; the same calls with the same seed give the same configurations.
        forbid: combinations that are no candidates, such as [{"model": "svm", "kernel": "poly"}].
        enqueue: configurations that are asked for first; what they leave out is drawn.
        candidate_limit: the largest number of candidates; the worst ones that were never asked for
            are retired.
        steps: the step at which a training ends. `report` then says whether a training goes on, and
            `ask` returns configurations of stopped ones again when they look good; None: `report`
            stops none.
        first_trials: how many trainings are stopped after about an eighth of `steps`, before the
            best ones go on.
        checkpoints: whether a training that `ask` returns again goes on after the step that it
            reached; False: it begins anew, and so it is stopped less often.
        **options: fields of the strategy.

    Raises:
        ObjectiveError: when the space is not allowed.
        ValueError: when an option is not allowed.

    >>> from bbkb import Optimizer, Range
    >>> optimizer = Optimizer(space={"x": Range(0.0, 1.0), "n": Range(1, 9, integer=True)}, direction="minimize")
    >>> for _ in range(40):
    ...     configurations = optimizer.ask(2)
    ...     optimizer.tell(configurations, [(c["x"] - 0.3) ** 2 + (c["n"] - 4) ** 2 for c in configurations])
    >>> best, value = optimizer.best()
    >>> print(f"x = {best['x']:.1f}, n = {best['n']}")
    x = 0.3, n = 4
    """

    def __init__(
        self,
        space: Space,
        direction: Direction | None = None,
        *,
        objectives: Sequence[Objective | Mapping[str, object]] = (),
        constraints: Sequence[Constraint | Mapping[str, object]] = (),
        strategy: StrategyChoice = "bbkb",
        seed: int = 0,
        forbid: Sequence[Mapping[str, object]] = (),
        enqueue: Sequence[Mapping[str, Scalar]] = (),
        candidate_limit: int = CANDIDATE_LIMIT,
        steps: int | None = None,
        first_trials: int = 0,
        checkpoints: bool = True,
        **options: object,
    ) -> None:
        refuse_array(space)
        check_direction(direction)
        if "existing" in options:
            raise ValueError("existing must be left out with a space; pass earlier results to tell instead")
        if "limit" in options:
            raise ValueError("limit must be written candidate_limit; `limit` is an argument of ask")
        instance = named_strategy(strategy, options)
        goals = build_goals(objectives, constraints, direction, instance)
        full = build_search_space(space, forbid, instance)
        setup = SearchSetup(
            space=full,
            goals=goals,
            strategy=instance,
            seed=check_seed(seed),
            enqueue=complete_enqueue(full, enqueue, check_seed(seed)),
            candidate_limit=check_limit(candidate_limit, "candidate_limit"),
            steps=None if steps is None else check_limit(steps, "steps"),
            first_trials=check_limit(first_trials, "first_trials") if first_trials else 0,
            checkpoints=checkpoints,
        )
        check_steps(setup)
        self._lock = threading.RLock()
        self._setup = setup
        self._search = setup.search()
        self._search.enqueue(self._search.arms_of(setup.enqueue))

    @exclusive
    def ask(self, limit: int | None = None, *, skip: int = 0) -> list[Configuration]:
        """Choose the configurations to evaluate next, as a list; they are pending until `tell` gets
        their values.

        The list is empty when `tell` must get values of pending configurations first, or when no
        candidate is left.

        Args:
            limit: the largest number of configurations, >= 1; None: the strategy's own batch, and 1
                for strategies without batches.
            skip: how many configurations to choose before them and leave out, because other
                processes with the same results choose them at the same time.
        """
        if skip < 0:
            raise ValueError(f"skip must be >= 0, got {skip}")
        default = 1 if never_waits(self._setup.strategy) else len(self.candidates)
        arms = self._search.ask(default if limit is None else check_limit(limit), skip)
        return [self.candidates.parameters(arm) for arm in arms]

    @exclusive
    def expect(self, configurations: Configurations) -> None:
        """Mark configurations that `ask` did not return as pending, until `tell` gets their values.

        Args:
            configurations: parameters by name, a mapping for each evaluation; or one mapping.

        Raises:
            ObjectiveError: when one is not of the space.
        """
        self._search.mark_pending(self._search.arms_of(check_configurations(configurations)))

    @exclusive
    def tell(self, configurations: Configurations, values: Values | float | Mapping[str, float] | None) -> None:
        """Report results. Order and batching do not matter; configurations that `ask` did not
        return are accepted.

        Args:
            configurations: parameters by name, a mapping for each result (n,); or one mapping.
            values: one for each (n,); None: it could not be evaluated, and is not asked for again.
                With several objectives or constraints a mapping of metrics each, or an array (n, m)
                with the `metrics` in order. Beside one configuration, its value or its mapping.

        Raises:
            ObjectiveError: when a configuration is not of the space. Nothing is learned then.
            ValueError: when a value is not a finite number, or their numbers differ. Nothing is
                learned then.
        """
        if isinstance(configurations, Mapping):
            values = as_list(values)
        told = check_configurations(configurations)
        first = self.metrics[0]
        if self._goals.is_single:
            checked = [ArmResult(0, value) for value in check_values(values, first, len(told))]
        else:
            checked = [_several(metrics, first) for metrics in check_metrics(values, self.metrics, len(told))]
        arms = self._search.arms_of(told)
        try:
            self._search.tell([replace(result, arm=arm) for arm, result in zip(arms, checked, strict=True)])
        except RewardSumError as error:
            rule = f"the values of {self.candidates.parameters(error.arm)} add up to more than a float can hold"
            raise ValueError(f"{rule}; divide all by a constant") from error

    @exclusive
    def report(self, configuration: Mapping[str, Scalar], value: float, step: int) -> bool:
        """Report a value of a training before its end, and ask whether it goes on.

        The model learns the values of all trainings. With `steps` a training is stopped after ½, ¼,
        … of them, at step 3 at the earliest (without `checkpoints`: when it is worse than the median
        of others at its step), and when the model expects its end to be worse than the best value;
        after the first 60 trainings one in twenty goes on nevertheless, so that a wrong belief is
        noticed. A stopped training is paused: keep its checkpoint, because `ask` returns its
        configuration again when it looks best. After its last step, give its final value to `tell`.

        Args:
            configuration: one that `ask` returned, or any other of the space; one training of each
                at a time.
            value: at the step, on the scale of `tell`; NaN or infinite when the training diverges.
            step: counted from 1; a step that was reported before changes nothing.

        Returns:
            False: stop this training now. Always True without `steps`.

        Raises:
            ObjectiveError: when the configuration is not of the space.
            ValueError: when `step` is no whole number >= 1, or `value` no number.
        """
        number = float(check_numbers(value, "value").reshape(()))
        at = check_limit(step, "step")
        arms = self._search.arms_of(check_configurations(configuration))
        return self._search.report(arms[0], at, number)

    @exclusive
    def stop(self, configuration: Mapping[str, Scalar]) -> None:
        """End a training before its last step for good: the model keeps what it reported, and `ask`
        does not return it to be continued. One that reported nothing counts as failed.

        Args:
            configuration: of a training that runs or is paused.

        Raises:
            ObjectiveError: when the configuration is not of the space.
        """
        self._search.stop(self._search.arms_of(check_configurations(configuration))[0])

    @exclusive
    def reached(self, configuration: Mapping[str, Scalar]) -> int:
        """Return the largest step that a training which has not ended has reported: it goes on
        after it. 0 for a new one.

        Args:
            configuration: parameters by name.

        Raises:
            ObjectiveError: when the configuration is not of the space.
        """
        arms = self._search.arms_of(check_configurations(configuration))
        return self._search.campaign.last_step(arms[0])

    @property
    @exclusive
    def paused(self) -> list[Configuration]:
        """Stopped trainings' configurations that `ask` may return, the longest trained first."""
        return [self.candidates.parameters(arm) for arm in self._search.campaign.paused]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the objectives, then those of the constraints, each once."""
        return (self._goals.objectives[0].metric, *self._goals.further_metrics)

    @property
    @exclusive
    def trials(self) -> list[Entry]:
        """The results, in the order of `tell`: `configuration` and `value`, a mapping of several
        metrics, None for what could not be evaluated."""
        parameters = self.candidates.parameters
        first, is_single = self.metrics[0], self._goals.is_single
        return [
            {
                "configuration": parameters(each.arm),
                "value": each.value if is_single or each.value is None else {first: each.value, **each.metrics},
            }
            for each in self._search.campaign.results
        ]

    @property
    @exclusive
    def pending(self) -> list[Configuration]:
        """The configurations that `ask` returned and whose values are not known yet, in order."""
        return [self.candidates.parameters(arm) for arm in self._search.campaign.pending]

    @property
    @exclusive
    def candidates(self) -> Candidates:
        """All candidates there are now."""
        candidates = self._search.candidates
        assert candidates is not None
        return candidates.pool.candidates

    @property
    @exclusive
    def posterior(self) -> Posterior:
        """Mean, variance and upper confidence bound of every one of `candidates`, of rewards, which
        are values times −1 where they are minimised; and the unit of the variance."""
        return self._search.learner.posterior

    @exclusive
    def scores(self, values: ArrayLike) -> NDArray[np.float64]:
        """Transform values (n,) as the model sees them: to scores among the results so far under a
        calibrated model; unchanged otherwise. Values that are minimised are multiplied by −1 first.

        Args:
            values: numbers (n,).

        Raises:
            ValueError: before any result, and when they are no numbers.
        """
        return self._search.learner.scores(self._sign * check_numbers(values, "values"))

    @exclusive
    def best(self) -> tuple[Configuration, float]:
        """Return the configuration to recommend, and the mean of its values. Raises ValueError
        before any value.

        The one with the best mean value; where the fitted model says that values are noisy, the
        evaluated one with the best estimate. With constraints the best one that satisfies
        them; with several objectives that of the `front` which is best in the first one, and its
        value.
        """
        learner = self._search.learner
        if not len(learner.view.pulls.finished_arms):
            raise ValueError("best needs at least one value; call ask, evaluate, and call tell first")
        if not self._goals.is_single:
            if not (front := self.front()):
                raise ValueError("no configuration with a result satisfies all constraints")
            return front[0][0], front[0][1][self._goals.objectives[0].metric]
        arm, reward = learner.best()
        return self.candidates.parameters(arm), self._sign * reward

    @exclusive
    def front(self) -> list[tuple[Configuration, dict[str, float]]]:
        """Return the configurations that satisfy all constraints and that no other one is better
        than in every objective, with the mean values of the objectives; the best of the first
        objective first."""
        objectives = self._goals.objectives
        return [
            (
                self.candidates.parameters(arm),
                {
                    objective.metric: objective.sign * reward
                    for objective, reward in zip(objectives, rewards, strict=True)
                },
            )
            for arm, rewards in self._search.learner.front(len(objectives))
        ]

    @exclusive
    def save(self, path: str | Path) -> None:
        """Write everything to a file as JSON, whole or not at all.

        Args:
            path: the file to write.
        """
        write_saved(path, self.__getstate__())

    @exclusive
    def __getstate__(self) -> Entry:
        """Return what is saved, and pickled."""
        return {"format": FORMAT, **self._setup.dump(), "log": dump_log(self._search.campaign.events)}

    def __setstate__(self, saved: Entry) -> None:
        self._lock = threading.RLock()
        self._setup = SearchSetup.build(saved)
        self._search = self._setup.search()
        if saved.get("format", 1) == 1:
            self._search.enqueue(self._search.arms_of(self._setup.enqueue))
        repeat_log(self._search, saved)

    @classmethod
    def load(cls, path: str | Path, *, run_code: bool = False) -> Self:
        """Read the optimizer that `save` wrote; it continues exactly as the saved one would.

        Args:
            path: the file that was written.
            run_code: whether the module of a strategy of your own may be imported, which runs its
                code. Without it, such a strategy must be imported already.

        Raises:
            ValueError: when it cannot be read, or was not written by an `Optimizer`.
        """
        return read_saved(path, cls._from_saved, "space", run_code)

    @classmethod
    def _from_saved(cls, saved: Entry) -> Self:
        optimizer = cls.__new__(cls)
        optimizer.__setstate__(saved)
        return optimizer

    @property
    def _goals(self) -> CampaignGoals:
        return self._setup.goals

    @property
    def _sign(self) -> float:
        return self._goals.objectives[0].sign

    @exclusive
    def __repr__(self) -> str:
        size, results, pending = len(self._setup.space.parameters), len(self.trials), len(self.pending)
        goals = ", ".join(map(str, self._goals.objectives))
        return f"<Optimizer of {size} parameters, {goals}: {results} results, {pending} pending>"

    @exclusive
    def _repr_html_(self) -> str:
        """Return a small table, for notebooks."""
        goals = ", ".join(map(str, (*self._goals.objectives, *self._goals.constraints)))
        facts = [("goals", goals), ("results", str(len(self.trials))), ("pending", str(len(self.pending)))]
        if self._goals.is_single:
            facts[0] = ("direction", "maximize" if self._goals.objectives[0].is_maximized else "minimize")
        if len(self._search.learner.view.pulls.finished_arms) and self.front():
            configuration, value = self.best()
            facts += [("best value", f"{value:.6g}")]
            listed = (f"{name}={setting!r}" for name, setting in configuration.items())
            facts += [("best configuration", ", ".join(listed))]
        return facts_html(f"Optimizer of {', '.join(self._setup.space.parameters)}", facts)


def _several(metrics: Mapping[str, float] | None, first: str) -> ArmResult:
    if metrics is None:
        return ArmResult(0, None)
    return ArmResult(0, metrics[first], {name: value for name, value in metrics.items() if name != first})
