"""The summary of a campaign at the head of its report and of its live page."""

import json
import math
from collections.abc import Mapping

import yaml

from bbkb.objectives.parameters import Constant
from bbkb.orchestrator.history.facts import Fact, facts
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import short
from bbkb.orchestrator.wording import joined, one_line

_MOST_COLUMNS = 6  # of the cards at the top of a page


def subtitle(history: History) -> str:
    """Return the objective, the strategy and the number of candidates."""
    settings = history.settings
    return joined(
        " · ",
        settings.objective and f"objective {one_line(settings.objective, 80)}",
        settings.strategy and f"strategy {settings.strategy}",
        f"{history.created.arms + history.appended:,} candidates",
        f"seed {history.created.seed}",
        history.settings.tags and f"tags {' '.join(history.settings.tags)}",
    )


def summary_cards(history: History) -> list[Fact]:
    """Return the facts at the head of the page."""
    return [fact for fact in facts(history.status()) if fact.label not in ("state", "parameters", "its parameters")]


def columns(cards: int) -> int:
    """Return the number of columns, at most six, that best fills the last row of a grid."""
    return math.ceil(cards / math.ceil(cards / _MOST_COLUMNS))


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


def best_parameters(history: History) -> list[tuple[str, str]]:
    """Return the parameters and metrics of the best value."""
    best = history.best_known
    if best is None:
        return []
    named = [*best.parameters.items(), *best.metrics.items()]
    return [(name, str(short(value))) for name, value in named]


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
