"""Courses as tables: utilisation, regret at equal times, the method with the lowest regret, and
parts of the regret."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.asynchrony.comparing import Courses
from benchmarks.asynchrony.course import Course
from benchmarks.asynchrony.settings import LABELS, Setting
from benchmarks.papers.findings import Cell, Floats, Interval, Table, mean_and_half_width

OURS = "async"
SHARES = (0.25, 0.5, 1.0)  # shares of the asynchronous campaign's makespan: the times of the comparison

Found = Mapping[Setting, Courses]
Regret = Callable[[Course, Floats], Floats]
REGRETS: Mapping[str, Regret] = {
    "simple": lambda one, times: one.simple_regret(times),
    "recommended": lambda one, times: one.recommended_regret(times),
    "average": lambda one, times: one.average_regret(times),
}

_IDLE = {"drift_budget": "drift budget", "batch_end": "end of a batch", "campaign_end": "end of campaign"}


def utilisation_table(results: Found) -> Table:
    """Makespan beside its lower bound, utilisation, and idle time by cause."""
    measures: Mapping[str, Callable[[Course], float]] = {
        "makespan / bound": lambda run: run.makespan / run.least_seconds,
        "busy %": lambda run: 100.0 * run.utilisation(0.0, run.makespan),
        "after warm-up %": lambda run: 100.0 * run.utilisation(run.warm_up_end, run.makespan),
        "until the last dispatch %": lambda run: 100.0 * run.utilisation(run.warm_up_end, run.last_start),
        **{f"idle, {label} %": _idle(cause) for cause, label in _IDLE.items()},
        "refreshes": lambda run: float(run.refreshes),
        "strategy's s": lambda run: run.strategy_seconds,
    }
    rows: list[tuple[Cell, ...]] = [
        (str(setting), LABELS[name], *(Interval.of([of(run) for run in runs]) for of in measures.values()))
        for setting, courses in results.items()
        for name, runs in courses.items()
    ]
    title = "Utilisation; the warm-up lasts until as many evaluations have ended as there are workers"
    return Table("busy", title, ("setting", "method", *measures), rows)


def _idle(cause: str) -> Callable[[Course], float]:
    """A function of a course: the idle share of the workers' time by this cause, in per cent."""
    return lambda run: 100.0 * run.idle_seconds.get(cause, 0.0) / (run.slots * run.makespan)


def regrets(results: Found) -> Table:
    """The three regrets at equal times, and the number of ended evaluations."""
    at = [f"{kind} {_percent(share)}" for kind in REGRETS for share in SHARES]
    rows: list[tuple[Cell, ...]] = []
    for setting, courses in results.items():
        times = equal_times(courses)
        for name, runs in courses.items():
            samples = [_samples(regret, runs, times) for regret in REGRETS.values()]
            cells = [Interval.of(kind[:, place]) for kind in samples for place in range(len(SHARES))]
            done = Interval.of([float(run.done(run_times[-1:])[0]) for run, run_times in zip(runs, times, strict=True)])
            rows.append((str(setting), LABELS[name], *cells, done))
    title = "Regret after 25, 50 and 100 % of the asynchronous campaign's makespan, in standard deviations of the arms"
    return Table("regret", title, ("setting", "method", *at, "evaluations 100 %"), rows)


def verdicts(results: Found) -> Table:
    """Whether the asynchronous campaign has the lowest regret at equal times, and which methods
    have a lower one."""
    at = [f"{kind} {_percent(share)}" for kind in REGRETS for share in SHARES]
    rows: list[tuple[Cell, ...]] = []
    for setting, courses in results.items():
        times = equal_times(courses)
        words: list[str] = []
        for regret in REGRETS.values():
            samples = {name: _samples(regret, runs, times) for name, runs in courses.items()}
            words += [
                verdict({name: values[:, place] for name, values in samples.items()}) for place in range(len(SHARES))
            ]
        rows.append((str(setting), *words))
    title = "Whether asynchronous BBKB has the lowest regret at equal time (paired over seeds, 95 % intervals)"
    return Table("verdict", title, ("setting", *at), rows)


def verdict(samples: Mapping[str, Floats]) -> str:
    """The comparison of `OURS` with the other methods, from the regrets (seeds,) of each method.

    `lowest`: no other method has a lower mean. `within`: another one has, but the interval of the
    paired difference contains 0. Otherwise the names of the methods with a lower regret. NaN (no
    evaluation had ended) counts as larger than any number.
    """
    our_samples = samples[OURS]
    better = [name for name, values in samples.items() if name != OURS and values.mean() < our_samples.mean()]
    if not better:
        return "lowest"
    differences = {name: mean_and_half_width(our_samples - samples[name]) for name in better}
    beaten = [name for name, (mean, half_width) in differences.items() if mean > half_width]
    return f"lower: {', '.join(beaten)}" if beaten else "within"


def origins(results: Found) -> Table:
    """The mean regret of all evaluations, in parts by the number of results when they began."""
    rows: list[tuple[Cell, ...]] = []
    for setting, courses in results.items():
        for name, runs in courses.items():
            parts = np.stack([run.regret_by_knowledge() for run in runs])
            samples = np.column_stack((parts.sum(axis=1), parts))
            arms = Interval.of([float(len(np.unique(run.arms))) for run in runs])
            rows.append((str(setting), LABELS[name], *(Interval.of(column) for column in samples.T), arms))
    title = "Mean regret of all evaluations, and its parts: begun with no result, with fewer than workers, with more"
    return Table("origin", title, ("setting", "method", "all", "none", "fewer", "more", "different arms"), rows)


def equal_times(courses: Courses) -> list[Floats]:
    """For each seed, the times (k,) at which its courses are compared."""
    return [np.array(SHARES) * run.makespan for run in courses[OURS]]


def _samples(regret: Regret, runs: Sequence[Course], times: Sequence[Floats]) -> Floats:
    """The regret (seeds, k) of the courses at these times."""
    return np.stack([regret(run, run_times) for run, run_times in zip(runs, times, strict=True)])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
