"""Exports a campaign's metrics to Prometheus through Ray. Only the coordinator exports them.

Ray exports each metric under `ray_<name>`, and counters with the suffix `_total`. The number of
label values is limited: one `campaign` for each run, the `status` of a trial, and the `cause` of
idle time. Gauges and counters are set from the campaign's totals, so a restarted coordinator
continues with the same values.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ray.util.metrics import Counter, Gauge, Histogram

from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.session.recorder import Span

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
