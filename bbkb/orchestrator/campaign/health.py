"""Warnings about a campaign: a worker that was not replaced, an evaluation that does not end, or
trainings that early stopping cannot judge.

Warnings influence no decision. The state keeps one mark of the workers' time per minute. Warnings
compare the last ten minutes with all earlier time.
"""

from collections.abc import Mapping, Sequence

from bbkb.orchestrator.campaign.attempts import Run
from bbkb.orchestrator.campaign.clock import Clock, Mark
from bbkb.orchestrator.campaign.state import CampaignState, Session
from bbkb.orchestrator.wording import duration, plural

_MARK_SECONDS = 60.0
_WINDOW_MARKS = 11  # ten minutes
_ADDED_LOSS = 0.15  # added share of the workers' time that is lost between dispatch and start
_LEAST_OLD_SECONDS = 600.0
_OLD_FACTOR = 5.0  # multiple of the longest evaluation so far
# seconds beyond the time-out, for starting a worker and for ending one that hangs
_START_SECONDS = 60.0
_TIMEOUT_FACTOR = 1.5
_LEAST_FINISHED = 3  # with fewer finished trials there are no warnings about their reports
_MOST_SHOWN = 5  # trials in one warning


def marks_after(clock: Clock, session: Session, running: Mapping[int, Run]) -> tuple[Mark, ...]:
    """Return the session's marks, with a new one after each minute and without the oldest."""
    marks = session.marks
    if marks and clock.last_time - marks[-1].time < _MARK_SECONDS:
        return marks
    return (*marks[1 - _WINDOW_MARKS :], _mark(clock, session, running, 0.0))


def warnings(state: CampaignState, since: float | None) -> dict[str, str]:
    """Return the warnings about workers and trainings by kind, `since` seconds after an event; only
    those about trainings if it is None, because no session is open."""
    by_kind: dict[str, str] = {}
    if since is not None:
        by_kind["places"] = _few_places(state)
        by_kind["late"] = _late(state, since)
        by_kind["old"] = _not_ended(state, since)
    if state.settings.stopping is not None:
        by_kind["silent"] = _no_reports(state)
        by_kind["last step"] = _other_last_step(state)
        by_kind["unlike"] = _unlike_ends(state)
        by_kind["restarted"] = _restarts(state)
        by_kind["unreported"] = _unreported_metric(state)
    return {kind: text for kind, text in by_kind.items() if text}


def _few_places(state: CampaignState) -> str:
    requested = state.settings.workers.requested
    if requested is None or state.session.slots >= requested:
        return ""
    return (
        f"there are slots for {state.session.slots} of the {plural(requested, 'worker')} that workers.count asks for; "
        f"further trials wait for nodes with room for {state.settings.workers.needs}"
    )


def _late(state: CampaignState, since: float) -> str:
    """Return a warning if attempts start long after they were passed to workers."""
    marks = state.session.marks
    if len(marks) < _WINDOW_MARKS:
        return ""
    first = marks[0]
    last = _mark(state.clock, state.session, state.running, since)
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
    """Return a warning about evaluations that should have started or ended by now."""
    limit, why = _longest_wait(state)
    now = state.clock.last_time + since
    old = [trial for trial, run in state.running.items() if now - run.since > limit]
    if not old:
        return ""
    return (
        f"{plural(len(old), 'trial')} ({_first_of(sorted(old))}) had no outcome for more than {duration(limit)}, {why}"
    )


def _longest_wait(state: CampaignState) -> tuple[float, str]:
    """Return the seconds after which a missing outcome deserves a warning, and the words for it."""
    timeout = state.settings.workers.timeout_seconds
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


def _mark(clock: Clock, session: Session, running: Mapping[int, Run], since: float) -> Mark:
    now = clock.last_time + since
    capacity = clock.capacity_seconds + since * session.slots
    under_way = sum(max(0.0, now - run.since) for run in running.values())
    idle = sum(clock.idle.values()) + since * max(0, session.slots - len(running))
    return Mark(now, capacity, max(0.0, capacity - clock.busy_seconds - under_way - idle))


def _no_reports(state: CampaignState) -> str:
    has_reports = state.totals.stopped or state.trainings.whole.count
    if state.totals.succeeded < _LEAST_FINISHED or has_reports:
        return ""
    return (
        f"none of the {plural(state.totals.succeeded, 'finished trial')} reported a value, so early "
        "stopping stops none: a function calls report(value, step) with steps 1, 2, …, a command "
        "prints lines BBKB_REPORT step value"
    )


def _other_last_step(state: CampaignState) -> str:
    """Return a warning if trainings end before or after the last step in the settings."""
    last_step = state.settings.last_step
    furthest = state.trainings.furthest_step
    whole = state.trainings.whole
    if last_step is None:
        return ""
    remedy = "the model expects the final value there; set it to the last step of a complete training"
    if furthest > last_step:
        return f"trials report steps up to {furthest}, and early_stopping.last_step is {last_step}: {remedy}"
    if whole.count >= _LEAST_FINISHED and whole.largest_step < last_step:
        return (
            f"{plural(whole.count, 'trial')} finished at step {whole.largest_step} or before, and "
            f"early_stopping.last_step is {last_step}: {remedy}, and report steps from 1 on. If the "
            "training library ends trainings itself, leave that out (early_stopping_rounds of XGBoost "
            "and LightGBM, the callbacks early_stopping or EarlyStopping)"
        )
    return ""


def _unlike_ends(state: CampaignState) -> str:
    whole = state.trainings.whole
    goals = state.settings.goals
    newest = whole.newest_unlike
    if newest is None or whole.unlike < _LEAST_FINISHED or 2 * whole.unlike <= whole.count:
        return ""
    reported, returned = goals.reward(newest.reported), goals.reward(newest.returned)  # as values again
    return (
        f"{whole.unlike} of {plural(whole.count, 'finished trial')} returned something unlike their "
        f"reports (trial {newest.trial}: last reported {reported:.6g}, returned {returned:.6g}): "
        "a trial must report the quantity that it returns, on its scale and in its direction"
    )


def _restarts(state: CampaignState) -> str:
    """Return a warning about continued trials that restarted although they have checkpoints."""
    trials = sorted(state.trainings.without_checkpoint)
    if not trials or not state.settings.has_checkpoints:
        return ""
    return (
        f"{plural(len(trials), 'continued trial')} ({_first_of(trials)}) restarted at the first step: the "
        "checkpoint in the trial's folder is missing or was not read; repeated steps take "
        "time and provide no new information"
    )


def _unreported_metric(state: CampaignState) -> str:
    """Return a warning if trials do not report the metric that a fixed rule compares, so it stops none."""
    metric = None if state.settings.stopping is None else state.settings.stopping.metric
    has_rungs = state.trainings.rungs.best or state.trainings.rungs.rewards
    if metric is None or has_rungs or state.trainings.whole.count < _LEAST_FINISHED:
        return ""
    return (
        f"trials do not report {metric}, which early stopping compares, so it stops none: report it at each step, as "
        f"in report({{{metric!r}: …}}, step)"
    )


def _first_of(trials: Sequence[int]) -> str:
    return ", ".join(map(str, trials[:_MOST_SHOWN])) + (", …" if len(trials) > _MOST_SHOWN else "")
