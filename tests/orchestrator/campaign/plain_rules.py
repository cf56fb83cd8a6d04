"""The rules of campaign files with only the sections that a test needs."""

import math
from collections.abc import Mapping
from typing import Any

from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.rules import (
    DeadlineRules,
    RetryRules,
    Rules,
    StrategyRules,
    WorkerRules,
    needs_in_words,
)
from bbkb.orchestrator.campaign.stop_when import StopWhen
from bbkb.orchestrator.campaign.trainings.model_rule import TrainingRule
from bbkb.orchestrator.campaign.trainings.rungs import StoppingRule

Tree = Mapping[str, Any]  # of a resolved campaign file


def plain_rules(settings: Tree, slots: int = 0) -> Rules:
    """Return the rules of a campaign file that may lack sections."""
    budget: Tree = settings["budget"]
    workers: Tree = settings.get("workers", {})
    strategy: Tree = settings.get("strategy", {})
    stopping: Tree | None = settings.get("early_stopping")
    hours = budget.get("hours")
    stop_when = budget.get("stop_when")
    return Rules(
        evaluations=budget["evaluations"],
        steps=budget.get("steps"),
        seconds=None if hours is None else hours * 3600.0,
        target=budget.get("target"),
        stop_when=None if stop_when is None else StopWhen(**stop_when),
        goals=CampaignGoals.of(settings),
        stopping=None if stopping is None else _stopping(stopping),
        training=_training(stopping) if stopping is not None and stopping["rule"] == "model" else None,
        retries=RetryRules(
            after_errors=workers.get("retries", 2),
            memory_factor=workers.get("retry_memory_factor"),
            failures_before_giving_up=max(10, 2 * slots),
        ),
        deadlines=DeadlineRules(
            seconds=workers.get("timeout_seconds"),
            factor=None if workers.get("timeout_seconds") else workers.get("timeout_factor"),
        ),
        workers=WorkerRules(
            count=workers.get("count") if workers.get("executor", "ray") == "ray" else None,
            needs=needs_in_words(
                workers.get("cpus", 1.0),
                workers.get("gpus"),
                workers.get("memory_gb"),
                workers.get("machines", 1),
            ),
        ),
        strategy=StrategyRules(
            is_asynchronous=strategy.get("mode") == "async",
            is_users_own=":" in strategy.get("name", ""),
            refresh_growth=strategy.get("refresh_growth", math.inf),
        ),
    )


def _stopping(rule: Tree) -> StoppingRule:
    if rule["rule"] == "asha":
        return StoppingRule.asha(rule["reduction"], rule["first_step"], rule.get("metric"))
    if rule["rule"] == "model" and rule.get("continues") is True:
        return StoppingRule.pauses(rule["after"], rule.get("last_step"))
    return StoppingRule.median(rule["after"], rule.get("metric"))


def _training(rule: Tree) -> TrainingRule:
    return TrainingRule(
        first_trials=rule.get("first_trials") or 0,
        first_steps=rule.get("first_steps") or 1,
        continues=bool(rule.get("continues")),
        has_checkpoints=rule.get("continues") is True,
        finish=rule["finish"],
        last_step=rule.get("last_step"),
        keep_checkpoints=rule.get("keep_checkpoints"),
    )
