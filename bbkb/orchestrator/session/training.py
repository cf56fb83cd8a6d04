"""Completes `early_stopping: {rule: model}` and `workers.trial_folders` at the start of a session,
from the objective and the budget."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bbkb.objectives.command import ShellCommand
from bbkb.objectives.external import HasFunction, takes_argument
from bbkb.objectives.objective import TrainsInSteps
from bbkb.orchestrator.campaign.settings import ModelStopping, Settings
from bbkb.orchestrator.campaign.trainings.first import NO_FIRST_TRAININGS, FirstTrainings, first_trainings
from bbkb.orchestrator.errors import UserError


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
    first = _first(settings, rule) if continues else NO_FIRST_TRAININGS
    decided = replace(rule, continues=continues, first_trials=first.trials, first_steps=first.steps)
    workers = with_folders if continues is True else settings.workers
    return replace(settings, early_stopping=decided, workers=workers)


def check_reports(settings: Settings, objective: object) -> None:
    """Raise UserError if early stopping is requested and the tuned function cannot report values,
    trainings do not end at `last_step`, or short first trainings do not end before it.

    Whether other objectives, such as a command, report values is unknown before they run.
    """
    rule = settings.early_stopping
    if settings.pauses_trials:
        name = f"strategy {settings.strategy['name']}"
        _check_pauses(name, settings.strategy, objective)
        _check_function(settings, objective, "strategy", name)
    if isinstance(rule, ModelStopping):
        _check_last_step("early_stopping", rule.last_step, objective)
        _check_first(rule, _last_step(rule.last_step, objective))
    if rule is not None:
        _check_function(settings, objective, "early_stopping", "early_stopping.rule")


def _check_last_step(section: str, last_step: int | None, objective: object) -> None:
    """Raise UserError if the `last_step` of a section differs from the objective's."""
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


def _check_pauses(name: str, strategy: Mapping[str, Any], objective: object) -> None:
    """Raise UserError if trials save no checkpoints or end before their first pause."""
    if not _has_checkpoints(objective):
        raise UserError(
            f"{name} needs trainings that keep checkpoints: a function with an argument `folder`, which saves its "
            "checkpoint there before it reports and loads one that it finds, or a command that names BBKB_FOLDER"
        )
    interval, last_step = strategy["interval"], strategy["last_step"]
    _check_last_step("strategy", last_step, objective)
    end = objective.last_step if isinstance(objective, TrainsInSteps) else last_step
    if end is not None and interval >= end:
        raise UserError(f"strategy.interval must be below the last step of a training, {end}, got {interval}")


def remark_on_reports(settings: Settings, objective: object) -> str:
    """Return a remark for the user if early stopping judges trials by reports that differ from the
    returned value; otherwise an empty text."""
    if not isinstance(settings.early_stopping, ModelStopping) or not isinstance(objective, TrainsInSteps):
        return ""
    remark = objective.remark_on_reports
    return remark and f"early_stopping.rule model takes reported values and results for the same quantity: {remark}"


def _has_checkpoints(objective: object) -> bool:
    """Return whether the objective receives a folder for checkpoints."""
    if isinstance(objective, TrainsInSteps):
        return True
    if isinstance(objective, ShellCommand):
        return "BBKB_FOLDER" in objective.command
    return takes_argument(objective, "folder")


def _last_step(given: int | None, objective: object) -> int | None:
    """Return the step at which trainings end, from the settings or the objective; None if
    unknown."""
    if given is None and isinstance(objective, TrainsInSteps) and objective.last_step > 1:
        return objective.last_step
    return given


def _check_first(rule: ModelStopping, last_step: int | None) -> None:
    if last_step is None and rule.first_trials:
        raise UserError(
            "early_stopping.last_step must be given with first_trials; a training that is part of bbkb needs 2 or more "
            "objective.options.epochs instead"
        )
    if last_step is not None and rule.first_steps is not None and rule.first_steps >= last_step:
        raise UserError(f"early_stopping.first_steps must be below last_step, {last_step}, got {rule.first_steps}")


def _first(settings: Settings, rule: ModelStopping) -> FirstTrainings:
    budget = settings.budget
    return first_trainings(rule.last_step, budget.evaluations, budget.steps, rule.first_trials, rule.first_steps)
