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
    children: dict[int | None, list[tuple[int, int]]] = {}
    for row in history.trials:
        copied = row.pick.copied
        parent, step = (None, 0) if copied is None else (copied.trial, copied.step)
        children.setdefault(parent, []).append((step, row.trial))
    found: dict[int, int] = {}
    waiting = [(trial, 0) for _, trial in sorted(children.get(None, ()), reverse=True)]
    while waiting:
        trial, depth = waiting.pop()
        found[trial] = depth
        below = sorted(children.get(trial, ()), reverse=True)
        waiting += [(child, depth + 1) for _, child in below]
    return found
