"""`Optimizer`: ask and tell for configurations of a search space, without a campaign.

This module checks the arguments and converts configurations and values;
`bbkb.orchestrator.ask_tell.search` runs the search. `ask` returns each configuration as an `OpenTrial`.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bbkb.objectives.errors import checks_arguments
from bbkb.objectives.objective import Candidates, ObjectiveError
from bbkb.objectives.parameters import Parameter, Parameters
from bbkb.objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.orchestrator.ask_tell.base import AskTell, Entry, Kind, exclusive
from bbkb.orchestrator.ask_tell.checks import (
    check_deviations,
    check_limit,
    check_metrics,
    check_numbers,
    check_report,
    check_seed,
    named_strategy,
)
from bbkb.orchestrator.ask_tell.search import ArmResult, Search
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.start.warm_start import begins_at_center
from bbkb.orchestrator.bandit.strategies.presets import StrategyChoice
from bbkb.orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, never_waits
from bbkb.orchestrator.campaign.goals import Constraint, Direction, Objective
from bbkb.orchestrator.campaign.results import Trials
from bbkb.orchestrator.campaign.settings import UNLIMITED, Budget, ModelStopping, ObjectiveSettings, Settings, plain
from bbkb.orchestrator.campaign.trainings import first_steps_without_budget
from bbkb.orchestrator.engine.pool import Pool, grows_in
from bbkb.orchestrator.settings.arguments import check_direction, check_goals, check_list, check_mappings, check_space
from bbkb.orchestrator.settings.loading import checked_goals, deviation_rule
from bbkb.orchestrator.settings.mistakes import RefusalError
from bbkb.orchestrator.settings.options import adapter
from bbkb.orchestrator.settings.spaces import build_forbid, build_space, completed_enqueue, prior_problems
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy

Space = Mapping[str, Parameter | Mapping[str, object]] | SearchSpace

STOPPED_FROM = 3  # the first step at which trials are paused or compared
NAME = "optimizer"  # of the settings
DEVIATION = "deviation"  # the metric of the deviations that `tell` gets
_SAVED = ("seed", "objective", "objectives", "constraints", "space", "forbid", "enqueue", "early_stopping")


def build_search(settings: Settings, strategy: AnyStrategy) -> Search:
    """Return the search before any event."""
    space = SearchSpace(settings.space, settings.forbid)
    grows = grows_in(strategy, space)
    points = GROWING_SIZE if grows else DEFAULT_SIZE
    candidates = make_candidates(
        space,
        size=None,
        sampler="sobol",
        seed=settings.seed,
        first=settings.enqueue,
        points=points,
        at_center=begins_at_center(strategy),
    )
    return Search(strategy, Pool(candidates, space, grows), settings)


def training_rule(
    settings: Settings, strategy: AnyStrategy, steps: int | None, first_trials: int, checkpoints: object
) -> ModelStopping | None:
    """Return the rule for trainings in `steps`; None without them. Raises ValueError if the arguments, the
    strategy or the goals do not allow them."""
    if steps is None:
        needs = "needs steps, the step at which a training ends; got"
        if first_trials:
            raise ValueError(f"first_trials {needs} {first_trials}")
        if checkpoints is not True:
            raise ValueError(f"checkpoints {needs} {checkpoints!r}")
        return None
    last_step = check_limit(steps, "steps")
    if not isinstance(checkpoints, bool):
        raise ValueError(f"checkpoints must be True or False, got {checkpoints!r}")
    if not settings.goals.is_single:
        raise ValueError("steps needs a single objective without constraints; leave out steps")
    if not isinstance(strategy, LearnsCurves) or model_of(strategy) is None:
        able = "a strategy whose model learns curves, such as bbkb with its default preset"
        raise ValueError(f"steps needs {able}; leave out steps, got {strategy!r}")
    return ModelStopping(
        first_trials=check_limit(first_trials, "first_trials") if first_trials else 0,
        first_steps=first_steps_without_budget(last_step, checkpoints),
        continues=True if checkpoints else "anew",
        last_step=last_step,
        after=STOPPED_FROM,
    )


def check_configurations(configurations: object) -> list[Parameters]:
    """Return the configurations as a list; a single one need not be in a list."""
    if isinstance(configurations, Mapping):
        return [configurations]
    return check_list(configurations, "configurations", "[configuration]")


Value = float | Mapping[str, float]  # several metrics by name
Configurations = Sequence[Parameters] | Parameters
Values = Sequence[Value | Sequence[float]] | ArrayLike


class Optimizer(AskTell):
    """Finds the best configuration of a search space: `ask` proposes trials, `tell` takes results.

    The candidates are all configurations of a finite space of at most 100 000. Otherwise, they are
    1024 Sobol points at first, and more are appended around the best ones as results arrive.
    Several threads may use one optimizer. `CandidateOptimizer(array)` is the equivalent for
    candidates that are the rows of an array.

    Args:
        space: parameters by name: `Range`, `Choice`, `Ordered`, or mappings as in a campaign file.
        direction: "minimize" or "maximize" the values. Required, unless `objectives` are given,
            each of which has a direction.
        objectives: several objectives, [Objective("accuracy"), Objective("seconds", "minimize")].
            Values are then mappings of metrics, or numbers in the order of `metrics`.
        constraints: bounds on metrics, [Constraint("memory_gb", at_most=4)].
        strategy: an object with options, such as `BBKB(coverage=0.1)` from `bbkb.strategies`; or a
            name: bbkb, uniform, gp_ucb, …, which `bbkb strategies` lists; or `module:Name` or a
            class of your own.
        seed: a whole number, >= 0; the same calls with the same seed return the same results.
        forbid: excluded combinations of values, such as [{"model": "svm", "kernel": "poly"}].
        enqueue: configurations that `ask` returns first; omitted parameters are drawn.
        steps: the step at which a training ends. `report` then returns whether a training
            continues, and `ask` returns stopped trainings again if they are promising. None:
            trainings are never stopped.
        first_trials: the number of trainings that are stopped after about an eighth of `steps`
            before the best ones continue.
        checkpoints: whether a training that `ask` returns again continues after its last step. If
            False, it restarts from step 1, so trainings are stopped less often.

    Raises:
        ObjectiveError: if the space is invalid.
        ValueError: if an argument is invalid.

    >>> from bbkb import Optimizer, Range
    >>> optimizer = Optimizer(space={"x": Range(0.0, 1.0), "n": Range(1, 9, integer=True)}, direction="minimize")
    >>> for _ in range(40):
    ...     configurations = optimizer.ask(2)
    ...     optimizer.tell(configurations, [(c["x"] - 0.3) ** 2 + (c["n"] - 4) ** 2 for c in configurations])
    >>> best = optimizer.best.parameters
    >>> print(f"x = {best['x']:.1f}, n = {best['n']}")
    x = 0.3, n = 4
    """

    KIND: ClassVar[Kind] = "space"

    @checks_arguments
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
        enqueue: Sequence[Parameters] = (),
        steps: int | None = None,
        first_trials: int = 0,
        checkpoints: bool = True,
    ) -> None:
        instance = named_strategy(strategy)
        if isinstance(space, Arms) or hasattr(space, "__array__") or isinstance(space, list | tuple):
            shape = "" if isinstance(space, Arms) else f" of shape {np.shape(np.asarray(space, object))}"
            raise ValueError(
                f"space must be parameters by name such as {{'x': Range(0, 1)}}, got {type(space).__name__}{shape}; "
                "for candidates that are the rows of an array write CandidateOptimizer(array, …)"
            )
        if isinstance(space, SearchSpace):  # it contains its forbidden combinations
            full = space
        else:
            try:
                clauses = build_forbid(check_mappings(forbid, "forbid", "[{'model': 'svm'}]"))
            except RefusalError as error:
                raise RefusalError(problem.below("forbid") for problem in error.problems) from None
            full = SearchSpace(build_space(check_space(space, "use CandidateOptimizer(array)")), clauses)
        if problems := prior_problems(full.parameters, instance):
            raise ObjectiveError(str(problems[0]))
        check_direction(direction)
        sections = {
            "objectives": check_goals(objectives, "objectives", "[Objective('accuracy')]"),
            "constraints": check_goals(constraints, "constraints", "[Constraint('memory_gb', at_most=4)]"),
        }
        goals, limits = checked_goals(sections, instance)
        if goals and direction not in (None, goals[0].direction):
            raise ValueError(
                f"direction must not be given with objectives, which have directions, got {direction!r}: leave it out"
            )
        given = check_mappings(enqueue, "enqueue", "[{'x': 0.5}]")
        enqueued, problems = completed_enqueue(full, given, check_seed(seed))
        if problems:
            raise ObjectiveError(str(problems[0]))
        settings = Settings(
            name=NAME,
            seed=check_seed(seed),
            objective=ObjectiveSettings(direction=direction, deviation=None if len(goals) > 1 or limits else DEVIATION),
            objectives=goals,
            constraints=limits,
            space=full.parameters,
            forbid=full.forbid,
            enqueue=tuple(enqueued),
            budget=Budget(evaluations=UNLIMITED),
        )
        check_direction(direction, is_needed=not objectives)
        rule = training_rule(settings, instance, steps, first_trials, checkpoints)
        super().__init__(build_search(replace(settings, early_stopping=rule), instance))
        self._search.enqueue(self._search.arms_of(settings.enqueue))

    @property
    def _title(self) -> str:
        settings = self._search.state.settings
        goals = (*settings.goals.objectives, *settings.goals.constraints)
        return f"{', '.join(settings.space)}, {', '.join(map(str, goals))}"

    def _arguments(self) -> Entry:
        tree = plain(self._search.state.settings)
        return {**{key: tree[key] for key in _SAVED}, "strategy": dump_strategy(self._search.strategy)}

    @staticmethod
    def _begun(saved: Mapping[str, Any]) -> Search:
        given = {**{key: saved[key] for key in _SAVED}, "name": NAME, "budget": {"evaluations": 1}}
        return build_search(adapter(Settings).validate_python(given), build_strategy(saved["strategy"]))

    @exclusive
    def ask(self, limit: int | None = None, fixed: Parameters | None = None) -> "list[OpenTrial]":
        """Choose the configurations to evaluate next. They are pending until `tell` receives their
        values.

        Each one is a dictionary of parameters with methods that report its evaluation. The list is
        empty if `tell` must first receive values of pending configurations, or if no candidate is
        left.

        Args:
            limit: the largest number of configurations, >= 1; None: the strategy's own batch, and 1
                for strategies without batches.
            fixed: values that these configurations must have, such as {"batch_size": 64}. Enqueued
                configurations and stopped trainings wait for a call without it.

        Raises:
            ObjectiveError: if no allowed configuration has the `fixed` values, or the strategy does not
                support them.
        """
        if fixed:
            count = 1 if limit is None else check_limit(limit)
            return self._trials(self._search.ask_with(check_configurations(fixed)[0], count))
        if limit is None:
            limit = 1 if never_waits(self._search.strategy) else len(self.candidates)
        return self._trials(self._search.ask(check_limit(limit)))

    @exclusive
    def mark_pending(self, configurations: Configurations) -> None:
        """Mark configurations that `ask` did not return as pending, until `tell` gets their values.

        Args:
            configurations: parameters by name, a mapping for each evaluation; or a single one.

        Raises:
            ObjectiveError: if one does not belong to the space.
        """
        self._search.mark_pending(self._search.arms_of(check_configurations(configurations)))

    @exclusive
    def tell(
        self,
        configurations: Configurations,
        values: Values | Value,
        deviation: float | Sequence[float] | None = None,
    ) -> None:
        """Report results. Order and batching do not matter. Configurations that `ask` did not
        return are accepted. One that equals a pending configuration up to rounding ends that one.

        Args:
            configurations: parameters by name, a mapping for each result (n,); or a single one.
            values: one for each configuration (n,). With several objectives or constraints, each
                value is a mapping of metrics, or `values` is an array (n, m) with the `metrics` in
                order. For a single configuration, its value or its mapping.
            deviation: the standard deviation of each value's noise (n,), >= 0, if it is known; 0: the value is
                exact. For a single configuration, a number. Results without one count as typical ones.

        Raises:
            ObjectiveError: if a configuration does not belong to the space. Nothing is learned
                then.
            ValueError: if a value is not a finite number, a deviation is negative or not supported, or the
                numbers of configurations, values and deviations differ. No result is then recorded.
        """
        told = check_configurations(configurations)
        is_alone = isinstance(configurations, Mapping)
        is_listed = isinstance(values, list | tuple) and len(values) == 1
        rows = [values] if is_alone and not is_listed else values
        metrics = check_metrics(rows, self.metrics, len(told))
        if deviation is not None:
            if rule := deviation_rule(self._search.state.settings, self._search.strategy):
                raise ValueError(f"deviation {rule}")
            for row, number in zip(metrics, check_deviations(deviation, len(told)), strict=True):
                row[DEVIATION] = number
        self._tell(told, metrics)

    @exclusive
    def fail(self, configurations: Configurations) -> None:
        """Report that evaluations failed. `ask` does not return these configurations again.

        Args:
            configurations: parameters by name, a mapping for each evaluation; or a single one.

        Raises:
            ObjectiveError: if one does not belong to the space.
        """
        failed = check_configurations(configurations)
        self._tell(failed, [None] * len(failed))

    @exclusive
    def report(self, configuration: Parameters, value: Value, step: int) -> bool:
        """Report a value of a training before its end, and return whether the training continues.

        The model learns the values of all trainings. With `steps`, a training is stopped in three
        cases: after ½, ¼, … of them, but not before step 3 (without `checkpoints`: if it is worse
        than the median of others at its step); if the model expects a final value worse than the
        best value; and at its short end as one of the `first_trials`. After the first 60 trainings,
        one in twenty continues nevertheless, so that a wrong belief is noticed. A stopped training
        is paused: keep its checkpoint, because `ask` returns its configuration again if it is the
        most promising. After its last step, pass its final value to `tell`.

        Args:
            configuration: a configuration returned by `ask`, or any other of the space; at most one
                training of each at a time.
            value: the value at the step, on the scale of `tell`; NaN or infinite if the training
                diverges. With several objectives or constraints, a mapping of metrics: the first
                objective's, and those of the others that are known before the end.
            step: the step, counted from 1; a step that was already reported has no effect.

        Returns:
            False if this training should be stopped now. Always True without `steps`.

        Raises:
            ObjectiveError: if the configuration does not belong to the space.
            ValueError: if `step` is not a whole number >= 1, or `value` is not a number.
        """
        number, metrics = check_report(value, self.metrics)
        return self._search.report(self._arm(configuration), check_limit(step, "step"), number, metrics)

    @exclusive
    def stop(self, configuration: Parameters) -> None:
        """End a training permanently before its last step. The model keeps the reported values, and
        `ask` does not return the training again. A training without reports counts as failed.

        Args:
            configuration: the configuration of a running or paused training.

        Raises:
            ObjectiveError: if the configuration does not belong to the space.
        """
        self._search.stop(self._arm(configuration))

    @exclusive
    def withdraw(self, configuration: Parameters) -> None:
        """End an evaluation without a result, such as that of a machine that was lost. The configuration is
        no longer pending, and `ask` may return it again.

        Args:
            configuration: a pending configuration.

        Raises:
            ObjectiveError: if the configuration does not belong to the space.
            ValueError: if it is neither pending nor paused.
        """
        arm = self._arm(configuration)
        if arm not in [*self._search.pending, *self._search.paused]:
            raise ValueError(f"configuration must be pending, got {dict(configuration)}, which `ask` has not returned")
        self._search.withdraw(arm)

    @exclusive
    def last_step(self, configuration: Parameters) -> int:
        """Return the largest step that an unfinished training has reported, after which it
        continues; 0 for a new training.

        Args:
            configuration: parameters by name.

        Raises:
            ObjectiveError: if the configuration does not belong to the space.
        """
        return self._search.last_step(self._arm(configuration))

    @property
    @exclusive
    def paused(self) -> "list[OpenTrial]":
        """The stopped trainings that `ask` may return again, the longest trained first."""
        return self._trials(self._search.paused)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the objectives, then those of the constraints, each once."""
        goals = self._goals
        return (goals.objectives[0].metric, *goals.further_metrics)

    @property
    @exclusive
    def pending(self) -> "list[OpenTrial]":
        """The configurations, returned by `ask`, that have no value yet, in order."""
        return self._trials(self._search.pending)

    @property
    @exclusive
    def candidates(self) -> Candidates:
        """The current candidates."""
        return self._search.candidates

    @exclusive
    def scores(self, values: ArrayLike) -> NDArray[np.float64]:
        """Transform values (n,) as for the model: to scores relative to the results so far under a
        calibrated model; otherwise unchanged. Values that are minimized are multiplied by −1 first.

        Args:
            values: numbers (n,).

        Raises:
            ValueError: before the first result, and if they are not numbers.
        """
        return self._scores(self._goals.reward(1.0) * check_numbers(values, "values"))

    @property
    @exclusive
    def front(self) -> Trials:
        """The configurations that satisfy all constraints and that no other one dominates, with the
        mean values of objectives and constraints as `metrics`, the best first objective first."""
        return self._front

    def _arm(self, configuration: Parameters) -> int:
        return self._search.arms_of(check_configurations(configuration))[0]

    def _trials(self, arms: Sequence[int]) -> "list[OpenTrial]":
        return [OpenTrial(self._search.parameters(arm), self) for arm in arms]

    def _tell(
        self,
        configurations: Sequence[Parameters],
        metrics_of: Sequence[Mapping[str, float] | None],
    ) -> None:
        """Record the metrics of each configuration; None for a failed one."""
        first, *further = self.metrics
        arms = self._search.arms_of(configurations)
        self._search.tell(
            [
                ArmResult(arm, None)
                if metrics is None
                else ArmResult(
                    arm,
                    metrics[first],
                    {name: metrics[name] for name in (*further, DEVIATION) if name in metrics},
                )
                for arm, metrics in zip(arms, metrics_of, strict=True)
            ]
        )


class OpenTrial(dict[str, Any]):
    """The parameters by name, with the methods that report their evaluation.

    A copy or a pickle of it is a plain dictionary, which the methods of `Optimizer` also accept.

    Args:
        parameters: the parameters by name.
        optimizer: the optimizer whose `ask` returned the trial.

    >>> from bbkb import Optimizer, Range
    >>> optimizer = Optimizer({"x": Range(0.0, 1.0)}, "minimize")
    >>> (trial,) = optimizer.ask()
    >>> trial.tell((trial["x"] - 0.3) ** 2)
    """

    def __init__(self, parameters: Parameters, optimizer: Optimizer) -> None:
        super().__init__(parameters)
        self._optimizer = optimizer
        self._asked = copy.deepcopy(dict(parameters))  # a training may change the lists and mappings in this one

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as a plain dictionary."""
        return dict(self)

    @property
    def last_step(self) -> int:
        """The largest step that the training has reported, after which it continues; 0 for a new
        training."""
        return self._optimizer.last_step(self._asked)

    def report(self, value: Value, step: int) -> bool:
        """Report a value of the training before its end, as `Optimizer.report` does.

        Args:
            value: the value at the step, on the scale of `tell`; or a mapping of metrics.
            step: the step, counted from 1.

        Returns:
            False if this training should be stopped now.
        """
        return self._optimizer.report(self._asked, value, step)

    def tell(self, value: Value, deviation: float | None = None) -> None:
        """Report the result, as `Optimizer.tell` does.

        Args:
            value: a number, or a mapping of metrics if there are several objectives or constraints.
            deviation: the standard deviation of the value's noise, if it is known.
        """
        self._optimizer.tell(self._asked, value, deviation)

    def fail(self) -> None:
        """Report that the evaluation failed. `ask` does not return these parameters again."""
        self._optimizer.fail(self._asked)

    def stop(self) -> None:
        """End the training permanently before its last step; see `Optimizer.stop`."""
        self._optimizer.stop(self._asked)

    def withdraw(self) -> None:
        """End the evaluation without a result; see `Optimizer.withdraw`."""
        self._optimizer.withdraw(self._asked)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def ask_after(optimizer: Optimizer, skip: int) -> "list[OpenTrial]":
    """Return one trial, like `ask(1)`; empty if there is none.

    Args:
        optimizer: the optimizer of the calling process.
        skip: the number of trials to choose first and leave out, because other processes with the
            same results choose them at the same time.
    """
    with optimizer._lock:
        return optimizer._trials(optimizer._search.ask(1, skip))
