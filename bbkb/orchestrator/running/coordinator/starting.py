"""The coordinator's start and restart: it opens a session, or finds that the session has ended; with
the credentials of the store, and the metrics of the session.

No argument, label, file or log contains the credentials. The process that starts the actor writes
the store's complete URL into the key-value store of Ray's head. The actor reads the URL at every
start, including restarts by Ray, and removes it at the end. Only processes that can run code on the
cluster can read it. Nothing is written if the URL needs no credentials, or if libpq finds them on
the actor's node.

Only the coordinator exports metrics to Prometheus, through Ray, which names each `ray_<name>`, and
counters with the suffix `_total`. The number of label values is limited: one `campaign` for each
run, the `status` of a trial, and the `cause` of idle time. Gauges and counters are set from the
campaign's totals, so a restarted coordinator continues with the same values.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ray.util.metrics import Counter, Gauge, Histogram

from bbkb.orchestrator import credentials
from bbkb.orchestrator.campaign.events import SessionClosed, StopReason, StopRequested
from bbkb.orchestrator.campaign.state import Session
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.session.build import Parts
from bbkb.orchestrator.session.open import OpenSession, from_text, open_session
from bbkb.orchestrator.session.recorder import Span
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.connect import resolve
from bbkb.orchestrator.store.lease import Identity
from bbkb.orchestrator.store.runs import Run, open_run
from bbkb.orchestrator.store.store import EventStore
from bbkb.workers.on_ray import internals
from bbkb.workers.on_ray.actors import Allocation

_NAMESPACE = "bbkb-stores"  # not the ledger's, which is cleared at the end of a session


def leave_store(run: Run) -> None:
    """Write the URL for the run's actor. Raises StoreError if one of the URL's variables is not
    set."""
    url = resolve(run.place)
    if isinstance(url, Path):
        return
    if url.password is None and (password := os.environ.get("PGPASSWORD")):
        url = url.set(password=password)
    complete = url.render_as_string(hide_password=False)
    if complete != run.place or credentials.has_password(complete):
        internals.put(run.name, complete, namespace=_NAMESPACE)


def forget_store(name: str) -> None:
    """Remove the URL that `leave_store` wrote for the run with this name."""
    internals.delete(name, namespace=_NAMESPACE)


_SECONDS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]  # upper bounds of a histogram's buckets


@dataclass(frozen=True, slots=True)
class TrialMetrics:
    """The metrics of a status: gauges by name; counters by name, label and label value."""

    gauges: Mapping[str, float]
    counters: Mapping[tuple[str, str, str], float]


def totals_of(status: Status) -> TrialMetrics:
    """Return the metrics of a status. The gauge of the best value is omitted until there is one."""
    gauges = {
        "bbkb_in_flight": float(status.trials.in_flight),
        "bbkb_backlog": float(status.trials.waiting),
        "bbkb_workers": float(status.workers.slots),
        "bbkb_utilization": status.workers.utilization,
    }
    if status.best.value is not None:
        gauges["bbkb_best_value"] = status.best.value
    trials = {"succeeded": status.trials.succeeded, "failed": status.trials.failed, "stopped": status.trials.stopped}
    counters = {("bbkb_evaluations", "status", name): float(count) for name, count in trials.items()}
    counters |= {
        ("bbkb_idle_seconds", "cause", cause): seconds for cause, seconds in status.workers.idle_seconds.items()
    }
    return TrialMetrics(gauges, counters)


class Metrics:
    """The metrics of one campaign; one thread calls `update`, any may call `observe`."""

    def __init__(self, campaign: str) -> None:
        self._tags = {"campaign": campaign}
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._counted: dict[tuple[str, str, str], float] = {}
        names = {span: f"bbkb_{span.value}_seconds" for span in Span}
        self._histograms = {
            span: Histogram(name, DESCRIPTIONS[name], _SECONDS, ("campaign",)) for span, name in names.items()
        }

    def update(self, status: Status) -> None:
        """Update the gauges and counters from `status`."""
        totals = totals_of(status)
        for name, value in totals.gauges.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(name, DESCRIPTIONS[name], ("campaign",))
            self._gauges[name].set(value, self._tags)
        for key, value in totals.counters.items():
            name, label, of = key
            if name not in self._counters:
                self._counters[name] = Counter(name, DESCRIPTIONS[name], ("campaign", label))
            increase = value - self._counted.get(key, 0.0)
            if increase > 0.0:
                self._counters[name].inc(increase, {**self._tags, label: of})
                self._counted[key] = value

    def observe(self, span: Span, seconds: float) -> None:
        """Record the duration of a refit or a commit."""
        self._histograms[span].observe(seconds, self._tags)


DESCRIPTIONS = {
    "bbkb_in_flight": "Evaluations that run.",
    "bbkb_backlog": "Trials that are chosen and wait for a worker.",
    "bbkb_workers": "Evaluations that can run at the same time.",
    "bbkb_utilization": "Share of the workers' time spent evaluating, since the campaign began.",
    "bbkb_best_value": "The best value so far, on the user's scale.",
    "bbkb_evaluations": "Trials that have ended, by status.",
    "bbkb_idle_seconds": "Worker-seconds without an evaluation, by cause.",
    "bbkb_refit_seconds": "Duration of a refit of the model.",
    "bbkb_store_commit_seconds": "Duration of a commit to the event log.",
}


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

    `settings` are those of the session as text; a restarted actor uses the settings of its claim.
    `length` is the length of the log when the actor was created. `built` returns the parts that
    another process has built from the settings, or None. It is called after the modules named in
    the settings have been imported, and not after a restart.

    Raises the errors of `open_session`, and CampaignError if too many consecutive sessions died
    without progress.
    """
    run = open_run(Path(folder), runs_it=True)
    if (url := internals.get(run.name, namespace=_NAMESPACE)) is not None:  # of `leave_store`
        run = replace(run, place=bytes(url).decode())
    stops = False
    if is_restarted:
        if (end := ending_since(run, length)) is not None:
            return end
        with run.store() as store:
            check_progress(snapshots.current(run, store).session)
            stops = has_stop_request(store, run.name, length)
            settings = store.claimed_settings(run.name) or settings
    resolved = from_text(settings)
    parts = None if is_restarted else built()
    me = Identity.of_this_child()  # a worker of Ray ends with its raylet
    session = open_session(run, resolved, parts=parts, allocation=allocation, me=me)
    if stops:
        session.driver.stop()
    return session


def publish(session: OpenSession, name: str, show: Callable[[str], None]) -> None:
    """Update the metrics of the run `name`, and `show` its phase, as long as this process lives."""
    metrics = Metrics(name)
    session.driver.recorder.measured = metrics.observe

    def update() -> None:
        while (status := session.driver.status()).phase != "closed":
            if status.phase != "created":
                show(status.phase)
            metrics.update(status)
            time.sleep(_METRICS_SECONDS)
        metrics.update(status)

    threading.Thread(target=update, daemon=True, name="metrics").start()


def ending_since(run: Run, length: int) -> End | None:
    """Return the end of the session that ended after the first `length` events; None if none has
    ended."""
    with run.store() as store:
        end = store.length(run.name)
        last = store.event_at(run.name, end - 1) if end > length else None
    return (last.outcome, last.reason) if isinstance(last, SessionClosed) else None


def has_stop_request(store: EventStore, campaign: str, length: int) -> bool:
    """Return whether a clean stop was requested after the first `length` events, so that a
    restarted actor continues to stop."""
    requests = store.read(campaign, after=length, kinds={"stop_requested"})
    return any(isinstance(event, StopRequested) and event.reason is StopReason.INTERRUPTED for event in requests)


def check_progress(newest: Session) -> None:
    """Raise CampaignError if the last `SESSIONS_WITHOUT_PROGRESS` sessions died without a
    result."""
    without_progress = newest.without_outcome + 1 if newest.last_outcome is None else 0
    if without_progress >= SESSIONS_WITHOUT_PROGRESS:
        raise CampaignError(
            f"the coordinator died before any evaluation ended, in {without_progress} sessions in a row: read its log "
            "on the Ray dashboard (it may have run out of memory), then run `bbkb resume`"
        )
