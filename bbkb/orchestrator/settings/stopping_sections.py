"""The campaign file's section `early_stopping`: one model for each rule."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from bbkb.orchestrator.bandit.model.model import model_of
from bbkb.orchestrator.bandit.strategy import LearnsCurves, PausesTrials
from bbkb.orchestrator.campaign.goals import VALUE
from bbkb.orchestrator.settings.goal_sections import ConstraintSettings, ObjectiveMetricSettings
from bbkb.orchestrator.settings.known_results import Known, has_values
from bbkb.orchestrator.settings.mistakes import Refusal, excerpt, failure
from bbkb.orchestrator.settings.sections import WHOLE, BudgetSettings, NaturalInt, PositiveInt, Section
from bbkb.orchestrator.settings.strategies import strategy_name
from bbkb.orchestrator.settings.worker_sections import WorkerSettings


class AshaSettings(Section):
    """Early stopping by asynchronous successive halving."""

    rule: Literal["asha"]
    """Stop a trial unless it is among the best 1/reduction at its step."""
    reduction: Annotated[float, Field(gt=1)] = 3.0
    """One in this number of trials at a step continues to `reduction` times that step."""
    first_step: PositiveInt = 1
    """The first step at which trials are compared."""
    metric: str | None = None
    """The objective whose reports are compared, by its metric; null: the first one."""


class MedianSettings(Section):
    """Early stopping by the median rule."""

    rule: Literal["median"]
    """Stop a trial that is worse than the median at its step."""
    after: PositiveInt = 3
    """The first step at which trials are compared."""
    metric: str | None = None
    """The objective whose reports are compared, by its metric; null: the first one."""


class ModelStoppingSettings(Section):
    """Early stopping by the model over configurations and steps."""

    model_config = ConfigDict(populate_by_name=True)  # `continue` is a keyword of Python

    rule: Literal["model"] = "model"
    """Learn from learning curves: pause trials after 1/2, 1/4, 1/8 of their steps and so on, and
    continue those with the best expected final values. Without checkpoints: stop trials that are
    worse than the median at their step. In both cases, also stop trials whose expected final value
    is worse than the best one."""
    last_step: Annotated[int, Field(ge=2), WHOLE] | None = None
    """The step at which a training ends. null: the epochs of a training that is part of bbkb; for
    other objectives the largest step of a finished trial, and there are no short first
    trainings."""
    after: PositiveInt = 3
    """The first step at which trials are paused or compared."""
    continues: bool | Literal["anew"] | None = Field(default=None, alias="continue")
    """Whether a promising stopped trial continues. true: from a checkpoint in its folder, which
    implies workers.trial_folders; anew: it restarts from its first step at the end of the budget;
    false: never; null: true if the function has an argument `folder`, the command names
    BBKB_FOLDER, or the training is part of bbkb, else anew."""
    first_trials: NaturalInt | None = None
    """The number of trials that are trained for first_steps only, before the best ones continue.
    null: determined by the budget; 0: none. Requires trials that can continue."""
    first_steps: PositiveInt | None = None
    """The number of steps of each of the first trials; null: all of them use about an eighth of the
    budget."""
    finish: NaturalInt = 3
    """The number of the best unfinished trials that are completed at the end of the budget."""
    keep_checkpoints: NaturalInt | None = None
    """The number of stopped trials whose files are kept: those with the best forecasts. The other
    trials cannot continue. null: the files of all trials are kept."""


def _with_rule(section: object) -> object:
    """Return the section with its rule, which is `model` unless it or an option of `asha` is given.
    Raises an error if the section is a string."""
    if isinstance(section, str):
        rule = "must be a mapping such as {rule: asha}, {rule: median} or {rule: model}"
        raise failure([Refusal((), rule, excerpt(section))])
    if isinstance(section, Mapping) and section.keys().isdisjoint(AshaSettings.model_fields):
        return {"rule": "model", **section}
    return section


StoppingSettings = Annotated[
    Annotated[AshaSettings | MedianSettings | ModelStoppingSettings, Field(discriminator="rule")],
    BeforeValidator(_with_rule),
]


def pause_problems(
    strategy: object,
    early_stopping: object,
    space: Mapping[str, object],
    budget: BudgetSettings,
    known_results: Known,
    workers: WorkerSettings,
) -> Iterator[Refusal]:
    """Yield conflicts between other sections and a strategy that pauses its trials itself."""
    if not isinstance(strategy, PausesTrials):
        return
    name = f"strategy {strategy_name(type(strategy))}"
    without = f"must be left out with {name}"
    if early_stopping is not None:
        yield Refusal(("early_stopping",), f"{without}, which pauses and replaces trials itself")
    if not space:
        yield Refusal(("space",), f"must be given with {name}, which perturbs its parameters")
    if has_values(known_results):
        yield Refusal(("known_results",), f"{without}, which copies checkpoints of its own trials")
    if budget.steps is not None and workers.traits.in_virtual_time:
        rule = f"{without} in virtual time, because stopped trials use all steps there"
        yield Refusal(("budget", "steps"), rule)
    if budget.evaluations <= strategy.population:
        rule = f"must be above strategy.population, {strategy.population}, because each copy is a new trial"
        yield Refusal(("budget", "evaluations"), rule, excerpt(budget.evaluations))


def stopping_problems(
    early_stopping: object,
    strategy: object,
    objectives: Sequence[ObjectiveMetricSettings],
    constraints: Sequence[ConstraintSettings],
) -> Iterator[Refusal]:
    """Yield conflicts between early stopping and the goals or the strategy."""
    if isinstance(early_stopping, AshaSettings | MedianSettings):
        metrics = [objective.metric for objective in objectives] or [VALUE]
        if early_stopping.metric not in (None, *metrics):
            rule = f"must be the metric of an objective ({', '.join(metrics)}), got {early_stopping.metric!r}"
            yield Refusal(("early_stopping", "metric"), rule)
    if not isinstance(early_stopping, ModelStoppingSettings):
        return
    if len(objectives) > 1 or constraints:
        rule = "must be median or asha beside several objectives or constraints: they compare one reported metric"
        yield Refusal(("early_stopping", "rule"), f"{rule}, early_stopping.metric")
    if not isinstance(strategy, LearnsCurves) or model_of(strategy) is None:
        rule = "must be median or asha with this strategy: model needs one whose model learns curves, such as bbkb "
        yield Refusal(("early_stopping", "rule"), f"{rule}with its default preset")
    kept = early_stopping.keep_checkpoints
    finish = early_stopping.finish
    if kept is not None and kept < finish:
        yield Refusal(("early_stopping", "keep_checkpoints"), f"must be >= finish, {finish}, got {kept}")
