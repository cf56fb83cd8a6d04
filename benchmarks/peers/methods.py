"""The methods by name: the strategies of this project, uniform draws, Optuna and Vizier.

The library of a peer is imported when it is used, so each is optional. Methods that draw one
parameter after the other use that a space lists a parameter after the one that it depends on, and
that a condition names values.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from bbkb.objectives import coding
from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range, Scalar, conditions
from bbkb.orchestrator.ask_tell.candidates import CandidateOptimizer
from bbkb.orchestrator.ask_tell.space import Optimizer
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.goals import Constraint, Objective
from bbkb.orchestrator.errors import CampaignError, UserError
from bbkb.orchestrator.settings.strategies import build_strategy
from benchmarks.peers.problems import SEVERAL, Evaluation, Group, Point, Problem
from benchmarks.peers.search import Method

Options = Mapping[str, Any]  # of a strategy, as in a campaign file
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "tpe": ("optuna",),
    "cma-es": ("optuna", "cmaes"),
    "gp-sampler": ("optuna", "torch"),
    "nsga-ii": ("optuna",),
    "vizier": ("vizier", "jax"),
}
PEERS = ("random", *_LIBRARIES)
_VIZIER = "pip install 'google-vizier[jax,algorithms]==0.1.24' jax==0.4.38 flax==0.10.2 optax==0.2.4 chex==0.1.88"


class Ours:
    """A strategy, by name and options, on the arms of a problem, or else on its space."""

    def __init__(self, problem: Problem, seed: int, settings: Options) -> None:
        strategy = build_strategy(settings)
        self._arms = arms = problem.arms
        self._running: dict[int, Any] = {}  # indices of arms, or configurations
        self._optimizer: Any
        self._several = several = problem.several
        if several is not None:
            objectives = [Objective(f"reward-{place}", "maximize") for place in range(several.objectives)]
            constraints = [Constraint(f"margin-{place}", at_most=0.0) for place in range(several.constraints)]
            self._metrics = [*(goal.metric for goal in objectives), *(bound.metric for bound in constraints)]
            self._optimizer = Optimizer(
                problem.space, objectives=objectives, constraints=constraints, strategy=strategy, seed=seed
            )
        elif arms is None:
            self._optimizer = Optimizer(problem.space, "maximize", strategy=strategy, seed=seed)
        else:
            rows = Arms.of(arms.features, arms.parameter_of, repeats=arms.repeats, is_sequence=arms.is_sequence)
            self._optimizer = CandidateOptimizer(rows, strategy, seed)

    def ask(self, number: int) -> Point | None:
        """None while the strategy's drift budget is spent."""
        asked = self._optimizer.ask(1)
        if not len(asked):
            return None
        self._running[number] = asked[0]
        return asked[0] if self._arms is None else self._arms.parameters(int(asked[0]))

    def tell(self, number: int, result: Evaluation) -> None:
        asked = self._running.pop(number)
        if result.rewards is None:
            self._optimizer.fail([asked])
        elif self._several is None:
            self._optimizer.tell([asked], list(result.rewards))
        else:
            metrics = dict(zip(self._metrics, (*result.rewards, *result.margins), strict=True))
            self._optimizer.tell([asked], [metrics])

    def recommend(self) -> Point:
        best: dict[str, Any] = self._optimizer.best.parameters
        return best if self._arms is None else self._arms.parameters(best["candidate"])


class Uniform:
    """Random search: independent uniform draws from the space, or from the arms."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem = problem
        self._rng = np.random.default_rng([seed, 3])

    def ask(self, number: int) -> Point:
        arms = self._problem.arms
        if arms is not None:
            return arms.parameters(int(self._rng.integers(len(arms))))
        drawn = {name: self._draw(parameter) for name, parameter in self._problem.space.items()}
        point: dict[str, Scalar] = {}
        for name, parameter in self._problem.space.items():
            if exists(parameter, point):
                point[name] = drawn[name]
        return point

    def tell(self, number: int, result: Evaluation) -> None:
        """Results have no effect."""

    def recommend(self) -> None:
        """None: the point with the largest mean reward."""

    def _draw(self, parameter: object) -> Scalar:
        match parameter:
            case Range(low=low, high=high, log=False, integer=False):
                return float(self._rng.uniform(low, high))
            case Choice(levels=levels) | Ordered(levels=levels):
                return levels[int(self._rng.integers(len(levels)))]
            case Range() as numbers:
                (value,) = coding.values(numbers, coding.draw(numbers, self._rng.random(1))).tolist()
                return float(value) if not numbers.integer else int(value)
        raise CampaignError(f"random search has no draw for {parameter}")


def exists(parameter: Parameter, values: Mapping[str, Scalar]) -> bool:
    """Whether `parameter` exists, given the `values` of the parameters before it."""
    clauses = conditions(parameter)
    return not clauses or any(
        all(name in values and values[name] in _listed(test) for name, test in clause.items()) for clause in clauses
    )


def _listed(test: object) -> tuple[Scalar, ...]:
    if not isinstance(test, tuple):
        raise CampaignError(f"the benchmark's methods have no condition such as {test}, only lists of values")
    return test


def known_methods(names: tuple[str, ...], own_strategies: Mapping[str, Options]) -> None:
    """Raise UserError if a method is unknown or its library is not installed."""
    choices = (*PEERS, *STRATEGIES, *own_strategies)
    for name in names:
        if name not in choices:
            raise UserError(f"--methods must be some of {','.join(choices)}, got {name!r}{did_you_mean(name, choices)}")
        missing = [library for library in _LIBRARIES.get(name, ()) if find_spec(library) is None]
        if missing:
            remedy = (
                _VIZIER if name == "vizier" else f"in a clone, pip install '.[peers]' (or pip install {missing[0]})"
            )
            raise UserError(
                f"--methods: {name} needs {', '.join(missing)}, which is not installed; "
                f"{remedy}, or leave it out of --methods"
            )


def is_applicable(name: str, group: Group) -> bool:
    """Return whether the method can search every problem of the group: CMA-ES needs real numbers and one
    objective, Vizier one objective, and NSGA-II is for several objectives or constraints."""
    match name:
        case "cma-es":
            return group in (Group.FUNCTIONS, Group.NOISY, Group.BBOB)
        case "vizier":
            return group not in SEVERAL
        case "nsga-ii":
            return group in SEVERAL
    return True


def make_method(name: str, problem: Problem, seed: int, own_strategies: Mapping[str, Options]) -> Method:
    """The method `name`; `own_strategies`: strategies of this project with options, by their labels."""
    if name == "random":
        return Uniform(problem, seed)
    if name == "vizier":
        from benchmarks.peers.of_vizier import OfVizier

        return OfVizier(problem, seed)
    if name in _LIBRARIES:
        from benchmarks.peers.of_optuna import OfOptuna

        return OfOptuna(problem, seed, name)
    return Ours(problem, seed, own_strategies.get(name, {"name": name}))
