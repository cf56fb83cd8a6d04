"""Compares runs: their results, and the differences between their campaign files. Used by `bbkb
compare` and the live page."""

import json
import math
import statistics
from collections.abc import Sequence

from bbkb.orchestrator.campaign.settings import leaves, plain, shown
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.history.facts import goal_facts, trials_text
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.wording import duration, one_line, rounded, short_text

MOST_SETTINGS = 40
Row = tuple[str, list[str]]  # a name, and one cell for each run

_STORAGE = ("run", "runs", "store")  # settings that do not influence the results
_OF_ONE_RUN = (*_STORAGE, "name", "seed", "note", "tags")  # may differ between repetitions
_LONGEST = 60  # characters of a setting


def side_by_side(histories: Sequence[History]) -> list[Row]:
    """Return the rows of a table with one column for each run.

    The rows are first the results, then the parameters of the recommended or best configuration,
    and then the settings that differ between the runs.
    """
    statuses = [history.status() for history in histories]
    best = [history.best_known for history in histories]
    recommended = [history.campaign.refresh.recommended for history in histories]
    results = [
        ("strategy", [history.settings.strategy["name"] for history in histories]),
        ("state", [str(history.state) for history in histories]),
        ("trials", list(map(trials_text, statuses))),
        ("best value", list(map(best_text, histories, statuses))),
        ("mean over seeds", _means_over_seeds(histories, best, "value")),
        ("found by", [getattr(each, "origin", "") for each in best]),
        ("recommended", [str(each or "") for each in recommended]),
        ("mean estimate over seeds", _means_over_seeds(histories, recommended, "estimate")),
        ("time", [duration(status.budget.elapsed_seconds) for status in statuses]),
        ("utilization", [f"{status.workers.utilization:.0%}" for status in statuses]),
    ]
    configurations = [history.recommended or {} for history in histories]
    for name in dict.fromkeys(name for parameters in configurations for name in parameters):
        values = [parameters.get(name) for parameters in configurations]
        results.append((name, ["" if value is None else short_text(value) for value in values]))
    may_be_empty = ("mean over seeds", "recommended", "mean estimate over seeds")
    listed = [(name, cells) for name, cells in results if any(cells) or name not in may_be_empty]
    return [*listed, *_different_settings(histories)]


def _means_over_seeds(histories: Sequence[History], results: Sequence[object], attribute: str) -> list[str]:
    """Return the means and standard errors of an attribute of `results`, over runs that differ only in
    their seed; of runs with equal seeds, the first counts. Empty for runs without repetitions."""
    alike: dict[str, dict[object, float]] = {}  # settings without the seed → seed → value
    keys = [without_seed(history) for history in histories]
    for key, history, result in zip(keys, histories, results, strict=True):
        value = getattr(result, attribute, None)
        if value is not None and len(history.goals.objectives) == 1:
            alike.setdefault(key, {}).setdefault(history.settings.seed, value)
    texts = dict.fromkeys(keys, "")
    for key, by_seed in alike.items():
        if len(by_seed) > 1:
            values = [*by_seed.values()]
            largest = max(map(abs, values)) or 1.0  # the deviation may overflow
            error = statistics.stdev([value / largest for value in values]) / math.sqrt(len(values)) * largest
            texts[key] = f"{statistics.mean(values):.6g} ± {rounded(error, 2)} ({len(values)} runs)"
    return [texts[key] for key in keys]


def without_seed(history: History) -> str:
    """Return the settings as a text that is the same for repetitions of a campaign."""
    settings = plain(history.settings)
    return json.dumps({key: settings[key] for key in settings if key not in _OF_ONE_RUN}, sort_keys=True)


def best_text(history: History, status: Status) -> str:
    """Return the best value, or the front and the hypervolume of several objectives."""
    now = status.goals
    if now is not None and len(now.objectives) > 1:
        return ", ".join(fact.text for fact in goal_facts(now))
    return "" if history.best_known is None else f"{history.best_known.value:.6g}"


def _different_settings(histories: Sequence[History]) -> list[Row]:
    """Return the settings that differ. An option that only one of several strategies has is omitted."""
    runs = [dict(leaves(shown(history.settings))) for history in histories]
    is_one_strategy = len({history.settings.strategy["name"] for history in histories}) == 1
    rows: list[Row] = []
    for key in dict.fromkeys(key for of_run in runs for key in of_run):
        is_of_all = is_one_strategy or not key.startswith("strategy.") or all(key in of_run for of_run in runs)
        if key.partition(".")[0] in _STORAGE or not is_of_all:
            continue
        values = [of_run.get(key) for of_run in runs]
        texts = ["" if value is None or value is False else one_line(str(value), _LONGEST) for value in values]
        if len(set(texts)) > 1:
            rows.append((key, ["off" if value is False else text for value, text in zip(values, texts, strict=True)]))
    return rows[:MOST_SETTINGS]
