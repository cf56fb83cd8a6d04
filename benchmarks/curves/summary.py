"""Tables of searches on learning curves: regrets at shares of the budget, paired differences."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.curves.methods import LABELS, RANDOM
from benchmarks.curves.problems import Floats
from benchmarks.curves.simulate import Record, at_marks
from benchmarks.peers.cache import Key, common
from benchmarks.tables import Cell, Table

MARKS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_SHARES = tuple(f"{mark:.0%}" for mark in MARKS)
_BEST = ("best begun", "best to a quarter", "best to the end")
_COUNTS = ("begun", "to a quarter", "to the end", "continued", "CPU s", "ratio")

Found = Mapping[str, Mapping[Key, Record]]  # by method


def tables(family: str, setting: str, results: Found, base: str) -> Iterator[Table]:
    """Mean regrets of the searches that all methods finished, and their differences from `base`."""
    name = f"curves-{family}-{setting}".replace(",", "").replace(" ", "-")
    if common(results):
        yield _means(name, f"{family}, {setting}", results, base)
        if base in results and len(results) > 1:
            yield _pairs(f"{name}-paired", f"{family}, {setting}", results, base)


def _means(name: str, label: str, results: Found, base: str) -> Table:
    keys = common(results)
    found = {method: [records[key] for key in keys] for method, records in results.items()}
    ours = mean_regrets(found[base])[-1] if base in found else np.nan
    rows = [_row(method, records, float(ours)) for method, records in found.items()]
    searches = f"{len(keys)} searches of {len({key[0] for key in keys})} problems"
    title = f"{label}: mean regret after shares of the budget, {searches}; ratio: {LABELS[base]} / this"
    return Table(name, title, ("method", *_SHARES, *_BEST, *_COUNTS), rows)


def _pairs(name: str, label: str, results: Found, base: str) -> Table:
    title = f"{label}: regret of {LABELS[base]} − another method's, paired, ± standard error"
    others = {LABELS[method]: records for method, records in results.items() if method != base}
    best = _best_random(results)
    if best is not None:
        others[f"the best random search: {LABELS[best]}"] = results[best]
    pairs = [(other, *differences(results[base], records)) for other, records in others.items()]
    return Table(name, title, ("method", *_SHARES, "searches"), pairs)


def _best_random(results: Found) -> str | None:
    """The random search with the least mean regret at the end, over the searches that all of them
    finished; None if there is none."""
    searches = {method: results[method] for method in RANDOM if method in results}
    if not (keys := common(searches)):
        return None
    return min(searches, key=lambda method: mean_regrets([searches[method][key] for key in keys])[-1])


def differences(our_records: Mapping[Key, Record], their_records: Mapping[Key, Record]) -> tuple[Cell, ...]:
    """Mean of ours − theirs at each of MARKS over the searches of both, ± its standard error, and
    the number of these searches."""
    keys = sorted(set(our_records) & set(their_records))
    gaps = np.array([at_marks(our_records[key], MARKS) - at_marks(their_records[key], MARKS) for key in keys])
    means = gaps.mean(axis=0)
    if len(keys) == 1:
        return (*(f"{mean:+.3f}" for mean in means), 1)
    errors = gaps.std(axis=0, ddof=1) / np.sqrt(len(keys))
    return (*(f"{mean:+.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)), len(keys))


def mean_regrets(records: Sequence[Record]) -> Floats:
    """The mean regret (M,) at MARKS."""
    means: Floats = np.mean([at_marks(record, MARKS) for record in records], axis=0)
    return means


def _row(method: str, records: Sequence[Record], ours: float) -> tuple[Cell, ...]:
    regrets = mean_regrets(records).tolist()
    return (
        LABELS[method],
        *(round(regret, 3) for regret in regrets),
        *(round(_mean(records, name), 3) for name in ("begun_regret", "quarter_regret", "finished_regret")),
        *(_mean(records, name) for name in ("starts", "quarters", "finished", "continuations", "seconds")),
        round(ours / (regrets[-1] or np.nan), 2),
    )


def _mean(records: Sequence[Record], name: str) -> float:
    """The mean of a number of the records; NaN if one of them lacks it."""
    values = [getattr(record, name) for record in records]
    return float(np.mean([np.nan if value is None else value for value in values]))
