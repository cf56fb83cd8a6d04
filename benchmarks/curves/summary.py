"""Tables of searches on learning curves: regret at shares of the budget, its parts, and paired
differences."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.curves.methods.catalogue import LABELS, PEERS
from benchmarks.curves.problems import Floats
from benchmarks.curves.simulate import Record, at_marks
from benchmarks.peers.measures import estimate
from benchmarks.tables import Cell, Table

MARKS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)

Key = tuple[str, int]  # problem, seed
Found = Mapping[str, Mapping[Key, Record]]  # by method


def tables(family: str, setting: str, results: Found, base: str) -> Iterator[Table]:
    """Mean regrets of the searches that all methods finished, and their differences from the method
    `base`."""
    keys = common(results)
    if not keys:
        return
    searches = f"{len(keys)} searches of {len({key[0] for key in keys})} problems"
    name = f"curves-{family}-{setting}".replace(",", "").replace(" ", "-")
    columns = (
        "method",
        *(f"{mark:.0%}" for mark in MARKS),
        "finished",
        "begun",
        "starts",
        "continued",
        "trained to end",
        "CPU s",
    )
    rows = [_row(method, [records[key] for key in keys]) for method, records in results.items()]
    yield Table(name, f"{family}, {setting}: mean regret after shares of the budget, {searches}", columns, rows)
    if base in results and len(results) > 1:
        title = f"{family}, {setting}: regret of {LABELS[base]} − that of another method, paired, 90 % intervals"
        pairs: list[tuple[Cell, ...]] = [
            (LABELS.get(method, method), *differences(results[base], records, keys))
            for method, records in results.items()
            if method != base
        ]
        yield Table(f"{name}-paired", title, ("method", *(f"{mark:.0%}" for mark in MARKS)), pairs)


def differences(
    our_records: Mapping[Key, Record], their_records: Mapping[Key, Record], keys: Sequence[Key]
) -> list[str]:
    """Mean of ours − theirs at each of MARKS, with bootstrap intervals."""
    gaps = np.array([at_marks(our_records[key], MARKS) - at_marks(their_records[key], MARKS) for key in keys])
    return [str(estimate(gaps[:, place], keys)) for place in range(len(MARKS))]


def ratios_to_best_peer(results: Found, base: str) -> list[float]:
    """The mean regret of `base` over that of the best peer at each of MARKS; NaN without a peer."""
    keys = common(results)
    means = {method: mean_regrets([records[key] for key in keys]) for method, records in results.items()}
    peers = [means[method] for method in PEERS if method in means]
    if not peers or base not in means:
        return [float("nan")] * len(MARKS)
    best = np.min(peers, axis=0)
    return [float(our_mean / their_mean) for our_mean, their_mean in zip(means[base], best, strict=True)]


def common(results: Found) -> list[Key]:
    """The searches that all methods finished."""
    if not results:
        return []
    return sorted(set.intersection(*(set(records) for records in results.values())))


def mean_regrets(records: Sequence[Record]) -> Floats:
    """The mean regret (M,) at MARKS."""
    means: Floats = np.mean([at_marks(record, MARKS) for record in records], axis=0)
    return means


def _row(method: str, records: Sequence[Record]) -> tuple[Cell, ...]:
    ends = [record.finished_regret for record in records if record.finished_regret is not None]
    return (
        LABELS.get(method, method),
        *(round(float(record), 3) for record in mean_regrets(records)),
        round(float(np.mean(ends)), 3) if len(ends) == len(records) else float("nan"),
        round(float(np.mean([record.begun_regret for record in records])), 3),
        *(
            float(np.mean([getattr(record, name) for record in records]))
            for name in ("starts", "continuations", "finished")
        ),
        float(np.mean([record.seconds for record in records])),
    )
