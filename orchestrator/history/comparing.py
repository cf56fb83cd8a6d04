"""Compares runs: their results, and the differences between their campaign files. Used by `bbkb
compare` and the live page."""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from orchestrator.history.fold import History
from orchestrator.history.status_text import goals_text, trials_text
from orchestrator.settings.changes import leaves
from orchestrator.wording import duration, one_line, short_text

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
    results = [
        *_row("strategy", histories, lambda history: history.settings.strategy),
        *_row("state", histories, lambda history: str(history.state)),
        *_row("trials", histories, lambda history: trials_text(history.status())),
        *_row("best value", histories, best_text),
        *means("mean over seeds", _best_value),
        *_row("found by", histories, _best_origin),
        *[row for row in _row("recommended", histories, _recommendation) if any(row[1])],
        *means("mean estimate over seeds", _estimate),
        *_row("time", histories, lambda history: duration(history.status().budget.elapsed_seconds)),
        *_row("utilization", histories, lambda history: f"{history.status().workers.utilization:.0%}"),
    ]
    return [*results, *_parameter_rows(histories), *_different_settings(histories)]


def _row(name: str, histories: Sequence[History], text: Callable[[History], str]) -> list[Row]:
    return [(name, list(map(text, histories)))]


def _parameter_rows(histories: Sequence[History]) -> list[Row]:
    recommended = [history.recommended or {} for history in histories]
    names = dict.fromkeys(name for parameters in recommended for name in parameters)
    return [(name, [_parameter(parameters, name) for parameters in recommended]) for name in names]


def _recommendation(history: History) -> str:
    recommendation = history.campaign.refresh.recommended
    return "" if recommendation is None else str(recommendation)


def _best_origin(history: History) -> str:
    return "" if history.best_known is None else history.best_known.origin


def _best_value(history: History) -> float | None:
    return None if history.best_known is None else history.best_known.value


def _estimate(history: History) -> float | None:
    recommended = history.campaign.refresh.recommended
    return None if recommended is None else recommended.estimate


def _means_over_seeds(
    histories: Sequence[History], name: str, value_of: Callable[[History], float | None]
) -> list[Row]:
    """Return a row with means and their standard errors over runs that differ only in their seed.

    Only the first run with each seed is included. Return no row if the settings of all runs differ.
    """
    alike: dict[str, dict[object, float]] = {}  # settings without the seed → seed → value
    keys = [_without_seed(history) for history in histories]
    for key, history in zip(keys, histories, strict=True):
        if (value := value_of(history)) is not None and len(history.goals.objectives) == 1:
            alike.setdefault(key, {}).setdefault(history.settings.plain.get("seed"), value)
    cells = [_mean_text([*alike.get(key, {}).values()]) for key in keys]
    return [(name, cells)] if any(cells) else []


def _without_seed(history: History) -> str:
    """Return the settings as a text that is the same for repetitions of a campaign."""
    settings = history.settings.plain
    return json.dumps({key: settings[key] for key in settings if key not in _OF_ONE_RUN}, sort_keys=True)


def _mean_text(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    largest = max(map(abs, values)) or 1.0  # the deviation may overflow
    error = statistics.stdev([value / largest for value in values]) / math.sqrt(len(values)) * largest
    return f"{statistics.mean(values):.6g} ± {error:.2g} ({len(values)} runs)"


def best_text(history: History) -> str:
    """Return the best value, or the front and the hypervolume of several objectives."""
    now = history.status().goals
    if now is not None and len(now.objectives) > 1:
        return goals_text(now)
    return "" if history.best_known is None else f"{history.best_known.value:.6g}"


def _parameter(parameters: Mapping[str, object], name: str) -> str:
    value = parameters.get(name)
    return "" if value is None else short_text(value)


def _setting_text(value: object) -> str:
    """Return the text of a setting. `False` equals a setting that an older version did not have."""
    return "" if value is None or value is False else one_line(str(value), _LONGEST)


def _different_settings(histories: Sequence[History]) -> list[Row]:
    settings = [dict(leaves(history.settings.shown)) for history in histories]
    is_one_strategy = len({history.settings.strategy for history in histories}) == 1
    keys = _comparable_keys(settings, is_one_strategy)
    rows = [(key, [of_run.get(key) for of_run in settings]) for key in keys]
    different = [row for row in rows if len(set(map(_setting_text, row[1]))) > 1]
    return [(key, list(map(_shown_setting, values))) for key, values in different[:MOST_SETTINGS]]


def _comparable_keys(
    settings: Sequence[Mapping[str, object]],
    is_one_strategy: bool,
) -> Iterator[str]:
    """Yield the keys of all runs. An option that only one of several strategies has is omitted."""
    for key in dict.fromkeys(key for of_run in settings for key in of_run):
        is_option = key.startswith("strategy.") and not is_one_strategy
        if key.partition(".")[0] in _STORAGE:
            continue
        if not is_option or all(key in of_run for of_run in settings):
            yield key


def _shown_setting(value: object) -> str:
    return "off" if value is False else _setting_text(value)
