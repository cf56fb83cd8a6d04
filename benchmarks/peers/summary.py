"""Records as tables: one group of problems after the other, for one number of workers and of
evaluations."""

from collections.abc import Callable, Iterator

from benchmarks.peers.cache import common
from benchmarks.peers.measures import (
    SHARES,
    Found,
    difference,
    log10,
    mean_of,
    mean_regret,
    milliseconds,
    ranks,
    regret_at_share,
)
from benchmarks.peers.problems import Group
from benchmarks.peers.search import Record
from benchmarks.peers.settings import SETS, Setting
from benchmarks.peers.tables import TABLES
from benchmarks.tables import Cell, Table

Scale = Callable[[float], float]
Measure = Callable[[Record], float]

_SUITES = {"bbob": Group.BBOB, "lcbench": Group.LCBENCH, "rbv2": Group.RBV2}
_LINEAR = (Group.TABLES, Group.LCBENCH, Group.RBV2)  # groups whose regrets are shown as they are
BASE = "tpe"  # the method that differences refer to


def group_of(problem: str) -> Group:
    """The group of the problem with this name."""
    if problem in TABLES:
        return Group.TABLES
    for suite, group in _SUITES.items():
        if problem in SETS[suite]:
            return group
    return Group.NOISY if problem.endswith("-noisy") else Group.FUNCTIONS


def searches_of_group(results: Found, group: Group) -> Found:
    """The searches on problems of `group`; methods without any are left out."""
    of_group = {
        method: {key: record for key, record in records.items() if group_of(key[0]) == group}
        for method, records in results.items()
    }
    return {method: records for method, records in of_group.items() if records}


def tables(setting: Setting, everything: Found) -> Iterator[Table]:
    """For each group: regret and rank by evaluations, differences from BASE, and
    each problem."""
    for group in Group:
        records = searches_of_group(everything, group)
        keys = common(records)
        if keys:
            scale = _scale(group)
            yield _by_evaluations(setting, group, records, scale)
            yield _by_problem(setting, group, records, scale)
        if BASE in records and len(records) > 1:
            yield _differences(setting, group, records, _scale(group))


def _scale(group: Group) -> Scale:
    """The scale of regrets: logarithmic for functions, linear for all others."""
    return (lambda regret: regret) if group in _LINEAR else log10


def _unit(group: Group) -> str:
    return "regret" if group in _LINEAR else "log10 regret"


def _name(kind: str, setting: Setting, group: Group) -> str:
    return f"{kind}-{group.replace(' ', '-')}-{setting.name}"


def _at_share(share: float, scale: Scale) -> Measure:
    return lambda record: scale(regret_at_share(record, share))


def _by_evaluations(setting: Setting, group: Group, results: Found, scale: Scale) -> Table:
    keys = common(results)
    counts = [round(share * setting.evaluations) for share in SHARES]
    measures = [_at_share(share, scale) for share in SHARES]
    ranked = [ranks(results, keys, measure) for measure in measures]
    rows: list[tuple[Cell, ...]] = [
        (
            method,
            *(mean_of(records, keys, measure) for measure in measures),
            *(str(by_method[method]) for by_method in ranked),
            mean_of(records, keys, mean_regret),
            mean_of(records, keys, milliseconds),
        )
        for method, records in results.items()
    ]
    at = [f"{_unit(group)} {count}" for count in counts] + [f"rank {count}" for count in counts]
    problems = len({problem for problem, _ in keys})
    title = f"{setting}, {group}: {len(keys)} searches on {problems} problems, which all these methods finished"
    return Table(_name("regret", setting, group), title, ("method", *at, "cumulative", "ms"), rows)


def _by_problem(setting: Setting, group: Group, results: Found, scale: Scale) -> Table:
    keys = common(results)
    names = list(dict.fromkeys(problem for problem, _ in keys))
    rows: list[tuple[Cell, ...]] = []
    for method, records in results.items():
        keys_by_name = [[key for key in keys if key[0] == name] for name in names]
        rows.append((method, *(mean_of(records, those, _at_share(1.0, scale)) for those in keys_by_name)))
    title = f"{setting}: {_unit(group)} after {setting.evaluations} evaluations, problem by problem"
    return Table(_name("problems", setting, group), title, ("method", *names), rows)


def _differences(setting: Setting, group: Group, results: Found, scale: Scale) -> Table:
    """Each method on the searches that it and BASE have in common."""
    rows: list[tuple[Cell, ...]] = []
    for method, records in results.items():
        keys = common({method: records, BASE: results[BASE]})
        if method != BASE and keys:
            measures = [_at_share(share, scale) for share in SHARES]
            paired = [str(difference(records, results[BASE], keys, measure)) for measure in measures]
            rows.append((method, len(keys), *paired, str(difference(records, results[BASE], keys, mean_regret))))
    counts = [str(round(share * setting.evaluations)) for share in SHARES]
    title = f"{setting}, {group}: {_unit(group)} − that of {BASE}, paired by search, 90 % bootstrap intervals"
    return Table(_name("paired", setting, group), title, ("method", "searches", *counts, "cumulative"), rows)
