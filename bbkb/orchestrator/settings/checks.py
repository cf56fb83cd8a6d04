"""The rules between the sections of a campaign file, and those of its objective and strategy.

A rule is checked only if the sections that it reads are right by themselves, so one pass over a file
reports all of its mistakes.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.parameters import Range
from bbkb.objectives.reference import KnowsParameters
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, Multiobjective, PausesTrials, WeighsResults
from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.campaign.settings import (
    OWN_RESULTS,
    Asha,
    GivenResults,
    Median,
    ModelStopping,
    Settings,
)
from bbkb.orchestrator.settings.mistakes import Refusal, align, excerpt
from bbkb.orchestrator.settings.options import AnyObjective, own_space
from bbkb.orchestrator.settings.spaces import prior_problems, space_problems

_WITHOUT_DIRECTION = (
    "is required, because the objective is your own: write direction: minimize for a loss, direction: maximize for an "
    "accuracy"
)


def problems_between(
    settings: Settings, objective: AnyObjective | None, strategy: AnyStrategy, right: Collection[str]
) -> Iterator[Refusal]:
    """Yield the mistakes between the sections that are `right` by themselves; in place of the others,
    `settings` has placeholders."""

    def are_right(sections: str) -> bool:
        return all(section in right for section in sections.split())

    is_from_data = isinstance(warm_start_of(strategy), DataStart)
    if are_right("known_results strategy") and is_from_data and not settings.known_results:
        yield Refusal(("strategy", "warm_start"), "data needs known_results, such as [{table: results.csv}]")
    yield from _of_trainings(settings, strategy, are_right)
    yield from _of_objective(settings, objective, are_right)

    if are_right("objectives constraints strategy"):
        yield from goal_problems([each.metric for each in settings.objectives], bool(settings.constraints), strategy)
    has_goals = len(settings.objectives) > 1 or settings.constraints
    if are_right("objectives constraints budget known_results") and has_goals:
        rule = "must not be given beside several objectives or constraints"
        if settings.budget.target is not None and len(settings.objectives) > 1:
            yield Refusal(("budget", "target"), f"{rule}: no single value is good enough")
        if settings.budget.stop_when is not None:
            yield Refusal(("budget", "stop_when"), f"{rule}: no single value shows a gain")
        if settings.known_results:
            yield Refusal(("known_results",), f"{rule}: known results have one value each")

    most = settings.budget.evaluations
    if are_right("enqueue budget") and len(settings.enqueue) > most:
        rule = f"must hold at most budget.evaluations, {most}, configurations"
        yield Refusal(("enqueue",), rule, str(len(settings.enqueue)))
    if are_right("known_results space"):
        for number, source in enumerate(settings.known_results):
            written = source.results if isinstance(source, GivenResults) and source.source == OWN_RESULTS else ()
            for place, result in enumerate(written):
                for name, value in result.parameters.items():  # null: it is missing
                    is_number = isinstance(value, int | float) and not isinstance(value, bool)
                    if isinstance(settings.space.get(name), Range) and not is_number and value is not None:
                        keys = ("known_results", number, "results", place, "parameters", name)
                        yield Refusal(keys, "must be a number", excerpt(value))
    if are_right("space forbid"):
        yield from space_problems(settings.space, settings.forbid)
    rule = deviation_rule(settings, strategy) if settings.objective.deviation is not None else ""
    if are_right("objective objectives constraints strategy early_stopping") and rule:
        yield Refusal(("objective", "deviation"), rule)
    if are_right("space strategy"):
        yield from prior_problems(settings.space, strategy)
    if are_right("workers objective") and settings.workers.ray_train and settings.objective.command is not None:
        yield Refusal(("workers", "ray_train"), "needs a function: a command's trainer makes a group of its own")


def deviation_rule(settings: Settings, strategy: object) -> str:
    """Return why the deviation of a value cannot be used; an empty text if it can."""
    if not settings.goals.is_single:
        return "needs a single objective without constraints"
    if settings.objective.deviation == settings.goals.objectives[0].metric:
        return "must name another metric than that of the objective"
    if isinstance(settings.early_stopping, ModelStopping):
        return "cannot be used with early_stopping.rule: model, whose model of trainings estimates the noise itself"
    if not (isinstance(strategy, WeighsResults) and strategy.takes_deviations):
        return "needs a strategy that weighs results, such as bbkb with its default preset"
    return ""


def goal_problems(objectives: Sequence[str], has_constraints: bool, strategy: object) -> Iterator[Refusal]:
    """Yield conflicts between the metrics of `objectives`, and a mistake if the strategy does not
    support several goals."""

    def takes_goals(strategy: object) -> bool:
        return isinstance(strategy, Multiobjective) and strategy.takes_goals

    for number, name in enumerate(objectives):
        if name in objectives[:number]:
            yield Refusal(("objectives", number, "metric"), f"must differ from the earlier ones, got {name!r}")
    if (len(objectives) > 1 or has_constraints) and not takes_goals(strategy):
        rule = "must be one of those that take several objectives and constraints"
        defaults = {name: cls(**with_preset(cls, {})) for name, cls in STRATEGIES.items()}
        able = [name for name, default in defaults.items() if takes_goals(default)]
        yield Refusal(("strategy",), f"{rule}: {' and '.join(able)}")


def _of_objective(
    settings: Settings, options: AnyObjective | None, are_right: Callable[[str], bool]
) -> Iterator[Refusal]:
    """Exactly one objective, with a direction, and exactly one source of its candidates."""
    section, space, candidates = settings.objective, settings.space, settings.candidates
    parts: object = options
    count = len(section.sources) + (candidates.target is not None)
    if are_right("objective candidates"):
        if candidates.target is not None and section.sources:
            rule = "must not be given beside candidates.target, which is the objective"
            yield Refusal(("objective", section.sources[0]), rule)
        elif count != 1:
            got = " and ".join(section.sources) or "none of them"
            yield Refusal(("objective",), f"must have exactly one of name, callable and command, got {got}")
    if are_right("objectives objective candidates"):
        if settings.objectives and section.direction not in (None, settings.objectives[0].direction):
            rule = f"must be left out, or be that of the first of objectives, {settings.objectives[0].direction}"
            yield Refusal(("objective", "direction"), rule, str(section.direction))
        if count == 1 and section.direction is None and not settings.objectives and not section.is_listed:
            yield Refusal(("objective", "direction"), _WITHOUT_DIRECTION)
    if are_right("objective space"):
        try:
            if isinstance(parts, ShellCommand) and space:
                parts.check(space)
            elif isinstance(parts, KnowsParameters):
                for name, rule in parts.space_problems(space).items():
                    yield Refusal(("space", name), rule)
        except ObjectiveError as error:
            yield align(("objective", "command" if isinstance(parts, ShellCommand) else "options"), str(error))
    if not are_right("objective candidates space") or (candidates.target is None and len(section.sources) != 1):
        return  # otherwise, the intended objective is unknown
    is_table = candidates.table is not None
    if section.sources == ["name"] and own_space(options) is None:
        given = {("space",): bool(space), ("candidates", "table"): is_table}
        rule = f"must not be given: {section.name} brings its own candidates"
        yield from (Refusal(keys, rule) for keys, is_given in given.items() if is_given)
    elif space and is_table:
        yield Refusal(("space",), "must not be given beside candidates.table, whose rows are the candidates")
    elif not space and not is_table:
        yield Refusal(("space",), "is required (or candidates.table): the parameters and their ranges")


def _of_trainings(settings: Settings, strategy: AnyStrategy, are_right: Callable[[str], bool]) -> Iterator[Refusal]:
    """Conflicts between early stopping, or a strategy that pauses its trials itself, and others."""
    rule = settings.early_stopping
    if are_right("early_stopping strategy objectives constraints"):
        key = ("early_stopping", "rule")
        if isinstance(rule, Asha | Median):
            metrics = [objective.metric for objective in settings.objectives] or [VALUE]
            if rule.metric not in (None, *metrics):
                text = f"must be the metric of an objective ({', '.join(metrics)}), got {rule.metric!r}"
                yield Refusal(("early_stopping", "metric"), text)
        elif rule is not None and (not isinstance(strategy, LearnsCurves) or model_of(strategy) is None):
            text = "must be median or asha with this strategy: model needs one whose model learns curves, such as bbkb "
            yield Refusal(key, f"{text}with its default preset")
        elif rule is not None and (len(settings.objectives) > 1 or settings.constraints):
            text = "must be median or asha beside several objectives or constraints: they compare one reported metric"
            yield Refusal(key, f"{text}, early_stopping.metric")
    needed = "strategy early_stopping space budget known_results workers"
    if not are_right(needed) or not isinstance(strategy, PausesTrials):
        return
    name = f"strategy {settings.strategy['name']}"
    without = f"must be left out with {name}"
    if rule is not None:
        yield Refusal(("early_stopping",), f"{without}, which pauses and replaces trials itself")
    if not settings.space:
        yield Refusal(("space",), f"must be given with {name}, which perturbs its parameters")
    if settings.known_results:
        yield Refusal(("known_results",), f"{without}, which copies checkpoints of its own trials")
    if settings.budget.steps is not None and settings.workers.traits.in_virtual_time:
        yield Refusal(("budget", "steps"), f"{without} in virtual time, because stopped trials use all steps there")
    if settings.budget.evaluations <= strategy.population:
        text = f"must be above strategy.population, {strategy.population}, because each copy is a new trial"
        yield Refusal(("budget", "evaluations"), text, excerpt(settings.budget.evaluations))
