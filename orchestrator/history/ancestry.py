"""The ancestry of a population: which trial continued from which, and a member's schedule."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orchestrator.history.rows import TrialRow
from orchestrator.history.tables import History


class Segment(NamedTuple):
    """A part of a member's training with constant parameters.

    It consists of the steps after `start`, up to and including `end`.
    """

    trial: int
    start: int
    end: int
    parameters: Mapping[str, object]

    def __str__(self) -> str:
        return f"steps {self.start + 1} to {self.end}, trial {self.trial}"

    @property
    def values(self) -> str:
        """The parameters as text."""
        return ", ".join(f"{name} {_short(value)}" for name, value in self.parameters.items())


class Descendant(NamedTuple):
    """A trial in the tree; `depth` is its number of ancestors."""

    row: TrialRow
    depth: int


def is_population(history: History) -> bool:
    """Return whether any trial copied a checkpoint."""
    return any(row.pick.copied is not None for row in history.trials)


def schedule(history: History, trial: int) -> list[Segment]:
    """Return the segments of the training of `trial`, the oldest first, from step 0 on."""
    segments: list[Segment] = []
    row = history.trials[trial]
    end = row.training.last_step
    while (copied := row.pick.copied) is not None:
        segments.append(Segment(row.trial, copied.step, end, row.parameters))
        end = copied.step
        row = history.trials[copied.trial]
    segments.append(Segment(row.trial, 0, end, row.parameters))
    return segments[::-1]


def best_schedule(history: History) -> list[Segment]:
    """Return the schedule of the best member; empty if its parameters never changed."""
    best = history.best
    return [] if best is None or best.pick.copied is None else schedule(history, best.trial)


def tree(history: History) -> list[Descendant]:
    """Return all trials, each one followed by the trials that continued from it, sorted by step."""
    children: dict[int | None, list[TrialRow]] = {}
    for row in history.trials:
        parent = None if row.pick.copied is None else row.pick.copied.trial
        children.setdefault(parent, []).append(row)

    def below(parent: int | None, depth: int) -> Iterator[Descendant]:
        for row in sorted(children.get(parent, ()), key=_start):
            yield Descendant(row, depth)
            yield from below(row.trial, depth + 1)

    return list(below(None, 0))


def _start(row: TrialRow) -> tuple[int, int]:
    copied = row.pick.copied
    return (0 if copied is None else copied.step, row.trial)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
