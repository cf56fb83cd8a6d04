"""Ask and tell configurations of a search space; the class behind `Optimizer(space={...})`.

The file records what happened: the configurations asked for, the results with what the strategy drew and fitted,
the candidates appended. Loading repeats that without drawing or fitting, so a loaded optimizer continues exactly
as the saved one would have.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from objectives.conditions import Clause, Scalar
from objectives.objective import Candidates, ObjectiveError
from objectives.parameters import Choice, Constant, Ordered, Parameter, Range
from objectives.space import DEFAULT_SIZE, GROWING_SIZE, LARGEST_WHOLE_SET, SearchSpace, make_candidates
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.growing import Grows
from orchestrator.bandit.model.model import model_of, scores_among
from orchestrator.bandit.options import shown
from orchestrator.bandit.strategy import AnyStrategy, Observation, Posterior, Recommends
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.hypervolume import Point, with_point
from orchestrator.inputs import (
    checked_limit,
    checked_list,
    checked_mapping,
    checked_mappings,
    checked_metrics,
    checked_numbers,
    checked_results,
    checked_seed,
    plain_values,
)
from orchestrator.learner import Learner, never_waits
from orchestrator.named_strategy import named_strategy
from orchestrator.pool import Appended, Pool
from orchestrator.saving import Entry, read_saved, write_saved
from orchestrator.settings.goals import checked_goals
from orchestrator.settings.spaces import build_forbid, build_space, dump_forbid, dump_space
from orchestrator.settings.strategies import build_strategy, dump_strategy
from orchestrator.wording import facts_html

Configuration = dict[str, Scalar]
Direction = Literal["minimize", "maximize"]
Value = float | Mapping[str, float] | None  # of a result; None: it could not be evaluated
Told = tuple[int, Value]
Values = Sequence[float | Mapping[str, float] | Sequence[float] | None] | ArrayLike

LIMIT = 20_000  # candidates that are kept at most


class SpaceOptimizer:
    """Finds the best configuration of a search space, by asking for evaluations and learning their values.

    Candidates are all configurations of a finite space of at most 100 000; otherwise 1024 Sobol points, to which more
    are appended around the best ones as results come in.

    Args:
        space: parameters by name: `Range`, `Choice`, `Ordered`, or mappings as in a campaign file.
        direction: "minimize" or "maximize" the values; None: that of the first of `objectives`, else "maximize".
        objectives: several objectives, [{"metric": "accuracy"}, {"metric": "seconds", "direction": "minimize"}]. What
            is told are then mappings of metrics, or numbers in the order of `metrics`.
        constraints: bounds on metrics, [{"metric": "memory_gb", "at_most": 4}].
        strategy: its name.
        seed: a whole number, >= 0; the same calls with the same seed give the same configurations.
        forbid: combinations that are no candidates, such as [{"model": "svm", "kernel": "poly"}].
        enqueue: configurations that are asked for first.
        limit: candidates kept at most; the worst that were never asked for are given up.
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
        space: Mapping[str, Parameter | Mapping[str, object]] | SearchSpace,
        direction: Direction | None = None,
        *,
        objectives: Sequence[Mapping[str, object]] = (),
        constraints: Sequence[Mapping[str, object]] = (),
        strategy: str = "bbkb",
        seed: int = 0,
        forbid: Sequence[Mapping[str, object]] = (),
        enqueue: Sequence[Mapping[str, Scalar]] = (),
        limit: int = LIMIT,
        **options: object,
    ) -> None:
        if direction not in ("minimize", "maximize", None):
            raise ValueError(f"direction must be minimize or maximize, got {direction!r}")
        chosen = named_strategy(strategy, options)
        sections = {
            "objectives": checked_mappings(objectives, "objectives", "[{'metric': 'accuracy'}]"),
            "constraints": checked_mappings(constraints, "constraints", "[{'metric': 'memory_gb', 'at_most': 4}]"),
        }
        given = checked_goals(sections, chosen)
        if objectives and direction not in (None, given["objectives"][0]["direction"]):
            raise ValueError(f"direction must be left out beside objectives, which have their own; got {direction!r}")
        goals = CampaignGoals.of({**given, "objective": {"direction": direction or "maximize"}})
        full = space if isinstance(space, SearchSpace) else _search_space(space, _clauses(forbid))
        first = checked_mappings(enqueue, "enqueue", "[{'x': 0.5}]")
        self._begin(full, goals, chosen, checked_seed(seed), first, checked_limit(limit))

    def _begin(
        self,
        space: SearchSpace,
        goals: CampaignGoals,
        strategy: AnyStrategy,
        seed: int,
        enqueue: Sequence[Mapping[str, Scalar]],
        limit: int,
    ) -> None:
        self._space, self._goals, self._strategy, self._seed = space, goals, strategy, seed
        self._enqueue, self._limit = [dict(one) for one in enqueue], limit
        self._pool = _first_pool(space, strategy, seed, self._enqueue, limit)
        known = self._pool.candidates
        repeats = known.repeats or getattr(strategy, "model", None) is None
        arms = Arms.of(known.features, known.parameter_of, repeats=repeats, is_sequence=known.is_sequence)
        state = strategy.init(arms.with_goals(goals.for_strategy), np.random.default_rng([seed, 0]))
        self._learner = Learner(strategy, state, seed, self._learned)
        self._arms = {row.tobytes(): arm for arm, row in enumerate(known.features)}
        self._waiting = [self._arm(one) for one in self._enqueue]  # enqueued and not asked for yet
        self._told: list[Told] = []
        self._log: list[Entry] = []

    def ask(self, limit: int | None = None) -> list[Configuration]:
        """Configurations to evaluate next; they are pending until `tell` gets their values.

        Empty when `tell` must get values of pending configurations first, or when no candidate is left.

        Args:
            limit: how many at most, >= 1; None: one, or the strategy's own batch where it waits for results.

        """
        own = 1 if never_waits(self._strategy) else len(self._pool.candidates)
        most = own if limit is None else checked_limit(limit)
        arms = self._waiting[:most]
        if arms:
            self._learner.expect(arms)
        else:
            arms = self._learner.ask(most)
        self._asked(arms)
        return [self._pool.candidates.parameters(arm) for arm in arms]

    def expect(self, configurations: Sequence[Mapping[str, Scalar]]) -> None:
        """Mark configurations that `ask` did not return as pending, until `tell` gets their values.

        Args:
            configurations: parameters by name, a mapping for each evaluation.

        Raises:
            ObjectiveError: when one is not of the space.

        """
        self._expected(self._arms_of(configurations))

    def tell(self, configurations: Sequence[Mapping[str, Scalar]], values: Values) -> None:
        """Values of configurations, in any order and any grouping; of ones that were never asked for, too.

        Args:
            configurations: parameters by name, a mapping for each result (n,).
            values: one for each (n,); None: it could not be evaluated, and is not asked for again. With several
                objectives or constraints a mapping of metrics each, or an array (n, m) with the `metrics` in order.

        Raises:
            ObjectiveError: when a configuration is not of the space. Nothing is learned then.
            ValueError: when a value is NaN or infinite. Nothing is learned then.

        """
        arms = self._arms_of(configurations)
        if self._goals.is_single:
            plain = plain_values(values, self._goals.objectives[0].metric)
            observations = checked_results(arms, plain, len(self._pool.candidates))
            told: list[Told] = [(seen.arm, seen.reward) for seen in observations]
        else:
            told = list(zip(arms, checked_metrics(values, self.metrics, len(arms)), strict=True))
        self._taught(told)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the objectives, then those of the constraints, each once."""
        return (self._goals.objectives[0].metric, *self._goals.further_metrics)

    @property
    def trials(self) -> list[Entry]:
        """The results, in the order of `tell`: `configuration` and `value`, a mapping of several metrics, None for
        what could not be evaluated."""
        parameters = self._pool.candidates.parameters
        return [{"configuration": parameters(arm), "value": value} for arm, value in self._told]

    @property
    def pending(self) -> list[Configuration]:
        """The configurations that `ask` returned and whose values are not known yet, in order."""
        return [self._pool.candidates.parameters(arm) for arm in self._learner.pending]

    @property
    def candidates(self) -> Candidates:
        """All candidates there are now."""
        return self._pool.candidates

    @property
    def posterior(self) -> Posterior:
        """Mean, variance and upper confidence bound of every one of `candidates`, of rewards, which are values times
        −1 where they are minimised; and the unit of the variance."""
        return self._strategy.posterior(self._state)

    def scores(self, values: ArrayLike) -> NDArray[np.float64]:
        """What the model takes values for, (n,): their scores among the results so far under a calibrated model, else
        the rewards.

        Args:
            values: numbers (n,).

        """
        rewards = self._sign * checked_numbers(values, "values")
        return scores_among(self._state.pulls, model_of(self._strategy), rewards)

    def best(self) -> tuple[Configuration, float]:
        """The configuration to recommend, and the mean of its values. Raises ValueError before any value.

        The one with the best mean value; where the fitted model says that values are noisy, the evaluated one with the
        best posterior mean. With constraints the best one that satisfies them; with several objectives that of the
        `front` which is best in the first one, and its value.
        """
        pulls = self._state.pulls
        if pulls.total == 0:
            raise ValueError("best needs at least one value; call ask, evaluate, and call tell first")
        if not self._goals.is_single:
            if not (front := self.front()):
                raise ValueError("no configuration with a result satisfies all constraints")
            return front[0][0], front[0][1][self._goals.objectives[0].metric]
        means = pulls.reward_sums[pulls.arms] / pulls.counts[pulls.arms]
        chosen = self._strategy.recommend(self._state) if isinstance(self._strategy, Recommends) else None
        place = int(np.argmax(means)) if chosen is None else int(np.searchsorted(pulls.arms, chosen))
        return self._pool.candidates.parameters(int(pulls.arms[place])), self._sign * float(means[place])

    def front(self) -> list[tuple[Configuration, dict[str, float]]]:
        """The configurations that satisfy all constraints and that no other one is better than in every objective, with
        the mean values of the objectives; the best of the first objective first."""
        pulls, goals = self._state.pulls, self._goals
        means = np.array([one.reward_sums[pulls.arms] / pulls.counts[pulls.arms] for one in pulls.outputs])
        feasible = np.flatnonzero((means[len(goals.objectives) :] >= 0.0).all(axis=0))
        points: dict[Point, int] = {}
        for place in feasible.tolist():
            points.setdefault(tuple(means[: len(goals.objectives), place].tolist()), place)
        front: list[Point] = []
        for point in points:
            front = with_point(front, point)
        return [
            (
                self._pool.candidates.parameters(int(pulls.arms[points[point]])),
                {one.metric: one.sign * value for one, value in zip(goals.objectives, point, strict=True)},
            )
            for point in sorted(front, reverse=True)
        ]

    def save(self, path: str | Path) -> None:
        """Write everything to a file as JSON, whole or not at all.

        Args:
            path: the file to write.

        """
        write_saved(path, self.__getstate__())

    def __getstate__(self) -> dict[str, object]:
        """What is saved, and pickled."""
        return {
            "space": dump_space(self._space.parameters),
            "forbid": dump_forbid(self._space.forbid),
            "direction": "maximize" if self._goals.objectives[0].is_maximized else "minimize",
            **({} if self._goals.is_single else {"goals": self._goals.plain()}),
            "strategy": dump_strategy(self._strategy),
            "seed": self._seed,
            "enqueue": self._enqueue,
            "limit": self._limit,
            "log": list(self._log),
        }

    def __setstate__(self, saved: Entry) -> None:
        space = _search_space(saved["space"], build_forbid(saved["forbid"]))
        strategy = build_strategy(saved["strategy"])
        goals = CampaignGoals.of({"objective": {"direction": saved["direction"]}, **saved.get("goals", {})})
        self._begin(space, goals, strategy, saved["seed"], saved["enqueue"], saved["limit"])
        for entry in saved["log"]:
            self._repeat(entry)

    @classmethod
    def load(cls, path: str | Path) -> "SpaceOptimizer":
        """The optimizer that `save` wrote.

        Args:
            path: the file that was written.

        Raises:
            ValueError: when it is none.

        """
        return read_saved(path, cls.from_saved)

    @classmethod
    def from_saved(cls, saved: Entry) -> "SpaceOptimizer":
        """The optimizer of what a file of `save` holds.

        Args:
            saved: its content.

        """
        optimizer = cls.__new__(cls)
        optimizer.__setstate__(saved)
        return optimizer

    def _repeat(self, entry: Entry) -> None:
        if "asked" in entry:
            arms = [int(arm) for arm in entry["asked"]]
            self._learner.expect(arms)
            self._asked(arms)
        elif "expected" in entry:
            self._expected([int(arm) for arm in entry["expected"]])
        elif "appended" in entry:
            self._extend(Appended(entry["appended"], tuple(int(arm) for arm in entry["retired"])))
        if "told" in entry:
            self._taught([(int(arm), _read_value(value)) for arm, value in entry["told"]])
        if "record" in entry:
            learner = self._learner
            learner.take(self._strategy.restore(learner.state, tuple(learner.unlearned), entry["record"]))
            self._log.append({"record": dict(entry["record"])})

    def _asked(self, arms: Sequence[int]) -> None:
        self._waiting = self._waiting[len(arms) :] if self._waiting else []
        self._log.append({"asked": list(arms)})

    def _expected(self, arms: Sequence[int]) -> None:
        self._learner.expect(arms)
        self._log.append({"expected": list(arms)})

    @property
    def _sign(self) -> float:
        return self._goals.objectives[0].sign

    def _as_rewards(self, told: Sequence[Told]) -> list[Observation]:
        """Results as rewards, which are maximised."""
        return [self._observation(arm, value) for arm, value in told]

    def _observation(self, arm: int, value: Value) -> Observation:
        if value is None or not isinstance(value, Mapping):
            return Observation(arm, None if value is None else self._sign * value)
        first = value[self._goals.objectives[0].metric]
        return Observation(arm, self._sign * first, self._goals.further(first, value))

    def _taught(self, told: Sequence[Told]) -> None:
        self._learner.tell(self._as_rewards(told))
        self._told.extend(told)
        self._log.append({"told": [list(pair) for pair in told]})

    def _learned(self) -> None:
        """Write down what the strategy drew and fitted, and let the candidates grow."""
        state = self._learner.state
        self._log.append({"record": dict(self._strategy.recorded(state))})
        wanted = self._pool.wanted(self._strategy, state)
        if wanted is not None and isinstance(self._strategy, Grows):
            rng = np.random.default_rng([self._seed, 3, state.round])
            self._extend(self._pool.growth(self._strategy, state, wanted, self._learner.open, rng))

    def _add(self, made: Candidates) -> None:
        """Make sure that the one configuration `made` is a candidate."""
        if made.features[0].tobytes() in self._arms:
            return
        if not isinstance(self._strategy, Grows):
            raise ObjectiveError(f"{made.parameters(0)} is not a candidate, and this strategy supports no others")
        self._extend(Appended({name: tuple(column.tolist()) for name, column in made.columns.items()}, ()))

    def _extend(self, appended: Appended) -> None:
        first = len(self._pool.candidates)
        full = Pool(self._pool.candidates, self._space, self._limit)
        larger, features = full.grown(appended)
        self._pool = Pool(larger.candidates, self._pool.space, self._limit)
        if isinstance(self._strategy, Grows):
            self._learner.change(self._strategy.extend(self._learner.state, features, appended.retired))
        self._arms.update({row.tobytes(): arm for arm, row in enumerate(features, start=first)})
        columns = {name: list(column) for name, column in appended.columns.items()}
        self._log.append({"appended": columns, "retired": list(appended.retired)})

    def _arms_of(self, configurations: object) -> list[int]:
        """The numbers of configurations as a caller gives them, candidates or not."""
        given = checked_list(configurations, "configurations", "[configuration]")
        for configuration in given:
            self._add(self._space.candidate(configuration))
        return [self._arm(configuration) for configuration in given]

    def _arm(self, configuration: Mapping[str, Scalar]) -> int:
        """The number of a configuration that is a candidate."""
        return self._arms[self._space.candidate(configuration).features[0].tobytes()]

    @property
    def _state(self) -> Any:
        """What the strategy knows with all results."""
        return self._learner.view

    def __repr__(self) -> str:
        size, told, pending = len(self._space.parameters), len(self._told), len(self._learner.pending)
        return f"<Optimizer of {size} parameters: {told} results, {pending} pending>"

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        wanted = ", ".join(map(str, (*self._goals.objectives, *self._goals.constraints)))
        facts = [("goals", wanted), ("told", str(len(self._told))), ("pending", str(len(self._learner.pending)))]
        if self._goals.is_single:
            facts[0] = ("direction", "maximize" if self._goals.objectives[0].is_maximized else "minimize")
        if self.front():
            configuration, value = self.best()
            facts += [("best value", f"{value:.6g}")]
            facts += [("best configuration", ", ".join(f"{name}={one!r}" for name, one in configuration.items()))]
        return facts_html(f"Optimizer of {', '.join(self._space.parameters)}", facts)


def _read_value(value: Any) -> Value:
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return None if value is None else float(value)


def _clauses(forbid: object) -> tuple[Clause, ...]:
    return build_forbid(checked_mappings(forbid, "forbid", "[{'model': 'svm'}]"))


def _search_space(space: Mapping[str, Parameter | Mapping[str, object]], forbid: tuple[Clause, ...]) -> SearchSpace:
    checked_mapping(space, "space", "{'x': Range(0, 1)}")
    for name, one in space.items():
        if not isinstance(one, Mapping | Range | Choice | Ordered | Constant):
            raise ValueError(f"space[{name!r}] must be Range, Choice, Ordered or a mapping, got {shown(one)}")
    plain = {name: one for name, one in space.items() if isinstance(one, Mapping)}
    built = build_space(plain)
    parameters: dict[str, Parameter] = {
        name: built[name] if isinstance(one, Mapping) else one for name, one in space.items()
    }
    return SearchSpace(parameters, forbid)


def _first_pool(
    space: SearchSpace, strategy: AnyStrategy, seed: int, enqueue: Sequence[Mapping[str, Scalar]], limit: int
) -> Pool:
    grows = isinstance(strategy, Grows) and strategy.grows
    grows = grows and not (space.is_finite and space.count(LARGEST_WHOLE_SET) is not None)
    points = GROWING_SIZE if grows else DEFAULT_SIZE
    candidates = make_candidates(space, None, "sobol", seed, enqueue, points)
    return Pool(candidates, space if grows else None, limit)
