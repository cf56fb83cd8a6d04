"""The settings of a resume: recorded settings complete the new ones."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import SpreadStart
from orchestrator.bandit.strategies.presets import COVERAGE, VERIFY
from orchestrator.settings.imported import Earlier
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.settings.sections import MOST_TRIALS
from orchestrator.settings.stopping_sections import ModelStoppingSettings

# options of strategies that the first versions lacked, with their current defaults
_LATER_OPTIONS = {"coverage": COVERAGE, "verify": VERIFY}
# settings of `rule: model` that the first session determines unless they are given
_DECIDED = ("continues", "last_step", "first_trials", "first_steps")


def with_recorded(old: Mapping[str, object], settings: Settings) -> Settings:
    """Return the settings of a resume, completed by the run's settings `old`.

    * Existing data and the configurations of the same earlier runs are taken from the record,
      because their sources may have changed.
    * `workers.retries` and later options of the strategy keep the run's values unless they are
      given, because their defaults have changed.
    * The decisions of the first session about trainings hold.
    * If only a budget of steps was given, the number of evaluations rises with it.
    """
    recorded = from_mapping(old)
    workers = settings.workers
    budget = settings.budget
    before = recorded.budget
    steps = budget.steps or 0
    if before.steps == before.evaluations == budget.evaluations < steps:  # only `steps` was given
        budget = budget.model_copy(update={"evaluations": min(steps, MOST_TRIALS)})
    if workers.retries is None:
        workers = workers.model_copy(update={"retries": recorded.workers.retries})
    rule = settings.early_stopping
    begun = recorded.early_stopping
    if isinstance(rule, ModelStoppingSettings) and isinstance(begun, ModelStoppingSettings):
        left_open = [name for name in _DECIDED if getattr(rule, name) is None]
        rule = rule.model_copy(update={name: getattr(begun, name) for name in left_open})
        if rule.continues is True:
            workers = workers.model_copy(update={"trial_folders": True})
    return settings.model_copy(
        update={
            "existing_data": recorded.existing_data,
            "earlier": recorded.earlier if _are_same(recorded.earlier, settings.earlier) else settings.earlier,
            "workers": workers,
            "budget": budget,
            "early_stopping": rule,
            "strategy": _as_begun(old.get("strategy"), recorded.strategy, settings.strategy),
        }
    )


def _are_same(recorded: Earlier | None, earlier: Earlier | None) -> bool:
    """Return whether the section lists the recorded runs. A recorded folder that no longer exists
    is compared by its name."""
    if recorded is None or earlier is None or len(recorded.runs) != len(earlier.runs):
        return False
    return all(
        Path(before).resolve() == Path(now).resolve() if os.path.exists(before) else Path(before).name == Path(now).name
        for before, now in zip(recorded.runs, earlier.runs, strict=True)
    )


def _as_begun(old: object, before: Any, strategy: Any) -> Any:
    """Return the strategy with the options with which an older version began the run.

    Args:
        old: the recorded options. An older version did not record those that came later.
        before: the strategy built from `old`.
        strategy: the strategy of the resume. Its options that differ from the defaults are kept.
    """
    if not isinstance(old, Mapping) or type(before) is not type(strategy):
        return strategy
    changed = {
        name: getattr(before, name)
        for name, default in _LATER_OPTIONS.items()
        if name not in old and getattr(strategy, name, None) == default
    }
    changed |= _start_as_begun(old.get("model"), before, strategy)
    return replace(strategy, **changed) if changed else strategy


def _start_as_begun(model: object, before: Any, strategy: Any) -> dict[str, Any]:
    """Return the model and the start of a run whose recorded `model` lacks `first_fit`."""
    if not isinstance(model, Mapping) or "first_fit" in model or not isinstance(strategy.model, Model):
        return {}
    changed: dict[str, Any] = {}
    if strategy.model.first_fit is None:
        changed["model"] = replace(strategy.model, first_fit=before.model.first_fit)
    start = getattr(strategy, "warm_start", None)
    if isinstance(start, SpreadStart) and start.pulls is None:
        changed["warm_start"] = before.warm_start
    return changed
