"""The summary of a campaign: the words and numbers at the head of its report and of its live
page."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from objectives.parameters import Constant
from orchestrator.bandit.strategy import Record
from orchestrator.campaign.events import ModelRefreshed
from orchestrator.campaign.status import idle_text
from orchestrator.history.fold import History
from orchestrator.report.figure import short
from orchestrator.wording import duration, plural


@dataclass(frozen=True)
class Card:
    """A number of the summary: name, value and remark."""

    name: str
    value: str
    remark: str = ""


def subtitle(history: History) -> str:
    """Return the objective, the strategy and the number of candidates."""
    settings = history.settings
    parts = [
        settings.objective and f"objective {settings.objective}",
        settings.strategy and f"strategy {settings.strategy}",
        f"{history.created.arms + history.appended:,} candidates",
        f"seed {history.created.seed}",
        history.tags and f"tags {' '.join(history.tags)}",
    ]
    return " · ".join(part for part in parts if part)


def summary_cards(history: History) -> list[Card]:
    """Return the numbers at the head of the page."""
    best, batches, now = history.best_known, history.batches, history.status()
    retried = sum(1 for attempt in history.attempts if attempt.failure) - now.failed
    open_trials = now.chosen - now.done
    steps = f", {now.steps:,} of {now.step_budget:,} steps" if now.step_budget is not None else ""
    budget = f", budget {now.evaluations:,}" if now.is_counted else ""
    waiting = f", {open_trials:,} open" if open_trials else ""
    mean_size = f"mean size {now.chosen / len(batches):.3g}" if batches else ""
    idle = idle_text(now.idle_seconds)
    refits = len(history.refreshes)
    per_refit = f"one for each {now.done / refits:.2g} evaluations on average" if refits else ""
    first = history.goals.objectives[0]
    direction = str(first) if len(history.goals.objectives) > 1 else str(first).rpartition(" ")[2]
    origin = f"{direction}, {best.origin}" if best is not None and best.trial is None else direction
    return [
        Card("Best value", "none" if best is None else str(short(best.value)), origin),
        *goal_cards(history),
        Card(
            "Evaluations done",
            f"{now.done:,}",
            f"{now.outcomes}{waiting}{budget}{steps}",
        ),
        Card("Failed", f"{now.failed:,}", f"{retried:,} more attempts failed and ran again" if retried > 0 else ""),
        Card("Refits", f"{refits:,}", per_refit)
        if history.is_asynchronous
        else Card("Batches", f"{len(batches):,}", mean_size),
        Card(
            "Elapsed",
            duration(now.elapsed_seconds),
            f"{plural(len(history.sessions), 'session')}, evaluations alone {duration(now.least_seconds)}",
        ),
        *gain_cards(history),
        *existing_cards(history),
        Card("Utilisation", f"{100 * now.utilization:.0f} %", idle and f"idle: {idle}"),
    ]


def model_facts(history: History) -> list[tuple[str, str]]:
    """Return the record of the fitted model in words; empty for strategies that fit none."""
    record = next((fitted for refresh in reversed(history.refreshes) if (fitted := _fit_of(refresh))), None)
    if record is None:
        return []
    names = [name for name, kind in history.settings.space.items() if not isinstance(kind, Constant)]
    scales = [float(scale) for scale in record["lengthscales"]]
    labels = names if len(names) == len(scales) else [f"parameter {number}" for number in range(1, len(scales) + 1)]
    by_relevance = sorted(zip(labels, scales, strict=True), key=lambda pair: pair[1])
    relevance = ", ".join(f"{name} {scale:.3g}" for name, scale in by_relevance)
    facts = [("Fitted lengthscales, the shortest first: the most relevant", relevance)]
    if "noise" in record:
        facts.append(("Fitted noise, as a share of the variance of the scores", f"{float(record['noise']):.3g}"))
    if record.get("predicted"):
        share = record["inside"] / record["predicted"]
        facts.append(
            ("Results inside mean ± 2 deviations before the model knew them", f"{share:.0%} of {record['predicted']:,}")
        )
    return facts


def _fit_of(refresh: ModelRefreshed) -> Record | None:
    """Return the fitted model in the record of a refresh."""
    fitted: Record | None = refresh.record.get("model")
    return fitted


def goal_cards(history: History) -> list[Card]:
    """Return the front of several objectives, and how many results satisfy the constraints."""
    now = history.status().goals
    if now is None:
        return []
    volume = "none yet" if now.hypervolume is None else f"{now.hypervolume:.6g}"
    cards = [Card("Front", plural(now.front, "result"), f"hypervolume {volume}")] * (len(now.objectives) > 1)
    share = "none yet" if now.feasible is None else f"{now.feasible:.0%}"
    return cards + [Card("Feasible", share, ", ".join(now.constraints))] * bool(now.constraints)


def gain_cards(history: History) -> list[Card]:
    """Return cards for the last improvement and for what the model leaves to gain."""
    now = history.status()
    if now.last_gain is None:
        return []
    possible = "" if now.possible_gain is None else f"at most about {now.possible_gain:.3g} left by the model"
    return [Card("Last gain", f"{plural(now.last_gain, 'evaluation')} ago", possible)]


def existing_cards(history: History) -> list[Card]:
    """Return a card for existing data, which are in no picture."""
    existing = history.existing
    if existing is None:
        return []
    left_out = f", {existing.unmatched:,} more match no candidate" if existing.unmatched else ""
    return [Card("Existing data", f"{len(existing.arms):,}", f"results of {existing.source}{left_out}")]


def best_parameters(history: History) -> list[tuple[str, str]]:
    """List the parameters of the best value, and where it comes from."""
    best, best_trial = history.best_known, history.best
    if best is None:
        return []
    if best.trial is None or best_trial is None:
        where = [("from", best.origin), ("candidate", str(best.arm))]
    else:
        where = [("trial", str(best_trial.trial)), ("candidate", str(best_trial.arm)), ("batch", str(best_trial.batch))]
    named = [*best.parameters.items(), *best.metrics.items()]
    return [(name, str(short(value))) for name, value in named] + where


def recommended_parameters(history: History) -> list[tuple[str, str]]:
    """Return the recommended configuration when the best value may be due to noise; empty where
    values are not noisy."""
    recommendation, best = history.campaign.refresh.recommended, history.best_known
    if recommendation is None:
        return []
    named = [(name, str(short(value))) for name, value in recommendation.parameters.items()]
    reason = "its estimate is the best: a better single value may be due to noise"
    if best is not None and best.parameters == recommendation.parameters:
        reason = "its estimate is the best, and so is its value"
    return [*named, ("value", str(recommendation)), ("why", reason)]


def as_yaml(settings: Mapping[str, object]) -> str:
    """Return the resolved campaign file, its keys in their order."""
    plain = json.loads(
        json.dumps(settings, default=lambda value: dict(value) if isinstance(value, Mapping) else str(value))
    )
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
