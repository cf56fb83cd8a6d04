"""Compares runs: their results, and the differences between their campaign files. Used by `bbkb
compare` and the live page."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bbkb.orchestrator.campaign.settings import plain, shown
from bbkb.orchestrator.history.facts import goal_facts, trials_text
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.settings.changes import leaves
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
    means = partial(_means_over_seeds, histories)
    statuses = [history.status() for history in histories]
    best = [history.best_known for history in histories]
    recommended = [history.campaign.refresh.recommended for history in histories]
    results = [
        ("strategy", [history.settings.strategy["name"] for history in histories]),
        ("state", [str(history.state) for history in histories]),
        ("trials", list(map(trials_text, statuses))),
        ("best value", list(map(best_text, histories))),
        *means("mean over seeds", best, "value"),
        ("found by", [getattr(each, "origin", "") for each in best]),
        *_if_any("recommended", [str(each or "") for each in recommended]),
        *means("mean estimate over seeds", recommended, "estimate"),
        ("time", [duration(status.budget.elapsed_seconds) for status in statuses]),
        ("utilization", [f"{status.workers.utilization:.0%}" for status in statuses]),
    ]
    return [*results, *_parameter_rows(histories), *_different_settings(histories)]


def _parameter_rows(histories: Sequence[History]) -> list[Row]:
    recommended = [history.recommended or {} for history in histories]
    names = dict.fromkeys(name for parameters in recommended for name in parameters)
    values = [(name, [parameters.get(name) for parameters in recommended]) for name in names]
    return [(name, ["" if cell is None else short_text(cell) for cell in cells]) for name, cells in values]


def _if_any(name: str, cells: list[str]) -> list[Row]:
    """Return a row, or no row if all its cells are empty."""
    return [(name, cells)] if any(cells) else []


def _means_over_seeds(
    histories: Sequence[History], name: str, results: Sequence[object], attribute: str
) -> list[Row]:  # fmt: skip
    """Return a row with the means and standard errors of an attribute of `results`, over runs that
    differ only in their seed.

    Only the first run with each seed is included. Return no row if the settings of all runs differ.
    """
    alike: dict[str, dict[object, float]] = {}  # settings without the seed → seed → value
    keys = [without_seed(history) for history in histories]
    for key, history, result in zip(keys, histories, results, strict=True):
        value = getattr(result, attribute, None)
        if value is not None and len(history.goals.objectives) == 1:
            alike.setdefault(key, {}).setdefault(history.settings.seed, value)
    return _if_any(name, [_mean_text([*alike.get(key, {}).values()]) for key in keys])


def without_seed(history: History) -> str:
    """Return the settings as a text that is the same for repetitions of a campaign."""
    settings = plain(history.settings)
    return json.dumps({key: settings[key] for key in settings if key not in _OF_ONE_RUN}, sort_keys=True)


def _mean_text(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    largest = max(map(abs, values)) or 1.0  # the deviation may overflow
    error = statistics.stdev([value / largest for value in values]) / math.sqrt(len(values)) * largest
    return f"{statistics.mean(values):.6g} ± {rounded(error, 2)} ({len(values)} runs)"


def best_text(history: History) -> str:
    """Return the best value, or the front and the hypervolume of several objectives."""
    now = history.status().goals
    if now is not None and len(now.objectives) > 1:
        return ", ".join(fact.text for fact in goal_facts(now))
    return "" if history.best_known is None else f"{history.best_known.value:.6g}"


def _setting_text(value: object) -> str:
    """Return the text of a setting; empty if it is off."""
    return "" if value is None or value is False else one_line(str(value), _LONGEST)


def _different_settings(histories: Sequence[History]) -> list[Row]:
    settings = [dict(leaves(shown(history.settings))) for history in histories]
    is_one_strategy = len({history.settings.strategy["name"] for history in histories}) == 1
    keys = _comparable_keys(settings, is_one_strategy)
    rows = [(key, [of_run.get(key) for of_run in settings]) for key in keys]
    different = [row for row in rows if len(set(map(_setting_text, row[1]))) > 1]
    return [
        (key, ["off" if value is False else _setting_text(value) for value in values])
        for key, values in different[:MOST_SETTINGS]
    ]


def _comparable_keys(runs: Sequence[Mapping[str, object]], is_one_strategy: bool) -> Iterator[str]:
    """Yield the keys of all runs. An option that only one of several strategies has is omitted."""
    for key in dict.fromkeys(key for of_run in runs for key in of_run):
        is_option = key.startswith("strategy.") and not is_one_strategy
        if key.partition(".")[0] in _STORAGE:
            continue
        if not is_option or all(key in of_run for of_run in runs):
            yield key
