"""Warnings about a campaign's workers: a worker that was not replaced, or an evaluation that does not end.

Nothing here decides anything. The state keeps marks of the workers' time, one a minute; warnings compare the last ten
minutes with all the time before.
"""

from orchestrator.campaign.state import CampaignState, Mark
from orchestrator.wording import duration, plural

_MARK_SECONDS = 60.0
_WINDOW_MARKS = 11  # ten minutes
_FALL = 0.15  # of the workers' time that is lost in addition
_LEAST_OLD_SECONDS = 600.0
_OLD_FACTOR = 5.0  # times the longest evaluation so far


def marks_after(state: CampaignState) -> tuple[Mark, ...]:
    """The state's marks, with one more when the last one is a minute old, and without the oldest."""
    if state.marks and state.last_time - state.marks[-1].time < _MARK_SECONDS:
        return state.marks
    return (*state.marks[1 - _WINDOW_MARKS :], _mark(state, 0.0))


def warnings(state: CampaignState, since: float) -> dict[str, str]:
    """What is wrong with the workers, by kind, `since` seconds after the last event of an open session."""
    found = {"places": _few_places(state), "late": _late(state, since), "old": _old(state, since)}
    return {kind: text for kind, text in found.items() if text}


def _few_places(state: CampaignState) -> str:
    wanted = state.rules.workers
    if wanted is None or state.slots >= wanted:
        return ""
    return f"there are places for {state.slots} of the {plural(wanted, 'worker')} that workers.count asks for"


def _late(state: CampaignState, since: float) -> str:
    """Attempts were passed to workers and started late."""
    if len(state.marks) < _WINDOW_MARKS:
        return ""
    first, last = state.marks[0], _mark(state, since)
    window = last.capacity - first.capacity
    share = (last.missing - first.missing) / window if window > 0.0 else 0.0
    before = first.missing / first.capacity if first.capacity > 0.0 else 0.0
    if share - before < _FALL:
        return ""
    return (
        f"of the last {duration(last.time - first.time)} the workers lost {share:.0%} between a trial's dispatch and "
        f"beginning it, {before:.0%} before: a worker process may not have been replaced; see `ray status`"
    )


def _old(state: CampaignState, since: float) -> str:
    """An evaluation that takes much longer than all others, or has not started."""
    limit = max(_LEAST_OLD_SECONDS, _OLD_FACTOR * state.longest_seconds)
    old = [trial for trial, run in state.running.items() if state.last_time + since - run.since > limit]
    if not old or not state.longest_seconds:
        return ""
    shown = ", ".join(map(str, sorted(old)[:5])) + (", …" if len(old) > 5 else "")
    return (
        f"{plural(len(old), 'trial')} ({shown}) had no outcome for more than {duration(limit)}, the longest evaluation "
        f"took {duration(state.longest_seconds)}: it hangs (workers.timeout_seconds ends it), or no worker started it"
    )


def _mark(state: CampaignState, since: float) -> Mark:
    now = state.last_time + since
    capacity = state.capacity_seconds + since * state.slots
    under_way = sum(max(0.0, now - run.since) for run in state.running.values())
    idle = state.idle.total + since * state.free
    return Mark(now, capacity, max(0.0, capacity - state.busy_seconds - under_way - idle))
