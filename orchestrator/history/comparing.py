"""Runs side by side: what they found, and where their campaign files differ. For `bbkb compare` and
the live page."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from orchestrator.campaign.status import Status, goals_text
from orchestrator.history.fold import History
from orchestrator.settings.changes import leaves
from orchestrator.wording import duration, one_line, short_text

MOST_SETTINGS = 40
_PLACES = ("run", "runs", "store")  # differ without a meaning
_OF_ONE_RUN = (*_PLACES, "name", "seed", "note", "tags")  # differ between repetitions of a campaign
_LONGEST = 60  # characters of a setting


def side_by_side(histories: Sequence[History]) -> list[tuple[str, list[str]]]:
    """Return rows of a table: a name, and one cell for each run. First the results, then the
    parameters of the recommended configuration or of the best value, then the settings that are not
    the same in all runs."""
    now = [history.status() for history in histories]
    rows: list[tuple[str, list[str]]] = [
        ("strategy", [history.settings.strategy for history in histories]),
        ("state", [str(history.state) for history in histories]),
        ("trials", [trials_text(status) for status in now]),
        ("best value", [best_text(history) for history in histories]),
        *_means_over_seeds(histories, "mean over seeds", _best_value),
        ("found by", [history.best_known.origin if history.best_known else "" for history in histories]),
        *_recommendation_rows(histories),
        *_means_over_seeds(histories, "mean estimate over seeds", _estimate),
        ("time", [duration(status.elapsed_seconds) for status in now]),
        ("utilisation", [f"{status.utilization:.0%}" for status in now]),
    ]
    taken = [history.recommended or {} for history in histories]
    names = dict.fromkeys(name for parameters in taken for name in parameters)
    rows += [(name, [_parameter(parameters, name) for parameters in taken]) for name in names]
    return rows + _different_settings(histories)


def _recommendation_rows(histories: Sequence[History]) -> list[tuple[str, list[str]]]:
    """Return a row with the values of the recommended configurations; none where no run has one
    beside its best value."""
    recommended = [history.campaign.refresh.recommended for history in histories]
    cells = ["" if recommendation is None else str(recommendation) for recommendation in recommended]
    return [("recommended", cells)] if any(cells) else []


def _best_value(history: History) -> float | None:
    return None if history.best_known is None else history.best_known.value


def _estimate(history: History) -> float | None:
    recommended = history.campaign.refresh.recommended
    return None if recommended is None else recommended.estimate


def _means_over_seeds(
    histories: Sequence[History], name: str, value_of: Callable[[History], float | None]
) -> list[tuple[str, list[str]]]:
    """Return a row `name` with the mean value of the runs that differ in their seed only, with its
    standard error; no row where no two runs do. Of runs with the same seed the first one counts."""
    alike: dict[str, dict[object, float]] = {}  # settings without the seed → seed → value
    keys = [_without_seed(history) for history in histories]
    for key, history in zip(keys, histories, strict=True):
        if (value := value_of(history)) is not None and len(history.goals.objectives) == 1:
            alike.setdefault(key, {}).setdefault(history.settings.plain.get("seed"), value)
    cells = [_mean_text([*alike.get(key, {}).values()]) for key in keys]
    return [(name, cells)] if any(cells) else []


def _without_seed(history: History) -> str:
    """Return a text of the settings that is the same for repetitions of a campaign only."""
    settings = history.settings.plain
    return json.dumps({key: settings[key] for key in settings if key not in _OF_ONE_RUN}, sort_keys=True)


def _mean_text(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    largest = max(map(abs, values)) or 1.0  # the deviation of huge values may be no float
    error = statistics.stdev([value / largest for value in values]) / math.sqrt(len(values)) * largest
    return f"{statistics.mean(values):.6g} ± {error:.2g} ({len(values)} runs)"


def trials_text(status: Status) -> str:
    """Return how many trials have ended, and how many of them failed."""
    failed = f", {status.failed} failed" if status.failed else ""
    return f"{status.trials_text.replace('/', ' of ')}{failed}"


def best_text(history: History) -> str:
    """Return the best value, or what several objectives have reached."""
    now = history.status().goals
    if now is not None and len(now.objectives) > 1:
        return goals_text(now)
    return "" if history.best_known is None else f"{history.best_known.value:.6g}"


def _parameter(parameters: Mapping[str, object], name: str) -> str:
    value = parameters.get(name)
    return "" if value is None else short_text(value)


def _setting_text(value: object) -> str:
    """Return the text of a setting; one that is off equals one that an older version lacked."""
    return "" if value is None or value is False else one_line(str(value), _LONGEST)


def _different_settings(histories: Sequence[History]) -> list[tuple[str, list[str]]]:
    settings = [dict(leaves(history.settings.shown)) for history in histories]
    keys = dict.fromkeys(key for keys_of_run in settings for key in keys_of_run if key.partition(".")[0] not in _PLACES)
    if len({history.settings.strategy for history in histories}) > 1:  # an option of one says nothing of another
        lacking = [key for key in keys if key.startswith("strategy.") and any(key not in run for run in settings)]
        keys = dict.fromkeys(key for key in keys if key not in lacking)
    rows = [(key, [keys_of_run.get(key) for keys_of_run in settings]) for key in keys]
    different = [(key, values) for key, values in rows if len(set(map(_setting_text, values))) > 1]
    return [
        (key, ["off" if value is False else _setting_text(value) for value in values])
        for key, values in different[:MOST_SETTINGS]
    ]
