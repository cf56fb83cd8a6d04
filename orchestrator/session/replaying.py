"""Replays a log: the states of the campaign and its model at any point, the reasons for each
choice, and whether a repeated computation on this machine gives the same result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from orchestrator.bandit.growing import Grows
from orchestrator.bandit.strategy import Choose, begin
from orchestrator.campaign.events import BatchChosen, CandidatesGrown, Event, ModelRefreshed
from orchestrator.errors import UserError
from orchestrator.session.problem import BEGIN, GROW, TELL, Problem, Progress, advance, begin_progress, with_told_curves


@dataclass(frozen=True, slots=True)
class Difference:
    """The event at `position` differs from the result of the repeated computation."""

    position: int
    what: str

    def __str__(self) -> str:
        return f"event {self.position}: {self.what}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: both states, the last choice, and the repeated computations."""

    progress: Progress
    position: int  # events taken
    last_choice: BatchChosen | None
    repeated: int  # computations of the strategy
    differences: tuple[Difference, ...]


def replay_until(problem: Problem, events: Sequence[Event], until: int | None, is_checked: bool) -> Replayed:
    """Take the first `until` events, all when it is None. `is_checked`: repeat what the strategy
    chose and drew, and compare. Raises UserError when the log is not that long."""
    if until is not None and not 0 < until <= len(events):
        raise UserError(f"--until must be >= 1 and <= {len(events)}, the number of events in the log, got {until}")
    progress, last_choice, repeated = begin_progress(problem), None, 0
    differences: list[Difference] = []
    for position, event in enumerate(events[:until]):
        if is_checked and _is_repeatable(event):
            repeated += 1
            what = _repeat(problem, progress, event)
            differences += [Difference(position, what)] if what else []
        if isinstance(event, BatchChosen) and event.picks:
            last_choice = event
        progress = advance(problem, progress, event)
    return Replayed(progress, until or len(events), last_choice, repeated, tuple(differences))


def _is_repeatable(event: Event) -> TypeGuard[BatchChosen | ModelRefreshed | CandidatesGrown]:
    """Return whether this version can repeat it: choices (not 0.1's fillers) and refreshes."""
    if isinstance(event, BatchChosen):
        return not (event.is_filler or event.is_enqueued)
    return isinstance(event, ModelRefreshed | CandidatesGrown)


def _repeat(problem: Problem, progress: Progress, event: BatchChosen | ModelRefreshed | CandidatesGrown) -> str:
    """Return how the event differs from the repeated computation; empty when it does not."""
    if isinstance(event, ModelRefreshed):
        return _compare_draws(problem, progress, event)
    if isinstance(event, CandidatesGrown):
        return _compare_growth(problem, progress, event)
    limit = event.limit or progress.campaign.remaining
    decision = problem.strategy.ask(progress.model, progress.campaign.pending, limit)
    picks = decision.picks if isinstance(decision, Choose) else ()
    continued = tuple(pick.trial for pick in picks if pick.trial is not None)
    if continued != event.continued:
        return f"trials {list(event.continued)} were continued, {list(continued)} here"
    ours, theirs = [pick.arm for pick in picks if pick.trial is None], [pick.arm for pick in event.picks]
    if ours == theirs:
        return ""
    first = next((number for number, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    if first is None:
        return f"{len(theirs)} arms were chosen, {len(ours)} here"
    return f"arm {theirs[first]} was chosen at place {first}, arm {ours[first]} here"


def _compare_draws(problem: Problem, progress: Progress, event: ModelRefreshed) -> str:
    strategy, campaign = problem.strategy, progress.campaign
    if campaign.existing_observations:
        model = begin(strategy, progress.model, campaign.existing_observations, problem.rng(BEGIN))
    else:
        with_curves = with_told_curves(problem, progress.model, campaign)
        model = strategy.tell(with_curves, campaign.observations_of(event.trials), problem.rng(TELL, event.round))
    ours = strategy.recorded(model)
    different = [name for name in event.record if not _is_close(ours.get(name), event.record[name])]
    return f"{', '.join(different)} of the refreshed model differ" if different else ""


def _compare_growth(problem: Problem, progress: Progress, event: CandidatesGrown) -> str:
    strategy, model, pool = problem.strategy, progress.model, progress.pool
    demand = pool.demand(strategy, model)
    if demand is None or not isinstance(strategy, Grows):
        return "candidates were appended, none would be here"
    ours = pool.growth(strategy, model, demand, progress.campaign.pending, problem.rng(GROW, event.round))
    is_same = ours.retired == event.retired and all(
        len(ours.columns.get(name, ())) == len(column) and all(map(_is_close, ours.columns[name], column))
        for name, column in event.columns.items()
    )
    return "" if is_same else "other candidates would be appended here"


def _is_close(ours: Any, theirs: Any) -> bool:
    """Return whether both are equal up to last digits, which machines round differently."""
    if isinstance(ours, float) or isinstance(theirs, float):
        return bool(np.isclose(ours, theirs, rtol=1e-9))
    return bool(np.array_equal(np.asarray(ours, object), np.asarray(theirs, object)))
