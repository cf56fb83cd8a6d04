"""Records as tables: one group of problems after the other, for one number of workers and of
evaluations. Regret by evaluations, ranks, and differences with bootstrap intervals.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from benchmarks.peers.cache import Key, common
from benchmarks.peers.methods import is_applicable
from benchmarks.peers.problems import Group
from benchmarks.peers.search import MARKS, Record
from benchmarks.peers.settings import Setting, group_of
from benchmarks.tables import Cell, Floats, Table

Found = Mapping[str, Mapping[Key, Record]]  # by method

WORST = 10.0  # upper bound of the regret of one evaluation in the mean regret: diverged runs have unbounded values
SMALLEST = 1e-8  # smaller regrets are replaced by this number before their logarithm is taken
LEVEL = 0.9
_DRAWS = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean with its bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def regret_after(record: Record, count: int) -> float:
    """Regret of the recommendation after about `count` evaluations."""
    return float(record.recommended[max(round(count / record.evaluations * MARKS), 1) - 1])


def mean_regret(record: Record) -> float:
    """Mean regret of the evaluations, each at most WORST."""
    return float(np.minimum(record.regrets, WORST).mean())


def milliseconds(record: Record) -> float:
    """CPU milliseconds of `ask` and `tell` for each evaluation."""
    return 1e3 * float(np.mean(record.ask_seconds) + np.mean(record.tell_seconds))


def log10(regret: float) -> float:
    """The logarithm of the regret, which counts as SMALLEST at least."""
    return float(np.log10(max(regret, SMALLEST)))


def mean_of(records: Mapping[Key, Record], keys: Sequence[Key], of: Callable[[Record], float]) -> float:
    """The mean of `of` over the searches `keys`."""
    return float(np.mean([of(records[key]) for key in keys]))


def ranks(results: Found, keys: Sequence[Key], of: Callable[[Record], float]) -> dict[str, Estimate]:
    """Mean rank of each method, 1 for the smallest `of`; the interval is over problems."""
    values = np.array([[of(records[key]) for records in results.values()] for key in keys])
    by_search = np.array([rankdata(np.round(row, 9)) for row in values])
    return {method: estimate(by_search[:, place], keys) for place, method in enumerate(results)}


def difference(
    our_records: Mapping[Key, Record],
    their_records: Mapping[Key, Record],
    keys: Sequence[Key],
    of: Callable[[Record], float],
) -> Estimate:
    """The mean difference of `of`, ours − theirs, over paired searches."""
    return estimate(np.array([of(our_records[key]) - of(their_records[key]) for key in keys]), keys)


def estimate(samples: Floats, keys: Sequence[Key]) -> Estimate:
    """The mean of `samples` (n,), one for each search, with a bootstrap interval of LEVEL.

    Problems are drawn with replacement, and seeds within each problem.
    """
    grouped = [samples[[key[0] == name for key in keys]] for name in dict.fromkeys(key[0] for key in keys)]
    rng = np.random.default_rng(0)
    draws = np.empty(_DRAWS)
    for place in range(_DRAWS):
        resampled = [grouped[index] for index in rng.integers(len(grouped), size=len(grouped))]
        draws[place] = np.concatenate([rng.choice(group, len(group)) for group in resampled]).mean()
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(samples.mean()), float(low), float(high))


Measure = Callable[[Record], float]

# logarithms of their regrets are shown
_LOGARITHMIC = (Group.FUNCTIONS, Group.NOISY, Group.BBOB, Group.MIXINT, Group.ODD)
BASE = "tpe"  # the method that differences refer to


def searches_of_group(results: Found, group: Group) -> Found:
    """The searches on problems of `group`; methods without any, or not for the whole group, are left out."""
    of_group = {
        method: {key: record for key, record in records.items() if group_of(key[0]) == group}
        for method, records in results.items()
        if is_applicable(method, group)
    }
    return {method: records for method, records in of_group.items() if records}


def tables(setting: Setting, everything: Found, counts: Sequence[int]) -> Iterator[Table]:
    """For each group: regrets and ranks after `counts` evaluations, each problem, and differences from BASE."""
    for group in Group:
        records = searches_of_group(everything, group)
        keys = common(records)
        if keys:
            yield _by_evaluations(setting, group, records, counts)
            yield _by_problem(setting, group, records)
        if BASE in records and len(records) > 1:
            yield _differences(setting, group, records, counts)


def _unit(group: Group) -> str:
    return "log10 regret" if group in _LOGARITHMIC else "regret"


def _name(kind: str, setting: Setting, group: Group) -> str:
    return f"{kind}-{group.replace(' ', '-')}-{setting.name}"


def _after(count: int, group: Group) -> Measure:
    if group in _LOGARITHMIC:
        return lambda record: log10(regret_after(record, count))
    return lambda record: regret_after(record, count)


def _by_evaluations(setting: Setting, group: Group, results: Found, counts: Sequence[int]) -> Table:
    keys = common(results)
    measures = [_after(count, group) for count in counts]
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


def _by_problem(setting: Setting, group: Group, results: Found) -> Table:
    keys = common(results)
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(problem for problem, _ in keys):
        searches = [key for key in keys if key[0] == name]
        measure = _after(setting.evaluations, group)
        rows.append((name, *(mean_of(records, searches, measure) for records in results.values())))
    title = f"{setting}: {_unit(group)} after {setting.evaluations} evaluations, problem by problem"
    return Table(_name("problems", setting, group), title, ("problem", *results), rows)


def _differences(setting: Setting, group: Group, results: Found, counts: Sequence[int]) -> Table:
    """Each method on the searches that it and BASE have in common."""
    rows: list[tuple[Cell, ...]] = []
    for method, records in results.items():
        keys = common({method: records, BASE: results[BASE]})
        if method != BASE and keys:
            measures = [_after(count, group) for count in counts]
            paired = [str(difference(records, results[BASE], keys, measure)) for measure in measures]
            rows.append((method, len(keys), *paired, str(difference(records, results[BASE], keys, mean_regret))))
    title = f"{setting}, {group}: {_unit(group)} − that of {BASE}, paired by search, 90 % bootstrap intervals"
    return Table(_name("paired", setting, group), title, ("method", "searches", *map(str, counts), "cumulative"), rows)
