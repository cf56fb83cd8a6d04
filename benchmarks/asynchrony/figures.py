"""Courses as figures: regret against time, and busy workers against time."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from benchmarks.asynchrony.comparing import Courses
from benchmarks.asynchrony.course import Course
from benchmarks.asynchrony.settings import LABELS, Setting
from benchmarks.asynchrony.tables import OURS, Found
from benchmarks.papers.findings import Curve, Figure, Floats, Panel

POINTS = 120  # points of a curve
WINDOWS = 30  # windows in which utilisation is averaged


def figures(results: Found) -> list[Figure]:
    """One figure for each regret and one for the utilisation, each with one panel for each
    setting."""
    return [
        _figure("average-regret", "Average regret against time", results, _average),
        _figure("simple-regret", "Simple regret against time", results, _simple_panel),
        _figure("utilisation", "Busy workers against time", results, _utilisation_panel),
    ]


def _figure(name: str, title: str, results: Found, panel: Callable[[Setting, Courses], Panel]) -> Figure:
    return Figure(name, title, [panel(setting, courses) for setting, courses in results.items()], columns=3)


def _average(setting: Setting, courses: Courses) -> Panel:
    times = _times(courses)
    curves = [
        _curve_over_seeds(name, times, [run.average_regret(times) for run in runs]) for name, runs in courses.items()
    ]
    return Panel(str(setting), "virtual seconds", "average regret", curves, y_scale="log")


def _simple_panel(setting: Setting, courses: Courses) -> Panel:
    times = _times(courses)
    curves = [
        _curve_over_seeds(name, times, [run.simple_regret(times) for run in runs]) for name, runs in courses.items()
    ]
    return Panel(str(setting), "virtual seconds", "simple regret", curves)


def _utilisation_panel(setting: Setting, courses: Courses) -> Panel:
    edges = np.linspace(0.0, _span(courses), WINDOWS + 1)
    middles = 0.5 * (edges[1:] + edges[:-1])
    curves = [
        _curve_over_seeds(name, middles, [100.0 * _utilisation_in_windows(run, edges) for run in runs])
        for name, runs in courses.items()
    ]
    return Panel(str(setting), "virtual seconds", "busy workers, %", curves)


def _utilisation_in_windows(run: Course, edges: Floats) -> Floats:
    """The utilisation (k,) between consecutive `edges` (k + 1,), times in seconds."""
    return np.array([run.utilisation(begin, end) for begin, end in pairwise(edges)])


def _curve_over_seeds(name: str, times: Floats, samples: list[Floats]) -> Curve:
    return Curve.over_seeds(LABELS[name], times, np.stack(samples))


def _times(courses: Courses) -> Floats:
    """Times from the moment at which every campaign of every method has a result."""
    first = max(float(run.finished[0]) for runs in courses.values() for run in runs)
    return np.linspace(first, _span(courses), POINTS)


def _span(courses: Courses) -> float:
    """A little more than the makespan of the asynchronous campaigns; at later times there is
    nothing to compare."""
    return 1.25 * max(run.makespan for run in courses[OURS])
