"""The ancestry of a population: which trial continued from which, and a member's schedule."""

from typing import NamedTuple

from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.history.status_text import assignments
from bbkb.orchestrator.history.tables import History


class Segment(NamedTuple):
    """A part of a member's training with constant parameters: the steps after `start`, up to and
    including `end`."""

    row: TrialRow
    start: int
    end: int


def own_segment(row: TrialRow) -> Segment:
    """Return the steps that the trial itself has trained."""
    copied = row.pick.copied
    return Segment(row, 0 if copied is None else copied.step, row.training.last_step)


def schedule(history: History, trial: int) -> list[Segment]:
    """Return the parts of the training of `trial`, the oldest first; the first begins at step 0."""
    parts = [own_segment(history.trials[trial])]
    while (copied := parts[0].row.pick.copied) is not None:
        parts.insert(0, own_segment(history.trials[copied.trial])._replace(end=copied.step))
    return parts


def best_schedule(history: History) -> list[tuple[str, str]]:
    """Return the steps and parameters of each part of the best member's training, as text.

    The result is empty if its parameters were constant.
    """
    best = history.best
    if best is None or best.pick.copied is None:
        return []
    return [
        (f"steps {start + 1} to {end}, trial {row.trial}", assignments(row.parameters))
        for row, start, end in schedule(history, best.trial)
    ]


def depths(history: History) -> dict[int, int]:
    """Return the number of ancestors of each trial.

    In the result's order, each trial is followed by the trials that continued from it, by step.
    """
    # trial → the steps at which its ancestors and the trial itself began, each with its index
    paths: dict[int, tuple[tuple[int, int], ...]] = {}
    for row in history.trials:
        copied = row.pick.copied
        above = () if copied is None else paths[copied.trial]
        paths[row.trial] = (*above, (own_segment(row).start, row.trial))
    return {trial: len(paths[trial]) - 1 for trial in sorted(paths, key=paths.__getitem__)}
