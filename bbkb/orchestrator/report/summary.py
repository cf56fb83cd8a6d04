"""The summary of a campaign at the head of its report and of its live page."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from bbkb.objectives.parameters import Constant
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.history.ancestry import best_schedule
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.status_text import expected_gain, idle_text, population_parts
from bbkb.orchestrator.report.figure import short
from bbkb.orchestrator.wording import duration, joined, one_line, plural

_MOST_COLUMNS = 6  # of the cards at the top of a page


@dataclass(frozen=True)
class Card:
    """A number of the summary."""

    name: str
    value: str
    remark: str = ""


def subtitle(history: History) -> str:
    """Return the objective, the strategy and the number of candidates."""
    settings = history.settings
    return joined(
        " · ",
        settings.objective and f"objective {one_line(settings.objective, 80)}",
        settings.strategy and f"strategy {settings.strategy}",
        f"{history.created.arms + history.appended:,} candidates",
        f"seed {history.created.seed}",
        history.tags and f"tags {' '.join(history.tags)}",
    )


def summary_cards(history: History) -> list[Card]:
    """Return the numbers at the head of the page."""
    now = history.status()
    failed = now.trials.failed
    retried = sum(1 for attempt in history.attempts if attempt.failure) - failed
    least = f"{duration(now.workers.least_seconds)} if no worker were ever idle"
    idle = idle_text(now.workers)
    since = now.model.last_gain
    return [
        _best_card(history),
        *goal_cards(history),
        _done_card(now),
        Card("Configurations", f"{history.distinct:,}", "distinct, without failed ones"),
        Card(
            "Failed",
            f"{failed:,}",
            f"{plural(retried, 'more attempt')} failed and ran again" if retried > 0 else "",
        ),
        _learning_card(history, now),
        Card(
            "Elapsed",
            duration(now.budget.elapsed_seconds),
            f"{plural(len(history.sessions), 'session')}; {least}",
        ),
        *([] if since is None else [Card("Since the last gain", plural(since, "result"), expected_gain(now))]),
        *existing_cards(history),
        Card("Utilization", f"{now.workers.utilization:.0%}", idle and f"idle: {idle}"),
    ]


def columns(cards: int) -> int:
    """Return the number of columns, at most six, that best fills the last row of a grid."""
    return math.ceil(cards / math.ceil(cards / _MOST_COLUMNS))


def _best_card(history: History) -> Card:
    best = history.best_known
    objectives = history.goals.objectives
    first = str(objectives[0])
    direction = first if len(objectives) > 1 else first.rpartition(" ")[2]
    if best is None:
        return Card("Best value", "none", direction)
    origin = f", {best.origin}" if best.trial is None else ""
    return Card("Best value", str(short(best.value)), f"{direction}{origin}")


def _done_card(now: Status) -> Card:
    open_trials = now.trials.chosen - now.trials.done
    budget = now.budget
    remark = joined(
        ", ",
        now.trials.outcomes,
        open_trials and f"{open_trials:,} open",
        budget.is_counted and f"budget {budget.evaluations:,}",
        budget.step_budget and f"{budget.steps:,} of {budget.step_budget:,} steps",
    )
    return Card("Evaluations done", f"{now.trials.done:,}", remark)


def _learning_card(history: History, now: Status) -> Card:
    """Return the number of refits, or of batches in batch mode."""
    if history.is_asynchronous:
        refits = len(history.refreshes)
        share = f"after {now.trials.done / refits:.2g} evaluations on average" if refits else ""
        return Card("Refits", f"{refits:,}", share)
    batches = len(history.batches)
    return Card("Batches", f"{batches:,}", f"mean size {now.trials.chosen / batches:.3g}" if batches else "")


def model_facts(history: History) -> list[tuple[str, str]]:
    """Return facts about the fitted model; empty for strategies that do not fit one."""
    records = (refresh.record.get("model") for refresh in reversed(history.refreshes))
    record = next(filter(None, records), None)
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


def goal_cards(history: History) -> list[Card]:
    """Return cards for the front of several objectives, for the share of feasible results, and for
    a population."""
    if population := population_parts(history.status()):
        return [Card("Population", *population)]
    now = history.status().goals
    if now is None:
        return []
    volume = "none yet" if now.hypervolume is None else f"{now.hypervolume:.6g}"
    cards = [Card("Front", plural(now.front, "result"), f"hypervolume {volume}")] * (len(now.objectives) > 1)
    share = "none yet" if now.feasible is None else f"{now.feasible:.0%}"
    return cards + [Card("Feasible", share, ", ".join(now.constraints))] * bool(now.constraints)


def existing_cards(history: History) -> list[Card]:
    """Return a card for known results, which no figure shows."""
    existing = history.existing
    if existing is None:
        return []
    left_out = f", {existing.unmatched:,} more match no candidate" if existing.unmatched else ""
    return [Card("Known results", f"{len(existing.arms):,}", f"results of {existing.source}{left_out}")]


def best_parameters(history: History) -> list[tuple[str, str]]:
    """Return the parameters and metrics of the best value."""
    best = history.best_known
    if best is None:
        return []
    named = [*best.parameters.items(), *best.metrics.items()]
    return [*((name, str(short(value))) for name, value in named), *best_schedule(history)]


def best_origin(history: History) -> str:
    """Return the trial, candidate and batch of the best value, or the source of known results."""
    best = history.best_known
    if best is None:
        return ""
    batch = "" if best.trial is None else f", batch {history.trials[best.trial].batch}"
    return f"{best.origin}, candidate {best.arm}{batch}"


def recommended_parameters(history: History) -> list[tuple[str, str]]:
    """Return the recommended configuration; empty if the strategy recommends the best value."""
    recommendation = history.campaign.refresh.recommended
    best = history.best_known
    if recommendation is None:
        return []
    named = [(name, str(short(value))) for name, value in recommendation.parameters.items()]
    reason = "its estimate is the best: a better single value may be due to noise"
    if best is not None and best.parameters == recommendation.parameters:
        reason = "its estimate is the best, and so is its value"
    return [*named, ("value", str(recommendation)), ("why", reason)]


def as_yaml(settings: Mapping[str, object]) -> str:
    """Return the resolved campaign file with its keys in order."""
    text = json.dumps(settings, default=lambda each: dict(each) if isinstance(each, Mapping) else str(each))
    return yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True, width=100)
