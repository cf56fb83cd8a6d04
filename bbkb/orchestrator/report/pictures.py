"""The figures of a campaign, in the order of the report and of the live page."""

from collections.abc import Callable, Iterable

from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.curves import learning_curves, metric_curves
from bbkb.orchestrator.report.figure import Figure
from bbkb.orchestrator.report.front_pictures import feasible_share, fronts, hypervolume_course
from bbkb.orchestrator.report.landscape import landscape
from bbkb.orchestrator.report.parallel import parallel_coordinates
from bbkb.orchestrator.report.progress import (
    batch_sizes,
    best_so_far,
    cumulative_regret,
    dictionary_sizes,
    simple_regret,
)
from bbkb.orchestrator.report.surrogate import fit_surrogate
from bbkb.orchestrator.report.timeline import gantt, utilization

_COURSES = (
    best_so_far,
    hypervolume_course,
    feasible_share,
    simple_regret,
    cumulative_regret,
    learning_curves,
)
_OVERVIEWS = (parallel_coordinates, gantt, utilization)


def figures(history: History) -> list[Figure]:
    """Return the figures of the results for which this campaign has data, in the page's order."""
    return [
        *fronts(history),
        *_draw(_COURSES, history),
        *metric_curves(history),
        *landscape(fit_surrogate(history), history.is_maximized),
        *_draw(_OVERVIEWS, history),
    ]


def internal_figures(history: History) -> list[Figure]:
    """Return the figures of the algorithm: batches or refits, and the dictionary."""
    return _draw((batch_sizes, dictionary_sizes), history)


def _draw(makers: Iterable[Callable[[History], Figure | None]], history: History) -> list[Figure]:
    return [figure for figure in (make(history) for make in makers) if figure is not None]
