"""Records as pictures: regret against evaluations, and against time including the time of
suggestions."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks.papers.findings import Curve, Figure, Panel
from benchmarks.peers.measures import SMALLEST, Floats, Found, Key, common, regret_at_time
from benchmarks.peers.methods.catalogue import LABELS
from benchmarks.peers.problems import Group
from benchmarks.peers.search import MARKS, Record
from benchmarks.peers.settings import Setting
from benchmarks.peers.summary import searches_of_group

_TIMES = np.linspace(0.05, 1.25, 25)  # times, as shares of T / W
_FIRST = 3  # the first mark that is drawn; earlier regrets are much larger than the others


def figures(results: Mapping[Setting, Found], seconds: float) -> Iterator[Figure]:
    """The figures, with one panel for each setting and group of problems."""
    panels = [
        (setting, group, records)
        for setting, everything in results.items()
        for group in Group
        if common(records := searches_of_group(everything, group))
    ]
    if panels:
        by_count = [
            _panel(setting, group, records, _counts(setting), _by_evaluations) for setting, group, records in panels
        ]
        yield Figure("peers-evaluations", "Regret of the recommendation against evaluations", by_count, columns=3)
        by_time = [_panel(setting, group, records, _TIMES, _by_time(seconds)) for setting, group, records in panels]
        title = f"Regret against time in units of T/W, suggestions counted, evaluations of {seconds:g} s"
        yield Figure("peers-time", title, by_time, columns=3)


def _counts(setting: Setting) -> Floats:
    return np.arange(_FIRST, MARKS + 1) * setting.evaluations / MARKS


def _by_evaluations(record: Record) -> Floats:
    return np.asarray(record.recommended, np.float64)[_FIRST - 1 :]


def _by_time(seconds: float) -> Callable[[Record], Floats]:
    return lambda record: np.array([regret_at_time(record, float(share), seconds) for share in _TIMES])


def _panel(setting: Setting, group: Group, results: Found, x: Floats, of: Callable[[Record], Floats]) -> Panel:
    """Means over searches: arithmetic means of the regret for tables, geometric means for
    functions."""
    keys = common(results)
    curves = [_curve(LABELS.get(method, method), records, keys, group, x, of) for method, records in results.items()]
    label = "evaluations" if of is _by_evaluations else "time / (T/W)"
    return Panel(f"{group}, {setting}", label, "regret", curves, y_scale="log")


def _curve(
    label: str,
    records: Mapping[Key, Record],
    keys: list[Key],
    group: Group,
    x: Floats,
    of: Callable[[Record], Floats],
) -> Curve:
    samples = np.array([of(records[key]) for key in keys])
    if group == Group.TABLES:
        mean: Floats = samples.mean(axis=0)
    else:
        mean = np.exp(np.log(np.maximum(samples, SMALLEST)).mean(axis=0))
    return Curve(label, x, mean, np.full(len(x), np.nan))
