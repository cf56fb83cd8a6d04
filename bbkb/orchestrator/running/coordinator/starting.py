"""The coordinator's start and restart: it opens a session, or finds that the session has ended."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bbkb.orchestrator.campaign.events import (
    AttemptEnded,
    Event,
    SessionClosed,
    SessionOpened,
    StopReason,
    StopRequested,
)
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.running.coordinator.handover import with_store
from bbkb.orchestrator.running.coordinator.metrics import Metrics
from bbkb.orchestrator.session.build import Parts
from bbkb.orchestrator.session.open import OpenSession, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.lease import Identity
from bbkb.orchestrator.store.runs import open_run
from bbkb.workers.on_ray.allocation import Allocation

End = tuple[str, str]  # the outcome and the reason at the end of a session

SESSIONS_WITHOUT_PROGRESS = 10  # a restarted actor gives up after this many sessions in a row
_METRICS_SECONDS = 5.0  # between two updates of the metrics


def begin(
    folder: str,
    settings: str,
    length: int,
    is_restarted: bool,
    built: Callable[[], Parts | None],
    allocation: Allocation | None,
) -> OpenSession | End:
    """Return the session of the run in `folder`, or its end if it ended before this actor's
    restart. A session that was stopping before the restart is stopping again.

    `settings` are those of the session as JSON; a restarted actor uses the settings of its claim.
    `length` is the length of the log when the actor was created. `built` returns the parts that
    another process has built from the settings, or None. It is called after the modules named in
    the settings have been imported, and not after a restart.

    Raises the errors of `open_session`, and CampaignError if too many consecutive sessions died
    without progress.
    """
    run = with_store(open_run(Path(folder), runs_it=True))
    stops = False
    if is_restarted:
        events = run.events()
        end = ending_since(events, length)
        if end is not None:
            return end
        check_progress(events)
        stops = has_stop_request(events, length)
        with run.store() as store:
            settings = store.claimed_settings(run.name) or settings
    resolved = from_mapping(json.loads(settings))
    parts = None if is_restarted else built()
    me = Identity.of_this_child()  # a worker of Ray ends with its raylet
    session = open_session(run, resolved, parts=parts, allocation=allocation, me=me)
    if stops:
        session.driver.stop()
    return session


def publish(session: OpenSession, name: str) -> None:
    """Update the metrics of the run `name` as long as this process lives."""
    metrics = Metrics(name)
    session.driver.recorder.measured = metrics.observe
    threading.Thread(target=_update, args=(session, metrics), daemon=True, name="metrics").start()


def _update(session: OpenSession, metrics: Metrics) -> None:
    while True:
        metrics.update(session.driver.status())
        time.sleep(_METRICS_SECONDS)


def ending_since(events: Sequence[Event], length: int) -> End | None:
    """Return the end of the session that ended after the first `length` events; None if none has
    ended."""
    last = events[-1] if len(events) > length else None
    return (last.outcome, last.reason) if isinstance(last, SessionClosed) else None


def has_stop_request(events: Sequence[Event], length: int) -> bool:
    """Return whether a clean stop was requested after the first `length` events, so that a
    restarted actor continues to stop."""
    return any(isinstance(event, StopRequested) and event.reason is StopReason.INTERRUPTED for event in events[length:])


def check_progress(events: Sequence[Event]) -> None:
    """Raise CampaignError if the last `SESSIONS_WITHOUT_PROGRESS` sessions died without a
    result."""
    without_progress = 0
    for event in reversed(events):
        if isinstance(event, AttemptEnded):
            break
        without_progress += isinstance(event, SessionOpened)
    if without_progress >= SESSIONS_WITHOUT_PROGRESS:
        raise CampaignError(
            f"the coordinator died before any evaluation ended, in {without_progress} sessions in a row: read its log "
            "on the Ray dashboard (it may have run out of memory), then run `bbkb resume`"
        )
