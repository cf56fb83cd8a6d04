"""Derives the rules that sessions record from a campaign's settings."""

from bbkb.orchestrator.bandit.strategy import PausesTrials
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.rules import (
    DeadlineRules,
    RetryRules,
    Rules,
    WorkerRules,
    needs_in_words,
)
from bbkb.orchestrator.campaign.stop_when import StopWhen
from bbkb.orchestrator.campaign.trainings.model_rule import TrainingRule
from bbkb.orchestrator.campaign.trainings.rungs import StoppingRule
from bbkb.orchestrator.engine.engine import strategy_rules
from bbkb.orchestrator.settings.model import Settings
from bbkb.orchestrator.settings.stopping_sections import AshaSettings, MedianSettings
from bbkb.orchestrator.settings.strategies import strategy_name

_FEWEST_FAILURES = 10  # of a session without a success, before it gives up


def rules_of(settings: Settings, slots: int = 0) -> Rules:
    """Return the rules of a session with `slots` concurrent evaluations (0 before the first session)."""
    budget = settings.budget
    workers = settings.workers
    stopping, training = _early_stopping(settings)
    return Rules(
        evaluations=budget.evaluations,
        steps=budget.steps,
        seconds=None if budget.hours is None else budget.hours * 3600.0,
        target=budget.target,
        stop_when=None if budget.stop_when is None else StopWhen(**budget.stop_when.model_dump()),
        goals=goals_of(settings),
        stopping=stopping,
        training=training,
        retries=RetryRules(
            after_errors=workers.retries,
            memory_factor=workers.retry_memory_factor,
            failures_before_giving_up=max(_FEWEST_FAILURES, 2 * slots),
        ),
        deadlines=DeadlineRules(
            seconds=workers.timeout_seconds,
            factor=None if workers.timeout_seconds else workers.timeout_factor,
        ),
        workers=WorkerRules(
            count=workers.count if workers.traits.on_ray else None,
            needs=needs_in_words(workers.cpus, workers.gpus, workers.memory_gb, workers.machines),
        ),
        strategy=strategy_rules(settings.strategy, is_users_own=":" in strategy_name(type(settings.strategy))),
    )


def goals_of(settings: Settings) -> CampaignGoals:
    """Return the objectives (at least one) and the constraints."""
    return CampaignGoals.of(
        settings.model_dump(include={"objective": {"direction"}, "objectives": True, "constraints": True})
    )


def _early_stopping(settings: Settings) -> tuple[StoppingRule | None, TrainingRule | None]:
    strategy = settings.strategy
    rule = settings.early_stopping
    if isinstance(strategy, PausesTrials):
        # one trial is trained to its end, so that a budget of steps always yields a result
        training = TrainingRule(
            continues=True,
            has_checkpoints=True,
            finish=1,
            last_step=strategy.last_step,
            trains_whole=False,
            saves_checkpoints=True,
        )
        return StoppingRule.every(strategy.interval), training
    match rule:
        case None:
            return None, None
        case AshaSettings():
            return StoppingRule.asha(rule.reduction, rule.first_step, rule.metric), None
        case MedianSettings():
            return StoppingRule.median(rule.after, rule.metric), None
    training = TrainingRule(
        first_trials=rule.first_trials or 0,
        first_steps=rule.first_steps or 1,
        continues=bool(rule.continues),
        has_checkpoints=rule.continues is True,
        finish=rule.finish,
        last_step=rule.last_step,
        keep_checkpoints=rule.keep_checkpoints,
    )
    return training.stopping(rule.after), training
