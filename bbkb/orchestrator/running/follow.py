"""Follows a run of another process through its store, for `bbkb attach` and `bbkb stop`.

New events are folded incrementally, so following a long campaign costs no more than following a
short one. Watching does not affect the run; only a stop request is written.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bbkb.orchestrator.campaign.state import ACTIVITIES, CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.transitions import apply_recorded
from bbkb.orchestrator.errors import RunError
from bbkb.orchestrator.report.terminal import View
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.lease import Watch, describe_holder, watch_holder
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore, Holding, Stop
from bbkb.orchestrator.wording import duration, moment

# the time in which a coordinator can restart, including loading its data
RESTART_SECONDS = 60.0
# the longest wait of `attach` for the restart of a coordinator that is dead at the first check
TAKE_UP_SECONDS = 15.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The end of a followed session. `outcome` is empty if the session died without recording
    one."""

    outcome: str
    reason: str


def _end_of(state: CampaignState) -> SessionEnd | None:
    """Return the end of the newest session; None if it is open or its end is not recorded."""
    session = state.session
    return None if session.outcome is None else SessionEnd(session.outcome, session.close_reason)


def follow(
    run: Run,
    store: EventStore,
    view: View,
    stop: Stop = "",
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> SessionEnd:
    """Show the run until its session has ended and released the lease. `stop`: the kind of stop to
    request from every holder.

    If the holder dies, wait `RESTART_SECONDS` for its coordinator to restart. Errors of the store
    end the command even if they are transient, because the command can be repeated. Raises
    StoreError, and RunError if the campaign does not exist.
    """
    state, position = CampaignState(), 0
    watch = Watch(clock=clock)
    gone_since: float | None = None
    with view:
        while True:
            # read before the log, because a holder closes its session before it releases the lease
            holding = store.holding(run.name)
            for event in store.read(run.name, after=position):
                state = apply_recorded(state, event)
                position += 1
            is_held = watch.is_held(holding)
            activity = "evaluating" if state.computation is None else ACTIVITIES[state.computation]
            activity = f"{activity}; {describe_holder(holding)}"
            is_virtual = state.settings.workers.traits.in_virtual_time
            view.update(status_of(state, None if is_virtual else time.time(), activity=activity))
            if is_held is not False:
                gone_since = None
                if stop and holding.stop not in (stop, "now"):
                    store.ask_to_stop(run.name, holding.epoch, stop)
            elif (ending := _end_of(state)) is not None:
                return ending
            elif not holding.holder:
                return SessionEnd("", "the session ended without recording an outcome; see the log on its host")
            elif gone_since is None:
                gone_since = clock()
                view.say(f"{holding.holder} is gone: waiting up to {duration(RESTART_SECONDS)} for a restart")
            elif clock() - gone_since >= RESTART_SECONDS:
                return SessionEnd("", f"{holding.holder} is gone")
            sleep(_LOOK_SECONDS)


def reason_not_to_follow(
    run: Run,
    store: EventStore,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str | None:
    """Return why the run cannot be followed because no process runs it, since when, and the remedy.
    Return None if a process runs it.

    Waits if Ray may be restarting a dead coordinator.
    """
    holding, is_held = watch_holder(store, run.name, say)
    if is_held:
        return None
    if holding.holder and snapshots.current(run, store).settings.workers.traits.on_ray:
        say(f"{holding.holder} is gone: waiting up to {duration(TAKE_UP_SECONDS)} for its coordinator to restart")
        deadline = clock() + TAKE_UP_SECONDS
        while clock() < deadline:
            sleep(_LOOK_SECONDS)
            if store.holding(run.name).epoch != holding.epoch:
                return None
    if not holding.epoch:
        return f"{run.name} has not been started yet: {run.resume_command}"
    if not holding.holder:
        since = f" since {moment(holding.last_beat)}" if holding.last_beat else ""
        return f"no process has run {run.name}{since}; to continue: {run.resume_command}"
    return (
        f"no process runs {run.name}: {holding.holder}, which did, died without recording an outcome (last heartbeat "
        f"{moment(holding.last_beat)}); to continue: {run.resume_command}"
    )


def check_held(run: Run, store: EventStore, say: Callable[[str], None]) -> Holding:
    """Return the lease of the process that runs the run. Raises RunError if no process runs it."""
    if (why := reason_not_to_follow(run, store, say)) is not None:
        raise RunError(f"the run cannot be stopped: {why}")
    return store.holding(run.name)


def last_ending(run: Run, store: EventStore) -> SessionEnd | None:
    """Return the end of the last session; None if there is no session or its end is not
    recorded."""
    return _end_of(snapshots.current(run, store))
