"""Warnings about a campaign: a worker that was not replaced, an evaluation that does not end, or
trainings that early stopping cannot judge.

Warnings influence no decision. The state keeps one mark of the workers' time per minute. Warnings
compare the last ten minutes with all earlier time.
"""

from orchestrator.campaign.clock import Mark
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.trainings.warnings import Observed, training_warnings
from orchestrator.wording import duration, plural

_MARK_SECONDS = 60.0
_WINDOW_MARKS = 11  # ten minutes
_ADDED_LOSS = 0.15  # added share of the workers' time that is lost between dispatch and start
_LEAST_OLD_SECONDS = 600.0
_OLD_FACTOR = 5.0  # multiple of the longest evaluation so far
# seconds beyond the time-out, for starting a worker and for ending one that hangs
_START_SECONDS = 60.0
_TIMEOUT_FACTOR = 1.5


def marks_after(state: CampaignState) -> tuple[Mark, ...]:
    """Return the session's marks, with a new one after each minute and without the oldest."""
    marks = state.session.marks
    if marks and state.clock.last_time - marks[-1].time < _MARK_SECONDS:
        return marks
    return (*marks[1 - _WINDOW_MARKS :], _mark(state, 0.0))


def warnings(state: CampaignState, since: float) -> dict[str, str]:
    """Return the warnings about workers and trainings by kind, `since` seconds after an event."""
    warnings_by_kind = {
        "places": _few_places(state),
        "late": _late(state, since),
        "old": _not_ended(state, since),
    }
    return {kind: text for kind, text in warnings_by_kind.items() if text} | warnings_of_trainings(state)


def warnings_of_trainings(state: CampaignState) -> dict[str, str]:
    """Return the warnings about trainings, by kind; empty without early stopping."""
    if state.rules.stopping is None:
        return {}
    observed = Observed(
        trainings=state.trainings,
        rule=state.rules.training,
        succeeded=state.totals.succeeded,
        stopped=state.totals.stopped,
        goals=state.rules.goals,
    )
    return training_warnings(observed)


def _few_places(state: CampaignState) -> str:
    requested = state.rules.workers.count
    if requested is None or state.session.slots >= requested:
        return ""
    return (
        f"there are slots for {state.session.slots} of the {plural(requested, 'worker')} that workers.count asks for; "
        f"further trials wait for nodes with room for {state.rules.workers.needs}"
    )


def _late(state: CampaignState, since: float) -> str:
    """Return a warning if attempts start long after they were passed to workers."""
    marks = state.session.marks
    if len(marks) < _WINDOW_MARKS:
        return ""
    first = marks[0]
    last = _mark(state, since)
    window = last.capacity - first.capacity
    share = (last.missing - first.missing) / window if window > 0.0 else 0.0
    before = first.missing / first.capacity if first.capacity > 0.0 else 0.0
    if share - before < _ADDED_LOSS:
        return ""
    return (
        f"in the last {duration(last.time - first.time)}, the workers spent {share:.0%} between a trial's dispatch and "
        f"its start, {before:.0%} before: a worker process may not have been replaced; see `ray status`"
    )


def _not_ended(state: CampaignState, since: float) -> str:
    """Return a warning about evaluations that should have started or ended, judged by their
    time-out or by the durations of the other evaluations."""
    limit, why = _longest_wait(state)
    now = state.clock.last_time + since
    old = [trial for trial, run in state.running.items() if now - run.since > limit]
    if not old:
        return ""
    shown = ", ".join(map(str, sorted(old)[:5])) + (", …" if len(old) > 5 else "")
    return f"{plural(len(old), 'trial')} ({shown}) had no outcome for more than {duration(limit)}, {why}"


def _longest_wait(state: CampaignState) -> tuple[float, str]:
    """Return the seconds after which a missing outcome deserves a warning, and the words for it."""
    timeout = state.rules.deadlines.seconds
    longest = state.durations.longest_evaluation
    if timeout is not None:
        return (
            _START_SECONDS + _TIMEOUT_FACTOR * timeout,
            f"although workers.timeout_seconds = {timeout:g} ends evaluations: no worker has started it; the cluster "
            "may lack capacity (`ray status`)",
        )
    limit = max(_LEAST_OLD_SECONDS, _OLD_FACTOR * longest)
    if longest:
        return limit, (
            f"the longest evaluation took {duration(longest)}: one hangs (workers.timeout_seconds ends it), or no "
            "worker started it"
        )
    return limit, (
        "and no evaluation of this campaign has ended yet: they take long, one hangs (workers.timeout_seconds ends "
        "it), or no worker started it (`ray status`)"
    )


def _mark(state: CampaignState, since: float) -> Mark:
    clock = state.clock
    now = clock.last_time + since
    capacity = clock.capacity_seconds + since * state.session.slots
    under_way = sum(max(0.0, now - run.since) for run in state.running.values())
    idle = clock.idle.total + since * state.free
    return Mark(now, capacity, max(0.0, capacity - clock.busy_seconds - under_way - idle))
