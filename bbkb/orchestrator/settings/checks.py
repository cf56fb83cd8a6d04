"""The rules between the sections of a campaign file, and those of its objective and strategy.

Each check yields the mistakes that it finds. It runs only if the sections that it reads are right
by themselves, so one pass over a file reports all of its mistakes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.reference import KnowsParameters
from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.start.warm_start import DataStart, warm_start_of
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, Multiobjective, PausesTrials
from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.campaign.settings import Asha, Median, ModelStopping, Settings
from bbkb.orchestrator.settings.mistakes import Refusal, align, excerpt
from bbkb.orchestrator.settings.options import AnyObjective, own_space
from bbkb.orchestrator.settings.spaces import prior_problems, space_problems

_WITHOUT_DIRECTION = (
    "is required, because the objective is your own: write direction: minimize for a loss, direction: maximize for an "
    "accuracy"
)


@dataclass(frozen=True)
class Draft:
    """Settings of which some sections may be missing, because they are wrong, with the parts that
    they name."""

    settings: Settings
    objective: AnyObjective | None
    strategy: AnyStrategy


def problems_between(draft: Draft, right: Mapping[str, object]) -> Iterator[Refusal]:
    """Yield the mistakes between the sections that are `right` by themselves."""
    for needed, check in _CHECKS:
        if all(section in right for section in needed.split()):
            yield from check(draft)


def goal_problems(objectives: Sequence[str], has_constraints: bool, strategy: object) -> Iterator[Refusal]:
    """Yield conflicts between the metrics of `objectives`, and a mistake if the strategy does not
    support several goals."""
    for number, name in enumerate(objectives):
        if name in objectives[:number]:
            yield Refusal(("objectives", number, "metric"), f"must differ from the earlier ones, got {name!r}")
    if (len(objectives) > 1 or has_constraints) and not _takes_goals(strategy):
        rule = "must be one of those that take several objectives and constraints"
        defaults = {name: cls(**with_preset(cls, {})) for name, cls in STRATEGIES.items()}
        able = [name for name, default in defaults.items() if _takes_goals(default)]
        yield Refusal(("strategy",), f"{rule}: {' and '.join(able)}")


def _takes_goals(strategy: object) -> bool:
    return isinstance(strategy, Multiobjective) and strategy.takes_goals


def _goals(draft: Draft) -> Iterator[Refusal]:
    settings = draft.settings
    yield from goal_problems([each.metric for each in settings.objectives], bool(settings.constraints), draft.strategy)


def _objective(draft: Draft) -> Iterator[Refusal]:
    """The choice of the objective."""
    target = draft.settings.candidates.target
    sources = draft.settings.objective.sources
    if target is not None and sources:
        rule = "must not be given beside candidates.target, which is the objective"
        yield Refusal(("objective", sources[0]), rule)
    elif target is None and len(sources) != 1:
        got = " and ".join(sources) or "none of them"
        yield Refusal(("objective",), f"must have exactly one of name, callable and command, got {got}")


def _direction(draft: Draft) -> Iterator[Refusal]:
    """A direction that contradicts the objectives or is unknown."""
    settings = draft.settings
    direction = settings.objective.direction
    if settings.objectives and direction not in (None, settings.objectives[0].direction):
        rule = f"must be left out, or be that of the first of objectives, {settings.objectives[0].direction}"
        yield Refusal(("objective", "direction"), rule, str(direction))
    count = len(settings.objective.sources) + (settings.candidates.target is not None)
    if count == 1 and direction is None and not settings.objectives and not settings.objective.is_listed:
        yield Refusal(("objective", "direction"), _WITHOUT_DIRECTION)


def _parameters(draft: Draft) -> Iterable[Refusal]:
    """The parameters that the objective uses."""
    options: object = draft.objective
    space = draft.settings.space
    try:
        if isinstance(options, ShellCommand) and space:
            options.check(space)
        elif isinstance(options, KnowsParameters):
            return [Refusal(("space", name), rule) for name, rule in options.space_problems(space).items()]
    except ObjectiveError as error:
        key = "command" if isinstance(options, ShellCommand) else "options"
        return [align(("objective", key), str(error))]
    return []


def _candidates(draft: Draft) -> Iterator[Refusal]:
    """Exactly one of objective, space and table provides the candidates."""
    objective = draft.settings.objective
    candidates = draft.settings.candidates
    space = draft.settings.space
    is_table = candidates.table is not None
    if candidates.target is None and len(objective.sources) != 1:
        return  # the intended objective is unknown
    if objective.sources == ["name"] and own_space(draft.objective) is None:
        given = {("space",): bool(space), ("candidates", "table"): is_table}
        rule = f"must not be given: {objective.name} brings its own candidates"
        yield from (Refusal(keys, rule) for keys, is_given in given.items() if is_given)
    elif space and is_table:
        yield Refusal(("space",), "must not be given beside candidates.table, whose rows are the candidates")
    elif not space and not is_table:
        yield Refusal(("space",), "is required (or candidates.table): the parameters and their ranges")


def _excluded(draft: Draft) -> Iterator[Refusal]:
    """The settings that several objectives or constraints exclude."""
    settings = draft.settings
    if len(settings.objectives) <= 1 and not settings.constraints:
        return
    rule = "must not be given beside several objectives or constraints"
    if settings.budget.target is not None and len(settings.objectives) > 1:
        yield Refusal(("budget", "target"), f"{rule}: no single value is good enough")
    if settings.budget.stop_when is not None:
        yield Refusal(("budget", "stop_when"), f"{rule}: no single value shows a gain")
    if settings.known_results:
        yield Refusal(("known_results",), f"{rule}: known results have one value each")


def _known(draft: Draft) -> Iterator[Refusal]:
    """A start from known results without any."""
    if isinstance(warm_start_of(draft.strategy), DataStart) and not draft.settings.known_results:
        yield Refusal(("strategy", "warm_start"), "data needs known_results, such as [{table: results.csv}]")


def _stopping(draft: Draft) -> Iterator[Refusal]:
    """Conflicts between early stopping and the goals or the strategy."""
    settings = draft.settings
    rule = settings.early_stopping
    if isinstance(rule, Asha | Median):
        metrics = [objective.metric for objective in settings.objectives] or [VALUE]
        if rule.metric not in (None, *metrics):
            text = f"must be the metric of an objective ({', '.join(metrics)}), got {rule.metric!r}"
            yield Refusal(("early_stopping", "metric"), text)
    if not isinstance(rule, ModelStopping):
        return
    if not isinstance(draft.strategy, LearnsCurves) or model_of(draft.strategy) is None:
        text = "must be median or asha with this strategy: model needs one whose model learns curves, such as bbkb "
        yield Refusal(("early_stopping", "rule"), f"{text}with its default preset")
    elif len(settings.objectives) > 1 or settings.constraints:
        text = "must be median or asha beside several objectives or constraints: they compare one reported metric"
        yield Refusal(("early_stopping", "rule"), f"{text}, early_stopping.metric")


def _pauses(draft: Draft) -> Iterator[Refusal]:
    """Conflicts between other sections and a strategy that pauses its trials itself."""
    settings = draft.settings
    if not isinstance(draft.strategy, PausesTrials):
        return
    name = f"strategy {settings.strategy['name']}"
    without = f"must be left out with {name}"
    if settings.early_stopping is not None:
        yield Refusal(("early_stopping",), f"{without}, which pauses and replaces trials itself")
    if not settings.space:
        yield Refusal(("space",), f"must be given with {name}, which perturbs its parameters")
    if settings.known_results:
        yield Refusal(("known_results",), f"{without}, which copies checkpoints of its own trials")
    if settings.budget.steps is not None and settings.workers.traits.in_virtual_time:
        rule = f"{without} in virtual time, because stopped trials use all steps there"
        yield Refusal(("budget", "steps"), rule)
    if settings.budget.evaluations <= draft.strategy.population:
        rule = f"must be above strategy.population, {draft.strategy.population}, because each copy is a new trial"
        yield Refusal(("budget", "evaluations"), rule, excerpt(settings.budget.evaluations))


def _enqueued(draft: Draft) -> Iterator[Refusal]:
    """More configurations than evaluations."""
    most = draft.settings.budget.evaluations
    if len(draft.settings.enqueue) > most:
        rule = f"must hold at most budget.evaluations, {most}, configurations"
        yield Refusal(("enqueue",), rule, str(len(draft.settings.enqueue)))


def _trainer(draft: Draft) -> Iterator[Refusal]:
    """A command that should start a trainer of Ray Train."""
    if draft.settings.workers.ray_train and draft.settings.objective.command is not None:
        rule = "needs a function: a command's trainer makes a group of its own"
        yield Refusal(("workers", "ray_train"), rule)


# the sections that each check reads
_CHECKS: tuple[tuple[str, Callable[[Draft], Iterable[Refusal]]], ...] = (
    ("known_results strategy", _known),
    ("early_stopping strategy objectives constraints", _stopping),
    ("strategy early_stopping space budget known_results workers", _pauses),
    ("objective candidates", _objective),
    ("objectives objective candidates", _direction),
    ("objective space", _parameters),
    ("objectives constraints strategy", _goals),
    ("objectives constraints budget known_results", _excluded),
    ("objective candidates space", _candidates),
    ("enqueue budget", _enqueued),
    ("space forbid", lambda draft: space_problems(draft.settings.space, draft.settings.forbid)),
    ("space strategy", lambda draft: prior_problems(draft.settings.space, draft.strategy)),
    ("workers objective", _trainer),
)
