"""Replays a log: restores the engine at any point, and checks whether a repeated computation on this
machine gives the same result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bbkb.orchestrator.campaign.events import BatchChosen, CandidatesGrown, Event, ModelRefreshed
from bbkb.orchestrator.campaign.policy import Ask, Begin, Grow, Tell
from bbkb.orchestrator.engine.engine import Computation, Engine, Problem, restore_recorded
from bbkb.orchestrator.errors import UserError


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    engine: Engine
    position: int  # the number of events so far
    last_choice: BatchChosen | None
    repeated: int  # the number of repeated computations of the strategy
    differences: tuple[str, ...]  # event and difference


def replay_until(problem: Problem, events: Sequence[Event], until: int | None, is_checked: bool) -> Replayed:
    """Replay the first `until` events, or all of them if it is None.

    `is_checked`: whether to repeat every computation of the strategy and compare the results.
    Raises UserError if the log has fewer events.
    """
    if until is not None and not 0 < until <= len(events):
        raise UserError(f"--until must be >= 1 and <= {len(events)}, the number of events in the log, got {until}")
    engine = problem.engine()
    last_choice = None
    repeated = 0
    differences: list[str] = []
    for position, event in enumerate(events[:until]):
        command = _command(engine, event) if is_checked else None
        if command is not None:
            repeated += 1
            model = engine.model
            (ours, *_) = engine.record(engine.compute(command, engine.state))
            engine.model = model
            here, theirs = _decided(ours), _decided(event)
            different = [name for name in theirs if not _is_close(here.get(name), theirs[name])]
            if different:
                texts = (f"{name} was {theirs[name]!r:.100}, {here.get(name)!r:.100} here" for name in different)
                differences.append(f"event {position}: {'; '.join(texts)}")
        if isinstance(event, BatchChosen) and event.picks:
            last_choice = event
        restore_recorded(engine.restore, event)
    return Replayed(engine, until or len(events), last_choice, repeated, tuple(differences))


def _command(engine: Engine, event: Event) -> Computation | None:
    """Return the command that `event` answers; None if the strategy did not compute it."""
    state = engine.state
    match event:
        case BatchChosen(is_enqueued=False):
            return Ask(state.pending, event.limit)
        case ModelRefreshed():
            existing = state.existing_observations
            finished = tuple(one for one in state.finished if one.trial in set(event.trials))
            return Begin(existing) if existing else Tell(finished)
        case CandidatesGrown():
            return Grow(state.pending)
    return None


def _decided(event: Event) -> Mapping[str, Any]:
    match event:
        case BatchChosen():
            return {"the choice": [pick.arm for pick in event.picks], "continued": list(event.continued)}
        case CandidatesGrown():
            columns = {name: list(column) for name, column in event.columns.items()}
            return {"retired": list(event.retired), **columns}
        case ModelRefreshed():
            return event.record
    return {}


def _is_close(ours: Any, theirs: Any) -> bool:
    """Return whether both are equal except for the last digits, which depend on the machine."""
    if isinstance(ours, float) or isinstance(theirs, float):
        return bool(np.isclose(ours, theirs, rtol=1e-9))
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_is_close, ours, theirs))
    return bool(np.array_equal(np.asarray(ours, object), np.asarray(theirs, object)))
