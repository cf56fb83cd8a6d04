"""The versions of tables and of events, and the translation of older events.

An event has a version for its body, and the database one for its tables (`store.migrations`). A
version newer than this program's is rejected with a remedy.

| events | change |
| --- | --- |
| 1 | (0.1) a body holds every field and its kind |
| 2 | a body leaves out its kind, which the row has, and fields at their defaults; no NaN in a pick |
| 3 | the creation of a campaign and the opening of a session have their rules beside the settings |

Bodies in the store are never rewritten, because checksums cover them: each is translated when it is
read (`upcast`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
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

TABLES_VERSION = 3
EVENT_VERSION = 3


class NewerVersionError(ValueError):
    """A newer program wrote the data. The message names the version and a remedy."""


def check_event_version(version: int) -> None:
    """Raise NewerVersionError for an event of a newer program."""
    if version > EVENT_VERSION:
        raise NewerVersionError(
            f"has version {version}, and this program supports versions up to {EVENT_VERSION}: a newer bbkb wrote "
            "it; upgrade bbkb on this machine"
        )


def upcast(kind: str, version: int | None, body: str) -> str:
    """Return an event's body (JSON) in the form of this version. `version` None means version 1.

    Raises ValueError if the body is not JSON, and KeyError or TypeError if its settings are
    damaged.
    """
    if kind == "batch_chosen" and version is None:
        return _without_nan(body)
    if kind not in ("campaign_created", "session_opened") or version == EVENT_VERSION:
        return body
    fields = json.loads(body)
    return json.dumps({**fields, "rules": asdict(rules_of_version_2(fields["settings"], fields.get("slots", 0)))})


def _without_nan(body: str) -> str:
    """Return a choice of version 1, whose picks had NaN for an unknown number."""
    fields = json.loads(body)
    for pick in fields["picks"]:
        for name in ("mean", "width", "variance"):
            number = pick.get(name)
            pick[name] = None if number is None or math.isnan(float(number)) else number
    return json.dumps(fields)


Section = Mapping[str, Any]  # of a resolved campaign file


def rules_of_version_2(settings: Section, slots: int) -> Rules:
    """Return the rules that follow from a resolved campaign file of version 1 or 2.

    The defaults are those of the version that lacked the setting. They never change, even if the
    defaults of the settings do.
    """
    budget: Section = settings["budget"]
    workers: Section = settings.get("workers", {})
    strategy: Section = settings.get("strategy", {})
    stopping: Section | None = settings.get("early_stopping")
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
            refresh_overhead=strategy.get("refresh_overhead", 0.0),
            refresh_growth=strategy.get("refresh_growth", 0.0),
        ),
    )


def _stopping(rule: Section) -> StoppingRule:
    if rule["rule"] == "asha":
        return StoppingRule.asha(rule["reduction"], rule["first_step"])
    if rule["rule"] == "model" and rule.get("continues") is True:
        return StoppingRule.pauses(rule["after"], rule.get("last_step"))
    return StoppingRule.median(rule["after"])


def _training(rule: Section) -> TrainingRule:
    return TrainingRule(
        first_trials=rule.get("first_trials") or 0,
        first_steps=rule.get("first_steps") or 1,
        continues=bool(rule.get("continues")),
        has_checkpoints=rule.get("continues") is True,
        finish=rule["finish"],
        last_step=rule.get("last_step"),
        keep_checkpoints=rule.get("keep_checkpoints"),
    )
