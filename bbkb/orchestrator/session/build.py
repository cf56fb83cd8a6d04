"""Builds the objective, the candidates and the strategy that a campaign file names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import PythonCallable
from bbkb.objectives.objective import Candidates, HasCandidates, HasDescription, HasOptimum, Objective
from bbkb.objectives.pickled import LiveFunction, PickledFunction
from bbkb.objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from bbkb.objectives.space import LARGEST_WHOLE_SET, SearchSpace
from bbkb.objectives.tabular import table_candidates, table_objective
from bbkb.objectives.with_metrics import VALUE, WithMetrics
from bbkb.orchestrator.bandit.growing import Grows
from bbkb.orchestrator.bandit.start.warm_start import UncertaintyStart, warm_start_of, with_warm_start
from bbkb.orchestrator.bandit.strategy import AnyStrategy, PausesTrials
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.matching import find_arm
from bbkb.orchestrator.engine.pool import Pool
from bbkb.orchestrator.errors import CampaignError, UserError
from bbkb.orchestrator.session import known_results
from bbkb.orchestrator.session.resources import Resources, check_program, check_timeout, resources_of
from bbkb.orchestrator.session.training import check_reports
from bbkb.orchestrator.settings.options import load_objective
from bbkb.orchestrator.settings.strategies import build_strategy

Function = Callable[..., object]


@dataclass(frozen=True)
class Parts:
    """The objective, the candidates and the strategy of a campaign."""

    problem: Problem
    objective: Objective
    resources: Resources | None = None  # of each trial if parameters determine them
    enqueued: tuple[int, ...] = ()  # the arms to evaluate first, at the user's request

    @property
    def description(self) -> str:
        """The objective's description of itself and its data; empty if there is none."""
        inner = self.training_objective
        return inner.description if isinstance(inner, HasDescription) else ""

    def optimum(self, is_maximized: bool) -> float | None:
        """Return the best noise-free value; None if it is unknown, or if the campaign has several
        objectives or constraints."""
        return self.objective.optimum(is_maximized) if isinstance(self.objective, HasOptimum) else None

    @property
    def training_objective(self) -> Objective:
        """The objective itself, without the check of its metrics."""
        return self.objective.inner if isinstance(self.objective, WithMetrics) else self.objective


def build(settings: Settings, function: Function | None = None) -> Parts:
    """Load the objective and its candidates. `function`: the user's own function if this process
    called `tune`.

    Raises ObjectiveError if data, a module or columns are missing, and UserError if this machine
    cannot satisfy the settings.
    """
    check_timeout(settings)
    objective, candidates = _objective_and_candidates(settings, function)
    if isinstance(objective, PythonCallable | PickledFunction | LiveFunction):
        objective.check(candidates.columns, candidates.conditional)
    if isinstance(objective, ShellCommand):
        objective.check(candidates.columns)
    workers = 1 if settings.workers.traits.one_at_a_time else settings.workers.count
    strategy = _for_workers(build_strategy(settings.strategy), workers)
    pool = Pool(candidates, growing_space(settings), settings.candidates.limit)
    problem = Problem(settings.seed, pool, strategy, settings.objective.deterministic, settings.goals.for_strategy)
    resources = resources_of(settings, candidates)
    return Parts(problem, _with_metrics(objective, settings), resources, _find_enqueued(settings, candidates))


def build_new(settings: Settings, function: Function | None = None) -> Parts:
    """Return `build` for a campaign that has not begun. A resume is checked less strictly.

    Also raises UserError if early stopping is requested and the trials report no values, or if this
    machine would run a command and lacks its program.
    """
    parts = build(settings, function)
    check_program(settings)
    check_reports(settings, parts.training_objective)
    return parts


def _with_metrics(objective: Objective, settings: Settings) -> Objective:
    """Return the objective with a check: an evaluation fails if a metric of the objectives or
    constraints is missing."""
    if not settings.objectives and not settings.constraints:
        return objective
    needed = (
        *((goal.metric, f"objectives.{number}") for number, goal in enumerate(settings.objectives)),
        *((goal.metric, f"constraints.{number}") for number, goal in enumerate(settings.constraints)),
    )
    return WithMetrics(objective, settings.objectives[0].metric if settings.objectives else VALUE, needed)


def _find_enqueued(settings: Settings, candidates: Candidates) -> tuple[int, ...]:
    """Return the arms to evaluate first. Raises UserError if a configuration is not a candidate."""
    arms = [find_arm(candidates, configuration) for configuration in settings.enqueue]
    for number, arm in enumerate(arms):
        if arm is None:
            names = ", ".join(candidates.columns)
            raise UserError(
                f"enqueue.{number} must be one of the candidates, got {dict(settings.enqueue[number])}; "
                f"their parameters are {names}"
            )
    return tuple(arm for arm in arms if arm is not None)


def _for_workers(strategy: AnyStrategy, workers: int) -> AnyStrategy:
    """Return the strategy; its uncertainty sampling targets the number of workers by default."""
    start = warm_start_of(strategy)
    if isinstance(start, UncertaintyStart) and start.workers is None:
        return with_warm_start(strategy, replace(start, workers=workers))
    return strategy


def _objective_and_candidates(settings: Settings, function: Function | None) -> tuple[Objective, Candidates]:
    table = settings.candidates.table
    if table is not None and settings.candidates.target is not None:
        looked_up = table_objective(Path(table), settings.candidates.target, duplicates=settings.candidates.duplicates)
        return looked_up, looked_up.candidates()
    objective = load_objective(settings.objective, settings.data, function)
    if objective is None:  # after the checks of the campaign file, only a table with a target has no objective
        raise CampaignError("the campaign has no objective")
    if table is not None:
        return objective, table_candidates(Path(table), settings.candidates.duplicates)
    if isinstance(objective, HasCandidates):
        return objective, objective.candidates()
    section = settings.candidates
    points = DEFAULT_SIZE if growing_space(settings) is None else GROWING_SIZE
    space = SearchSpace(settings.space, settings.forbid)
    first = [*settings.enqueue, *known_results.configurations(settings.known_results, space)]
    return objective, make_candidates(
        space, size=section.size, sampler=section.sampler, seed=settings.seed, first=first, points=points
    )


def growing_space(settings: Settings) -> SearchSpace | None:
    """Return the space from which further candidates are drawn while the campaign runs; None if
    candidates are never appended.

    Raises UserError if appended candidates are requested but impossible.
    """
    section = settings.candidates
    strategy = build_strategy(settings.strategy)
    if isinstance(strategy, PausesTrials):  # in finite spaces too: the new trials have new configurations
        return SearchSpace(settings.space, settings.forbid)
    can_grow = isinstance(strategy, Grows) and strategy.grows and bool(settings.space)
    if section.grow and not can_grow:
        raise UserError(
            "candidates.grow needs a space and a strategy that can use more candidates: bbkb with its own model"
        )
    grows = section.size is None if section.grow is None else section.grow
    if not (grows and can_grow):
        return None
    space = SearchSpace(settings.space, settings.forbid)
    most = max(LARGEST_WHOLE_SET, section.size or 0)
    return None if space.is_finite and space.count(most) is not None else space
