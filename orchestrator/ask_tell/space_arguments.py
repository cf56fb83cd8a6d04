"""Checks of the arguments of `Optimizer`: its space, what is enqueued, and trainings in steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from objectives.conditions import Scalar
from objectives.objective import ObjectiveError
from objectives.parameters import Parameter
from objectives.space import SearchSpace
from orchestrator.ask_tell.checks import (
    check_goals,
    check_list,
    check_mappings,
    check_metrics,
    check_space,
    check_values,
)
from orchestrator.ask_tell.memory import ArmResult
from orchestrator.ask_tell.setup import SearchSetup
from orchestrator.bandit.arms import Arms
from orchestrator.bandit.model.model import model_of
from orchestrator.bandit.strategy import AnyStrategy, LearnsCurves
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.settings.goal_sections import check_goals as check_sections
from orchestrator.settings.spaces import build_forbid, build_space, completed_enqueue, prior_problems

Space = Mapping[str, Parameter | Mapping[str, object]] | SearchSpace


def build_search_space(space: Space, forbid: object, strategy: AnyStrategy) -> SearchSpace:
    """Build the search space of the arguments; a `SearchSpace` has its forbidden combinations
    already. Raises ValueError or ObjectiveError for what is not allowed in it, or for priors that
    the strategy does not support."""
    if isinstance(space, SearchSpace):
        full = space
    else:
        clauses = build_forbid(check_mappings(forbid, "forbid", "[{'model': 'svm'}]"))
        full = SearchSpace(build_space(check_space(space, "use CandidateOptimizer(array)")), clauses)
    if problems := prior_problems(full.parameters, strategy):
        raise ObjectiveError(str(problems[0]))
    return full


def build_goals(objectives: object, constraints: object, direction: str | None, strategy: AnyStrategy) -> CampaignGoals:
    """Build the objectives and constraints of the arguments. Raises ValueError for what is not
    allowed in them, or with this strategy, and for a direction that contradicts the objectives."""
    sections = {
        "objectives": check_goals(objectives, "objectives", "[Objective('accuracy')]"),
        "constraints": check_goals(constraints, "constraints", "[Constraint('memory_gb', at_most=4)]"),
    }
    goals = check_sections(sections, strategy)
    if sections["objectives"] and direction not in (None, goals["objectives"][0]["direction"]):
        raise ValueError(
            f"direction must not be given with objectives, which have directions, got {direction!r}: leave it out"
        )
    return CampaignGoals.of({**goals, "objective": {"direction": direction or "maximize"}})


def complete_enqueue(space: SearchSpace, enqueue: object, seed: int) -> Sequence[Mapping[str, Scalar]]:
    """Return the enqueued configurations, with randomly drawn values for omitted parameters. Raises
    ValueError or ObjectiveError for one that is not of the space."""
    completed, problems = completed_enqueue(space, check_mappings(enqueue, "enqueue", "[{'x': 0.5}]"), seed)
    if problems:
        raise ObjectiveError(str(problems[0]))
    return completed


def check_steps(setup: SearchSetup) -> None:
    """Raise ValueError where trainings in steps are not possible as they are set up."""
    if setup.steps is None:
        if setup.first_trials:
            raise ValueError(f"first_trials needs steps, the step at which a training ends; got {setup.first_trials}")
        if setup.checkpoints is not True:
            raise ValueError(f"checkpoints needs steps, the step at which a training ends; got {setup.checkpoints!r}")
        return
    if not isinstance(setup.checkpoints, bool):
        raise ValueError(f"checkpoints must be True or False, got {setup.checkpoints!r}")
    if not isinstance(setup.strategy, LearnsCurves) or model_of(setup.strategy) is None:
        remedy = "such as bbkb with its default preset; leave out steps"
        raise ValueError(f"steps needs a strategy whose model learns curves, {remedy}, got {setup.strategy!r}")
    if not setup.goals.is_single:
        raise ValueError("steps needs one objective and no constraints; leave out steps, and tell final values only")


def refuse_array(space: object) -> None:
    """Raise ValueError where an array of candidates is given, for which there is another class."""
    is_array = isinstance(space, Arms) or hasattr(space, "__array__") or isinstance(space, list | tuple)
    if is_array:
        shape = "" if isinstance(space, Arms) else f" of shape {np.shape(np.asarray(space, object))}"
        raise ValueError(
            f"space must be parameters by name such as {{'x': Range(0, 1)}}, got {type(space).__name__}{shape}; for "
            "candidates that are the rows of an array write CandidateOptimizer(array, …)"
        )


def as_list(values: object) -> list[Any]:
    """Return the only configuration's value as a list. Raises ValueError for several."""
    if isinstance(values, list | tuple) and len(values) == 1:
        return list(values)
    return [values]


def check_configurations(configurations: object) -> list[Mapping[str, Scalar]]:
    """Return the configurations as a list; one may be given without a list."""
    if isinstance(configurations, Mapping):
        return [configurations]
    return check_list(configurations, "configurations", "[configuration]")


def check_told(values: object, goals: CampaignGoals, count: int) -> list[ArmResult]:
    """Return `count` results without their arms. Raises ValueError unless they have finite numbers
    for all metrics."""
    first, *further = (goals.objectives[0].metric, *goals.further_metrics)
    if goals.is_single:
        return [ArmResult(0, value) for value in check_values(values, first, count)]
    return [
        ArmResult(0, None)
        if metrics is None
        else ArmResult(0, metrics[first], {name: metrics[name] for name in further})
        for metrics in check_metrics(values, (first, *further), count)
    ]
