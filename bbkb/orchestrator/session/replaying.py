"""Replays a log: restores the states of the campaign and its model at any point, shows the reasons
for each choice, and checks whether a repeated computation on this machine gives the same result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from bbkb.orchestrator.bandit.strategy import Choose, begin
from bbkb.orchestrator.campaign.events import BatchChosen, CandidatesGrown, Event, ModelRefreshed
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.problem import (
    BEGIN,
    GROW,
    TELL,
    Problem,
    Progress,
    advance,
    begin_progress,
    with_told_curves,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The event at `position` differs from the result of the repeated computation."""

    position: int
    text: str

    def __str__(self) -> str:
        return f"event {self.position}: {self.text}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: both states, the last choice, and the repeated computations."""

    progress: Progress
    position: int  # the number of events so far
    last_choice: BatchChosen | None
    repeated: int  # the number of repeated computations of the strategy
    differences: tuple[Difference, ...]


def replay_until(problem: Problem, events: Sequence[Event], until: int | None, is_checked: bool) -> Replayed:
    """Replay the first `until` events, or all of them if it is None.

    `is_checked`: whether to repeat every computation of the strategy and compare the results.
    Raises UserError if the log has fewer events.
    """
    if until is not None and not 0 < until <= len(events):
        raise UserError(f"--until must be >= 1 and <= {len(events)}, the number of events in the log, got {until}")
    progress = begin_progress(problem)
    last_choice = None
    repeated = 0
    differences: list[Difference] = []
    for position, event in enumerate(events[:until]):
        if is_checked and _is_repeatable(event):
            repeated += 1
            text = _repeat(problem, progress, event)
            differences += [Difference(position, text)] if text else []
        if isinstance(event, BatchChosen) and event.picks:
            last_choice = event
        progress = advance(problem, progress, event)
    return Replayed(progress, until or len(events), last_choice, repeated, tuple(differences))


def _is_repeatable(event: Event) -> TypeGuard[BatchChosen | ModelRefreshed | CandidatesGrown]:
    """Return whether a computation is behind `event`. The strategy does not choose enqueued trials."""
    if isinstance(event, BatchChosen):
        return not event.is_enqueued
    return isinstance(event, ModelRefreshed | CandidatesGrown)


def _repeat(problem: Problem, progress: Progress, event: BatchChosen | ModelRefreshed | CandidatesGrown) -> str:
    """Return the difference between the event and the repeated computation; empty if they agree."""
    if isinstance(event, ModelRefreshed):
        return _compare_draws(problem, progress, event)
    if isinstance(event, CandidatesGrown):
        return _compare_growth(problem, progress, event)
    limit = event.limit or progress.campaign.remaining
    decision = progress.choose(problem, limit)
    picks = decision.picks if isinstance(decision, Choose) else ()
    continued = tuple(pick.trial for pick in picks if pick.trial is not None)
    if continued != event.continued:
        return f"trials {list(event.continued)} were continued, {list(continued)} here"
    ours = [pick.arm for pick in picks if pick.trial is None]
    theirs = [pick.arm for pick in event.picks]
    if ours == theirs:
        return ""
    first = next((number for number, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    if first is None:
        return f"{len(theirs)} arms were chosen, {len(ours)} here"
    return f"arm {theirs[first]} was chosen as pick {first}, arm {ours[first]} here"


def _compare_draws(problem: Problem, progress: Progress, event: ModelRefreshed) -> str:
    strategy = problem.strategy
    campaign = progress.campaign
    if campaign.existing_observations:
        model = begin(strategy, progress.model, campaign.existing_observations, problem.rng(BEGIN))
    else:
        with_curves = with_told_curves(problem, progress.model, campaign)
        model = strategy.tell(with_curves, campaign.observations_of(event.trials), problem.rng(TELL, event.round))
    ours = strategy.recorded(model)
    different = [name for name in event.record if not _is_close(ours.get(name), event.record[name])]
    return f"{', '.join(different)} of the refreshed model differ" if different else ""


def _compare_growth(problem: Problem, progress: Progress, event: CandidatesGrown) -> str:
    rng = problem.rng(GROW, event.round)
    ours = progress.pool.growth(problem.strategy, progress.model, progress.campaign.pending, rng)
    if ours is None:
        return "candidates were appended, none would be here"
    is_same = ours.retired == event.retired and all(
        len(ours.columns.get(name, ())) == len(column) and all(map(_is_close, ours.columns[name], column))
        for name, column in event.columns.items()
    )
    return "" if is_same else "other candidates would be appended here"


def _is_close(ours: Any, theirs: Any) -> bool:
    """Return whether both are equal except for the last digits, which depend on the machine."""
    if isinstance(ours, float) or isinstance(theirs, float):
        return bool(np.isclose(ours, theirs, rtol=1e-9))
    return bool(np.array_equal(np.asarray(ours, object), np.asarray(theirs, object)))
