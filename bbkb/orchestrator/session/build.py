"""Builds the objective, the candidates and the strategy that a campaign file names, with the limits of an
evaluation, the GPUs of each trial if a parameter determines them, and `early_stopping: {rule: model}`
completed from the objective and the budget.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.external import HasFunction, PythonCallable, takes_argument
from bbkb.objectives.objective import Candidates, HasCandidates, HasDescription, HasOptimum, Objective, TrainsInSteps
from bbkb.objectives.pickled import LiveFunction, PickledFunction
from bbkb.objectives.returned import VALUE, WithMetrics
from bbkb.objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from bbkb.objectives.space import SearchSpace
from bbkb.objectives.tabular import table_candidates, table_objective
from bbkb.orchestrator.bandit.start.warm_start import (
    UncertaintyStart,
    begins_at_center,
    warm_start_of,
    with_warm_start,
)
from bbkb.orchestrator.bandit.strategy import AnyStrategy, PausesTrials
from bbkb.orchestrator.campaign.events import ExistingTaken
from bbkb.orchestrator.campaign.settings import ModelStopping, Settings, ends_of
from bbkb.orchestrator.campaign.trainings import NO_FIRST_TRAININGS, first_trainings
from bbkb.orchestrator.engine.engine import Problem
from bbkb.orchestrator.engine.matching import find_arm
from bbkb.orchestrator.engine.pool import Pool, grows_in
from bbkb.orchestrator.errors import CampaignError, UserError
from bbkb.orchestrator.session import known_results
from bbkb.orchestrator.settings.options import load_objective, objective_of
from bbkb.orchestrator.settings.strategies import build_strategy
from bbkb.workers.messages import Limits, Share


def limits_of(settings: Settings) -> Limits:
    """Return the limits of one evaluation."""
    memory = None if settings.workers.memory_gb is None else int(settings.workers.memory_gb * 1e9)
    return Limits(timeout_seconds=settings.workers.timeout_seconds, memory_bytes=memory)


_PROGRAMS = ("python", "python3", "bash", "sh", "make", "java", "julia", "Rscript", "torchrun", "mpirun")


def missing_program(settings: Settings) -> str:
    """Return a sentence if this machine lacks the program of the command, else an empty text."""
    command = objective_of(settings.objective)
    program = command.missing_program() if isinstance(command, ShellCommand) else ""
    if not program:
        return ""
    hint = did_you_mean(program, _PROGRAMS)
    return f"objective.command: this machine has no program {program!r}{hint}"


def largest_share(settings: Settings, candidates: Candidates) -> Share | None:
    """Return the largest amount of each resource that a trial takes; None if all trials take the same.

    Raises UserError if the parameter that gives the GPUs does not exist or has a value that Ray
    cannot assign: neither a fraction of one nor a whole number.
    """
    workers = settings.workers
    name = workers.gpus_from
    if name is None:
        return None
    if name not in candidates.columns:
        names = list(candidates.columns)
        rule = f"must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}"
        raise UserError(f"workers.gpus_from {rule}")
    values = [*candidates.columns[name].tolist(), *ends_of(settings.space.get(name))]
    amounts = [value for value in values if value is not None]
    for value in amounts:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (0 <= value <= 1 or (float(value).is_integer() and value > 1)):
            raise UserError(
                "workers.gpus_from must be a parameter whose values are >= 0, and whole above 1; "
                f"{name} has {value!r}: give it choices or integer: true"
            )
    return workers.share_of({name: max(map(float, amounts), default=None)})


def with_training(settings: Settings, objective: object, is_begun: bool = False) -> Settings:
    """Return `settings` with decisions about the trials' folders, continued trials, their last step
    and short first trainings. `is_begun`: whether `settings` already contain the decisions of an earlier session,
    which are kept."""
    rule = settings.early_stopping
    strategy = settings.strategy
    with_folders = replace(settings.workers, trial_folders=True)
    if "folder" not in settings.space and takes_argument(objective, "folder", is_required=True):
        settings = replace(settings, workers=with_folders)
    if settings.pauses_trials:
        strategy = {**strategy, "last_step": _last_step(strategy["last_step"], objective)}
        return replace(settings, strategy=strategy, workers=with_folders)
    if not isinstance(rule, ModelStopping):
        return settings
    is_decided = is_begun and rule.continues is not None and rule.first_trials is not None
    if not is_decided:
        rule = replace(rule, last_step=_last_step(rule.last_step, objective))
    continues = rule.continues
    if continues is None:
        continues = True if _has_checkpoints(objective) else "anew"
    decided = replace(rule, continues=continues)
    if rule.first_trials is None:
        budget = settings.budget
        plan = first_trainings(rule.last_step, budget.evaluations, budget.steps) if continues else NO_FIRST_TRAININGS
        decided = replace(decided, first_trials=plan.trials, first_steps=plan.steps)
    workers = with_folders if continues is True else settings.workers
    return replace(settings, early_stopping=decided, workers=workers)


def check_reports(settings: Settings, objective: object) -> None:
    """Raise UserError if early stopping is requested and the tuned function cannot report values, or
    trainings do not end at `last_step`.

    Whether other objectives, such as a command, report values is unknown before they run.
    """
    rule = settings.early_stopping
    if settings.pauses_trials:
        name, strategy = f"strategy {settings.strategy['name']}", settings.strategy
        if not _has_checkpoints(objective):
            raise UserError(
                f"{name} needs trainings that keep checkpoints: a function with an argument `folder`, which saves its "
                "checkpoint there before it reports and loads one that it finds, or a command that names BBKB_FOLDER"
            )
        _check_last_step("strategy", strategy["last_step"], objective)
        end = objective.last_step if isinstance(objective, TrainsInSteps) else strategy["last_step"]
        if end is not None and strategy["interval"] >= end:
            got = strategy["interval"]
            raise UserError(f"strategy.interval must be below the last step of a training, {end}, got {got}")
        _check_function(settings, objective, "strategy", name)
    if isinstance(rule, ModelStopping):
        _check_last_step("early_stopping", rule.last_step, objective)
    if rule is not None:
        _check_function(settings, objective, "early_stopping", "early_stopping.rule")


def _check_last_step(section: str, last_step: int | None, objective: object) -> None:
    if not isinstance(objective, TrainsInSteps) or last_step in (None, objective.last_step):
        return
    raise UserError(
        f"{section}.last_step must be {objective.last_step}, the epochs of this objective, or be "
        f"left out, got {last_step}; objective.options.epochs changes both"
    )


def _check_function(settings: Settings, objective: object, key: str, needing: str) -> None:
    """Raise UserError if the tuned function cannot report values, as the setting `needing` of the
    section `key` requires."""
    is_parameter = "report" in settings.space
    if not isinstance(objective, HasFunction) or (not is_parameter and takes_argument(objective, "report")):
        return
    function = settings.objective.callable or "this function"
    why = f"{function} has no argument `report`: add it, and call report(value, step) in its loop"
    if is_parameter:
        why = "`report` is a parameter of the space: rename it"
    raise UserError(f"{needing} needs a function that reports values, but {why}; or remove {key}")


def remark_on_reports(settings: Settings, objective: object) -> str:
    """Return a remark for the user if early stopping judges trials by reports that differ from the
    returned value; otherwise an empty text."""
    if not isinstance(settings.early_stopping, ModelStopping) or not isinstance(objective, TrainsInSteps):
        return ""
    remark = objective.remark_on_reports
    return remark and f"early_stopping.rule model takes reported values and results for the same quantity: {remark}"


def _has_checkpoints(objective: object) -> bool:
    if isinstance(objective, TrainsInSteps):
        return True
    if isinstance(objective, ShellCommand):
        return "BBKB_FOLDER" in objective.command
    return takes_argument(objective, "folder")


def _last_step(given: int | None, objective: object) -> int | None:
    if given is None and isinstance(objective, TrainsInSteps) and objective.last_step > 1:
        return objective.last_step
    return given


Function = Callable[..., object]


@dataclass(frozen=True)
class Parts:
    """The objective, the candidates and the strategy of a campaign."""

    problem: Problem
    objective: Objective
    largest: Share | None = None  # the resources of the largest trial if parameters determine them
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
    section, traits = settings.workers, settings.workers.traits
    thread = threading.current_thread()
    if traits.one_at_a_time and section.timeout_seconds is not None and thread is not threading.main_thread():
        raise UserError(
            f"workers.timeout_seconds with workers.executor {section.executor} needs the program's "
            f"main thread, where an alarm can end an evaluation, got {section.timeout_seconds:g} in the thread "
            f"{thread.name!r}: run the campaign in the main thread, leave timeout_seconds out, or set "
            "workers.executor to ray"
        )
    strategy = build_strategy(settings.strategy)
    start = warm_start_of(strategy)
    if isinstance(start, UncertaintyStart) and start.workers is None:
        strategy = with_warm_start(strategy, replace(start, workers=1 if traits.one_at_a_time else section.count))
    copies = isinstance(strategy, PausesTrials)  # its new trials have new configurations, in finite spaces too
    space = SearchSpace(settings.space, settings.forbid) if settings.space or copies else None
    grows = copies or (space is not None and settings.candidates.size is None and grows_in(strategy, space))
    objective, candidates = _objective_and_candidates(settings, function, strategy, space, grows)
    if isinstance(objective, PythonCallable | PickledFunction | LiveFunction):
        objective.check(candidates.columns, candidates.conditional)
    if isinstance(objective, ShellCommand):
        objective.check(candidates.columns)
    pool = Pool(candidates, space, grows)
    problem = Problem(settings.seed, pool, strategy, settings.objective.deterministic, settings.goals.for_strategy)
    deviation = settings.objective.deviation
    # an evaluation fails if one of these metrics is missing
    if settings.objectives or settings.constraints or deviation is not None:
        needed = (
            *((goal.metric, f"objectives.{number}") for number, goal in enumerate(settings.objectives)),
            *((goal.metric, f"constraints.{number}") for number, goal in enumerate(settings.constraints)),
            *([] if deviation is None else [(deviation, "objective.deviation")]),
        )
        first = settings.objectives[0].metric if settings.objectives else VALUE
        objective = WithMetrics(objective, first, needed, deviation)
    enqueued: list[int] = []
    for number, configuration in enumerate(settings.enqueue):
        arm = find_arm(candidates, configuration)
        if arm is None:
            raise UserError(
                f"enqueue.{number} must be one of the candidates, got {dict(configuration)}; their parameters are "
                f"{', '.join(candidates.columns)}"
            )
        enqueued.append(arm)
    return Parts(problem, objective, largest_share(settings, candidates), tuple(enqueued))


class New(NamedTuple):
    """A campaign that has not begun."""

    settings: Settings  # with the results of its sources
    parts: Parts
    known: ExistingTaken | None  # the results that it knows before it begins


def build_new(settings: Settings, function: Function | None = None) -> New:
    """Read the known results, and return `build` for a campaign that has not begun. A resume is checked
    less strictly.

    Also raises UserError if a known result cannot be read or matched, if early stopping is requested and
    the trials report no values, or if this machine would run a command and lacks its program.
    """
    settings = known_results.read_sources(settings)
    parts = build(settings, function)
    if not settings.workers.traits.on_ray and (missing := missing_program(settings)):
        raise UserError(f"{missing} (install it, or correct the command)")
    check_reports(settings, parts.training_objective)
    return New(settings, parts, known_results.existing(settings, parts.problem))


def _objective_and_candidates(
    settings: Settings, function: Function | None, strategy: AnyStrategy, space: SearchSpace | None, grows: bool
) -> tuple[Objective, Candidates]:
    table = settings.candidates.table
    if table is not None and settings.candidates.target is not None:
        looked_up = table_objective(Path(table), settings.candidates.target)
        return looked_up, looked_up.candidates()
    objective = load_objective(settings.objective, settings.data, function)
    if objective is None:  # after the checks of the campaign file, only a table with a target has no objective
        raise CampaignError("the campaign has no objective")
    if table is not None:
        return objective, table_candidates(Path(table))
    if isinstance(objective, HasCandidates):
        return objective, objective.candidates()
    section = settings.candidates
    space = space or SearchSpace(settings.space, settings.forbid)
    first = [*settings.enqueue, *known_results.configurations(settings.known_results, space)]
    return objective, make_candidates(
        space,
        size=section.size,
        sampler=section.sampler,
        seed=settings.seed,
        first=first,
        points=GROWING_SIZE if grows else DEFAULT_SIZE,
        at_center=begins_at_center(strategy),
    )
