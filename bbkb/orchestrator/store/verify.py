"""`bbkb verify`: whether a log is intact, and which evaluations a resume would repeat.

It compares the checksums, folds the events, and counts the trials again from the events alone. It also checks the
sizes of the dictionaries where a theorem bounds them.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.errors import RunError, StoreError
from bbkb.orchestrator.store.store import PAGE, EventStore
from bbkb.orchestrator.wording import plural


@dataclass
class Findings:
    """What `verify` has found. `problems` are damage; an event that cannot be read or applied ends the check."""

    events: int = 0  # the number of intact events
    state: CampaignState = field(default_factory=CampaignState)  # after these events
    problems: list[str] = field(default_factory=list)
    # the recorded sizes of dictionaries that Theorem 1 bounds: round, |𝒮|, and its bound
    dictionaries: list[tuple[int, int, float]] = field(default_factory=list)

    def __str__(self) -> str:
        running = [f"trial {trial} (attempt {run.trial.attempt})" for trial, run in self.state.running.items()]
        waiting = [f"trial {queued.id} (attempt {queued.attempt})" for queued in self.state.backlog]
        return "\n".join((
            f"checked: {plural(self.events, 'event')} in {plural(self.state.session.epoch, 'session')}",
            *(f"problem: {problem}" for problem in self.problems),
            *self._theorem_1(),
            f"running, or repeated by a resume: {', '.join(running) or 'nothing'}",
            f"waiting: {', '.join(waiting) or 'nothing'}",
            "damaged: restore the log from a copy" if self.problems else "sound",
        ))  # fmt: skip

    def _theorem_1(self) -> list[str]:
        """Return whether |𝒮| ≤ 9 C̃ (1 + κ²/λ) q̄ d_eff at every refit for which it is proven."""
        if not self.dictionaries:
            return []
        worst, size, bound = max(self.dictionaries, key=lambda one: one[1] / one[2])
        refits = plural(len(self.dictionaries), "refit")
        broken = sum(size > bound for _, size, bound in self.dictionaries)
        verdict = f"does not hold at {broken} of {refits}" if broken else f"holds at {refits}"
        return [
            f"Theorem 1: |S| ≤ 9 C̃ (1 + κ²/λ) q̄ d_eff {verdict}; the closest is refit {worst}, "
            f"with |S| = {size} and the bound {bound:.4g}"
        ]


def verify(store: EventStore, campaign: str) -> Findings:
    """Check a campaign's log. Raises RunError if the campaign does not exist, and StoreError if the
    database cannot be used at all."""
    found = Findings()
    length = store.length(campaign)
    counts: Counter[str] = Counter()
    try:
        found.problems += [f"SQLite's own check: {line}" for line in store.check_pages()]
        for event in store.read(campaign):
            place = f"event {found.events} ({event.kind})"
            if isinstance(event, events.ModelRefreshed) and not _is_of_results(event, found.state):
                found.problems.append(f"{place} does not contain the results of its trials")
            try:
                found.state = apply(found.state, event)
            except Exception as error:  # an impossible log may fail anywhere
                found.problems.append(f"{place} does not apply: {type(error).__name__}: {error}")
                return found
            _count(counts, event)
            if isinstance(event, events.ModelRefreshed) and event.trials and "dictionary_bound" in event.record:
                bound = float(event.record["dictionary_bound"])
                found.dictionaries.append((event.round, event.dictionary_size, bound))
            found.events += 1
    except StoreError as error:
        found.problems.append(str(error))
        return found
    if found.events > max(length, store.length(campaign)):
        found.problems.append(f"the log has {found.events} events, and {length} were written")
    totals = found.state.totals
    for name, folded in (
        ("chosen", totals.chosen), ("succeeded", totals.succeeded), ("failed", totals.failed),
        ("stopped", totals.stopped),
    ):  # fmt: skip
        if counts[name] != folded:
            found.problems.append(f"{name}: the events count {counts[name]}, `status` counts {folded}")
    return found


def _is_of_results(event: events.ModelRefreshed, state: CampaignState) -> bool:
    """Return whether a refresh has learned the results that the events before it contain."""
    trials = set(event.trials)
    finished = [ended.observation for ended in state.finished if ended.trial in trials]
    curves = () if event.curves is None else event.curves.curves
    is_of_trials = event.observations == (*finished, *state.existing_observations)
    return is_of_trials and curves in ((), state.trainings.learned_curves)


def _count(counts: Counter[str], event: events.Event) -> None:
    match event:
        case events.BatchChosen():
            counts["chosen"] += len(event.picks)
        case events.TrialSucceeded():
            counts["succeeded"] += 1
        case events.TrialFailed():
            counts["failed"] += event.is_final
        case events.TrialStopped():
            counts["stopped"] += 1
        case events.TrialsReopened():
            counts["failed"] -= len(event.trials)
        case events.TrialsContinued():
            counts["stopped"] -= len(event.trials)


def compare(log: EventStore, copy: EventStore, campaign: str) -> tuple[bool, str]:
    """Return whether `copy` is an earlier state of the log, and the comparison in words.

    Checksums reveal accidental changes. A person who can write to the database can recompute them,
    and only a copy in another place reveals such a change. Raises RunError if `copy` lacks the
    campaign.
    """
    position = 0
    while True:
        pages = log.rows(campaign, position, PAGE), copy.rows(campaign, position, PAGE)
        if not pages[1] and not position:
            raise RunError(f"the copy has no event of campaign {campaign!r}: is it a copy of another run?")
        for mine, theirs in zip_longest(*pages):
            if mine is None:
                return False, f"compared: the copy has more events than the {position} of this log, which has lost them"
            if theirs is None:
                return True, f"compared: {position} events are those of the copy, and others came after it was made"
            if mine != theirs:
                return False, f"compared: event {position} differs from the copy's, after {position} that are alike"
            position += 1
        if len(pages[0]) < PAGE:
            return True, f"compared: {position} events are those of the copy"
