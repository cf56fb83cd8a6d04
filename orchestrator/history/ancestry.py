"""The ancestry of a population: which trial continued from which, and a member's schedule."""

from typing import NamedTuple

from orchestrator.history.rows import TrialRow
from orchestrator.history.tables import History
from orchestrator.wording import short_text


class Segment(NamedTuple):
    """A part of a member's training with constant parameters: the steps after `start`, up to and
    including `end`."""

    row: TrialRow
    start: int
    end: int


def schedule(history: History, trial: int) -> list[Segment]:
    """Return the parts of the training of `trial`, the oldest first; the first begins at step 0."""
    row = history.trials[trial]
    end = row.training.last_step
    segments: list[Segment] = []
    while (copied := row.pick.copied) is not None:
        segments.append(Segment(row, copied.step, end))
        row = history.trials[copied.trial]
        end = copied.step
    return [Segment(row, 0, end), *reversed(segments)]


def best_schedule(history: History) -> list[tuple[str, str]]:
    """Return the steps and parameters of each part of the best member's training, as text.

    The result is empty if its parameters were constant.
    """
    best = history.best
    parts = [] if best is None or best.pick.copied is None else schedule(history, best.trial)
    return [
        (
            f"steps {start + 1} to {end}, trial {row.trial}",
            ", ".join(f"{name} {short_text(value)}" for name, value in row.parameters.items()),
        )
        for row, start, end in parts
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
        paths[row.trial] = (*above, (0 if copied is None else copied.step, row.trial))
    return {trial: len(paths[trial]) - 1 for trial in sorted(paths, key=paths.__getitem__)}
