"""Measures of records: regret by evaluations and by time, ranks, and differences with bootstrap
intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from benchmarks.peers.cache import Key
from benchmarks.peers.search import MARKS, Record
from benchmarks.tables import Floats

Found = Mapping[str, Mapping[Key, Record]]  # by method

SHARES = (0.25, 0.5, 1.0)
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


def regret_at_share(record: Record, share: float) -> float:
    """Regret of the recommendation after this share of the evaluations."""
    return float(record.recommended[max(round(share * MARKS), 1) - 1])


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
    """Mean rank of each method, 1 for the smallest `of`, ties shared; the interval is over
    problems."""
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
