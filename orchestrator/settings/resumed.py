"""The settings of a resume: what the run's recorded settings decide where the new ones leave it open."""

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

# settings of `rule: model` that the first session decides when they are left open
_DECIDED = ("continues", "last_step", "first_trials", "first_steps")


def with_recorded(old: Mapping[str, object], settings: Settings) -> Settings:
    """Return the settings with what the run's settings `old` decide: existing data and what was
    read of the same earlier runs, which are read only once because they may have changed,
    `workers.retries` and options of the strategy where the new settings leave them open, because
    their defaults have changed, and what the first session decided about trainings. Where
    a budget of steps alone was given, the evaluations rise with it."""
    recorded, workers, budget = from_mapping(old), settings.workers, settings.budget
    before, steps = recorded.budget, budget.steps or 0
    if before.steps == before.evaluations == budget.evaluations < steps:  # `steps` alone was given
        budget = budget.model_copy(update={"evaluations": min(steps, MOST_TRIALS)})
    if workers.retries is None:
        workers = workers.model_copy(update={"retries": recorded.workers.retries})
    rule, begun = settings.early_stopping, recorded.early_stopping
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
    """Return whether the section lists the recorded runs. A recorded folder that is gone was moved
    or removed, and is known by its name."""
    if recorded is None or earlier is None or len(recorded.runs) != len(earlier.runs):
        return False
    return all(
        Path(before).resolve() == Path(now).resolve() if os.path.exists(before) else Path(before).name == Path(now).name
        for before, now in zip(recorded.runs, earlier.runs, strict=True)
    )


def _as_begun(old: object, before: Any, strategy: Any) -> Any:
    """Return the strategy with the start, the coverage and the verification that it was begun with
    by an older version, whose recorded options `old` lack `coverage`, `verify` or
    `model.first_fit`; unchanged where the new settings give other values than the defaults."""
    if not isinstance(old, Mapping) or type(before) is not type(strategy):
        return strategy
    changed: dict[str, object] = {}
    for name, default in (("coverage", COVERAGE), ("verify", VERIFY)):
        if name not in old and getattr(strategy, name, None) == default:
            changed[name] = getattr(before, name)
    model = old.get("model")
    if isinstance(model, Mapping) and "first_fit" not in model and isinstance(strategy.model, Model):
        if strategy.model.first_fit is None:
            changed["model"] = replace(strategy.model, first_fit=before.model.first_fit)
        start = getattr(strategy, "warm_start", None)
        if isinstance(start, SpreadStart) and start.pulls is None:
            changed["warm_start"] = before.warm_start
    return replace(strategy, **changed) if changed else strategy
