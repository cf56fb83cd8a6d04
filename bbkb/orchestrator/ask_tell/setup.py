"""The arguments of a search over a space: their checks, and their saved form."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from bbkb.objectives.conditions import Scalar
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Parameter
from bbkb.objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from bbkb.objectives.space import LARGEST_WHOLE_SET, SearchSpace
from bbkb.orchestrator.ask_tell.checks import check_goals, check_list, check_mappings, check_space
from bbkb.orchestrator.ask_tell.saving import Entry
from bbkb.orchestrator.ask_tell.search import Search
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.growing import Grows
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.strategy import AnyStrategy, LearnsCurves
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.settings import (
    UNLIMITED,
    Budget,
    ConstraintMetric,
    ModelStopping,
    ObjectiveMetric,
    Settings,
    plain_space,
)
from bbkb.orchestrator.campaign.trainings.first import first_steps_without_budget
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.settings.loading import checked_goals
from bbkb.orchestrator.settings.spaces import build_forbid, build_space, completed_enqueue, prior_problems
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy

Space = Mapping[str, Parameter | Mapping[str, object]] | SearchSpace

STOPPED_FROM = 3  # the first step at which trials are paused or compared


@dataclass(frozen=True, kw_only=True)
class StepsSetup:
    """The arguments for trainings in steps. The defaults are those of files that lack them.

    steps: the step at which a training ends; None: trainings are never stopped.
    first_trials: the number of initial trainings that are stopped after a few steps.
    checkpoints: whether a stopped training continues from its checkpoint.
    """

    steps: int | None = None
    first_trials: int = 0
    checkpoints: bool = False

    @staticmethod
    def build(dumped: Mapping[str, Any]) -> "StepsSetup":
        """Return the arguments in a saved setup."""
        names = [field.name for field in fields(StepsSetup)]
        return StepsSetup(**{name: dumped[name] for name in names if name in dumped})

    @property
    def early_stopping(self) -> ModelStopping | None:
        """The rule for these trainings; None if they are never stopped."""
        if self.steps is None:
            return None
        return ModelStopping(
            first_trials=self.first_trials,
            first_steps=first_steps_without_budget(self.steps, self.checkpoints),
            continues=True if self.checkpoints else "anew",
            last_step=self.steps,
            after=STOPPED_FROM,
            finish=0,
        )

    def check(self, strategy: AnyStrategy, goals: CampaignGoals) -> None:
        """Raise ValueError if these arguments, `strategy` or `goals` do not allow trainings in
        steps."""
        has_steps = self.steps is not None
        needs = "needs steps, the step at which a training ends; got"
        if not has_steps and self.first_trials:
            raise ValueError(f"first_trials {needs} {self.first_trials}")
        if not has_steps and self.checkpoints is not True:
            raise ValueError(f"checkpoints {needs} {self.checkpoints!r}")
        if not isinstance(self.checkpoints, bool):
            raise ValueError(f"checkpoints must be True or False, got {self.checkpoints!r}")
        is_able = isinstance(strategy, LearnsCurves) and model_of(strategy) is not None
        if has_steps and not goals.is_single:
            raise ValueError("steps needs a single objective without constraints; leave out steps")
        if has_steps and not is_able:
            able = "a strategy whose model learns curves, such as bbkb with its default preset"
            raise ValueError(f"steps needs {able}; leave out steps, got {strategy!r}")


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """The arguments of a search. They never change."""

    space: SearchSpace
    goals: CampaignGoals
    strategy: AnyStrategy
    seed: int
    enqueue: Sequence[Mapping[str, Scalar]]  # the configurations that `ask` returns first
    candidate_limit: int  # the largest number of candidates
    training: StepsSetup = StepsSetup()

    @property
    def title(self) -> str:
        """The parameters and the goals."""
        goals = (*self.goals.objectives, *self.goals.constraints)
        return f"{', '.join(self.space.parameters)}, {', '.join(map(str, goals))}"

    def dump(self) -> Entry:
        """Return the setup as plain values."""
        return {
            "space": plain_space(self.space.parameters),
            "forbid": [dict(clause) for clause in self.space.forbid],
            "direction": self.goals.objectives[0].direction,
            **({} if self.goals.is_single else {"goals": self.goals.plain()}),
            "strategy": dump_strategy(self.strategy),
            "seed": self.seed,
            "enqueue": [dict(configuration) for configuration in self.enqueue],
            "limit": self.candidate_limit,
            **asdict(self.training),
        }

    @staticmethod
    def build(dumped: Mapping[str, Any]) -> "SearchSetup":
        """Return the setup that `dump` wrote."""
        return SearchSetup(
            space=SearchSpace(build_space(dumped["space"]), build_forbid(dumped["forbid"])),
            goals=CampaignGoals.of({"objective": {"direction": dumped["direction"]}, **dumped.get("goals", {})}),
            strategy=build_strategy(dumped["strategy"]),
            seed=dumped["seed"],
            enqueue=dumped["enqueue"],
            candidate_limit=dumped["limit"],
            training=StepsSetup.build(dumped),
        )

    def search(self) -> Search:
        """Return the search before any event."""
        goals = self.goals.plain()
        settings = Settings(
            name="",
            objectives=tuple(ObjectiveMetric(**each) for each in goals["objectives"]),
            constraints=tuple(ConstraintMetric(**each) for each in goals["constraints"]),
            budget=Budget(evaluations=UNLIMITED),
            early_stopping=self.training.early_stopping,
        )
        return Search(self.strategy, self.seed, self._pool(), settings, self.goals.for_strategy)

    def _pool(self) -> Pool:
        space = self.space
        grows = isinstance(self.strategy, Grows) and self.strategy.grows
        grows = grows and not (space.is_finite and space.count(LARGEST_WHOLE_SET) is not None)
        points = GROWING_SIZE if grows else DEFAULT_SIZE
        candidates = make_candidates(
            space, size=None, sampler="sobol", seed=self.seed, first=self.enqueue, points=points
        )  # fmt: skip
        return Pool(candidates, space, self.candidate_limit, grows)


def build_search_space(space: Space, forbid: object, strategy: AnyStrategy) -> SearchSpace:
    """Build the search space from the arguments; a `SearchSpace` already contains its forbidden
    combinations.

    Raises:
        ObjectiveError: if part of it is invalid, or the strategy does not use its priors.
        ValueError: if an argument has a wrong type.
    """
    if isinstance(space, Arms) or hasattr(space, "__array__") or isinstance(space, list | tuple):
        shape = "" if isinstance(space, Arms) else f" of shape {np.shape(np.asarray(space, object))}"
        raise ValueError(
            f"space must be parameters by name such as {{'x': Range(0, 1)}}, got {type(space).__name__}{shape}; for "
            "candidates that are the rows of an array write CandidateOptimizer(array, …)"
        )
    if isinstance(space, SearchSpace):
        full = space
    else:
        clauses = build_forbid(check_mappings(forbid, "forbid", "[{'model': 'svm'}]"))
        full = SearchSpace(build_space(check_space(space, "use CandidateOptimizer(array)")), clauses)
    if problems := prior_problems(full.parameters, strategy):
        raise ObjectiveError(str(problems[0]))
    return full


def build_goals(objectives: object, constraints: object, direction: str | None, strategy: AnyStrategy) -> CampaignGoals:
    """Build the objectives and constraints from the arguments. Raises ValueError if a goal is
    invalid or the strategy does not support it, and if a direction contradicts the objectives."""
    sections = {
        "objectives": check_goals(objectives, "objectives", "[Objective('accuracy')]"),
        "constraints": check_goals(constraints, "constraints", "[Constraint('memory_gb', at_most=4)]"),
    }
    objectives_, constraints_ = checked_goals(sections, strategy)
    if objectives_ and direction not in (None, objectives_[0].direction):
        raise ValueError(
            f"direction must not be given with objectives, which have directions, got {direction!r}: leave it out"
        )
    return CampaignGoals.of(
        {
            "objective": {"direction": direction or "maximize"},
            "objectives": [asdict(each) for each in objectives_],
            "constraints": [asdict(each) for each in constraints_],
        }
    )


def complete_enqueue(space: SearchSpace, enqueue: object, seed: int) -> Sequence[Mapping[str, Scalar]]:
    """Return the enqueued configurations, with randomly drawn values for omitted parameters. Raises
    ValueError or ObjectiveError if a configuration does not belong to the space."""
    completed, problems = completed_enqueue(space, check_mappings(enqueue, "enqueue", "[{'x': 0.5}]"), seed)
    if problems:
        raise ObjectiveError(str(problems[0]))
    return completed


def check_configurations(configurations: object) -> list[Mapping[str, Scalar]]:
    """Return the configurations as a list; a single one need not be in a list."""
    if isinstance(configurations, Mapping):
        return [configurations]
    return check_list(configurations, "configurations", "[configuration]")
