"""The campaign at work: the attempts of each worker over time, the utilization of the workers, and, for
those who look inside, batches or refits, dictionary, width and waiting."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bbkb.objectives.parameters import Constant
from bbkb.orchestrator.history.fold import AttemptRow, History
from bbkb.orchestrator.report.figure import (
    Figure,
    Spec,
    axis,
    counting_axis,
    label,
    layout,
    round_values,
    scatter,
    short,
)
from bbkb.orchestrator.wording import plural, rounded
from bbkb.workers.messages import FailureKind, Share

_COLORS = {
    "succeeded": "--success",
    "paused": "--paused",
    "stopped early": "--stopped",
    FailureKind.ERROR: "--error",
    FailureKind.INVALID_VALUE: "--invalid",
    FailureKind.TIMEOUT: "--timeout",
    FailureKind.OUT_OF_MEMORY: "--memory",
    FailureKind.WORKER_LOST: "--lost",
    FailureKind.NODE_LOST: "--lost",
}
_UNITS = ((172_800.0, 86_400.0, "days"), (7_200.0, 3_600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))
_MANY_BARS = 1500  # more bars slow down a browser, and a screen cannot resolve them
_BINS = 160
_MOST_LISTED = 300  # batches in the table: the newest


@dataclass(frozen=True)
class CampaignClock:
    """Converts times on the executor's clock to seconds in session, which exclude the pauses
    between sessions."""

    starts: NDArray[np.float64]  # (n,), the beginning of each session, on the executor's clock
    lengths: NDArray[np.float64]  # (n,), the duration of each session, in seconds

    @classmethod
    def of(cls, history: History) -> "CampaignClock":
        """Return the clock of a campaign. Before the first session, it starts at the creation."""
        sessions = history.sessions
        if not sessions:
            return cls(np.array([history.created.time]), np.zeros(1))
        return cls(np.array([s.started for s in sessions]), np.array([s.seconds for s in sessions]))

    def __call__(self, times: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds in session, in the shape of `times`."""
        times = np.asarray(times, dtype=float)
        index = np.maximum(np.searchsorted(self.starts, times, side="right") - 1, 0)
        return self.openings[index] + np.clip(times - self.starts[index], 0.0, self.lengths[index])

    @property
    def openings(self) -> NDArray[np.float64]:
        """The beginnings of the sessions (n,), in seconds in session."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def unit(self) -> tuple[float, str]:
        """The number of seconds in a unit that suits the campaign's duration, and its symbol."""
        total = float(self.lengths.sum())
        return next((seconds, name) for least, seconds, name in _UNITS if total >= least)


@dataclass(slots=True)
class _Bar:
    """Consecutive attempts of a worker with the same outcome and share, with times in session."""

    worker: str
    share: Share
    kind: str  # their outcome
    started: float
    finished: float
    trials: tuple[int, int]  # the first and the last trial
    count: int = 1


def timeline(history: History) -> Figure | None:
    """Return the share of busy workers over time, and below it one lane for each worker with one
    bar for each attempt, colored by its outcome."""
    if not history.attempts:
        return None
    clock = CampaignClock.of(history)
    total = float(clock.lengths.sum())
    seconds, unit = clock.unit
    bars = _bars(history, clock)
    lanes = sorted({bar.worker for bar in bars}, key=_natural, reverse=True)  # the first at the bottom
    counts = Counter(attempt.ended for attempt in history.attempts)
    known = {kind: index for index, kind in enumerate(_COLORS)}
    traces: list[Spec] = []
    for kind in sorted(counts, key=lambda kind: (known.get(kind, len(known)), kind)):
        alike = [bar for bar in bars if bar.kind == kind]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": f"{label(kind)} ({counts[kind]})",
                "y": [label(bar.worker, 28) for bar in alike],
                "base": round_values((bar.started for bar in alike), digits=8),
                "x": round_values((bar.finished - bar.started for bar in alike), digits=5),
                "text": [_bar_label(bar, unit) for bar in alike],
                "textposition": "none",
                "hovertemplate": "%{text}<extra>%{y}</extra>",
                "marker": {"color": _COLORS.get(kind, "--error"), "line": {"width": 0}},
            }
        )
    attempts = list(history.attempts)
    if history.status().trials.in_flight:  # the workers of running attempts are not known yet
        now = history.sessions[-1].ended
        for number, (trial, since) in history.campaign.running.items():
            attempts.append(AttemptRow(number, trial.attempt, min(since, now), now, ""))
    edges = np.linspace(0.0, total, _BINS + 1)
    busy = np.diff(busy_seconds(attempts, clock, edges))
    capacity = np.diff(capacity_seconds(history, clock, edges))
    share = np.clip(np.divide(busy, capacity, out=np.zeros_like(busy), where=capacity > 0), 0.0, 1.0)
    traces.append(
        scatter(
            "lines",
            round_values(edges / seconds),
            100 * np.r_[share, share[-1]],
            yaxis="y2",
            showlegend=False,
            hovertemplate=f"%{{x}} {unit}: <b>%{{y:.0f}} %</b> busy<extra></extra>",
            line={"color": "--accent", "width": 1.5, "shape": "hv"},
            fill="tozeroy",
            fillcolor="--fill",
        )
    )
    height = int(np.clip(150 + 24 * len(lanes), 240, 760))
    dotted = {"color": "--muted", "width": 1.5, "dash": "dot"}
    return Figure(
        name="workers",
        title="Workers",
        caption=f"{history.status().workers.utilization:.0%} of their time spent evaluating.",
        explanation="One bar for each attempt that has ended; gaps are idle time. Dotted lines mark a resume: pauses "
        "between sessions are cut out, and evaluations that were lost with a session count as idle time. Each process "
        "has a lane, and a later attempt may run in another process. Adjacent short attempts share a bar.",
        traces=traces,
        layout=layout(
            axis(f"time in session ({unit})", range=[0, total / seconds or 1]),
            axis(
                "worker" if history.settings.workers.machines == 1 else "first machine",
                type="category",
                categoryarray=[label(worker, 28) for worker in lanes],
                categoryorder="array",
                domain=[0.0, 1.0 - 90 / height],
            ),
            height=height,
            yaxis2=axis("busy (%)", range=[0, 104], domain=[1.0 - 65 / height, 1.0], nticks=3),
            barmode="overlay",
            bargap=0.25,
            showlegend=True,
            shapes=[
                {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": dotted}
                for x in round_values(clock.openings[1:] / seconds)
            ],
        ),
        is_wide=True,
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts `node-9` before `node-10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _bars(history: History, clock: CampaignClock) -> list[_Bar]:
    """Return the attempts as bars in the clock's unit. If there are many, they are merged to the
    resolution of a screen."""
    attempts = history.attempts
    workers = history.settings.workers
    seconds, _ = clock.unit
    started = clock([attempt.started for attempt in attempts]) / seconds
    finished = clock([attempt.finished for attempt in attempts]) / seconds
    lanes = {name: index for index, name in enumerate(sorted({attempt.worker for attempt in attempts}))}
    by_lane = np.lexsort((started, np.fromiter((lanes[attempt.worker] for attempt in attempts), np.intp)))
    bars = (  # a generator, because a list would take a fifth of the history's memory
        _Bar(
            worker=attempt.worker,
            share=workers.share_of(history.trials[attempt.trial].parameters),
            kind=attempt.ended,
            started=float(started[index]),
            finished=float(finished[index]),
            trials=(attempt.trial, attempt.trial),
        )
        for index, attempt in ((index, attempts[index]) for index in by_lane)
    )
    if len(attempts) <= _MANY_BARS:
        return list(bars)
    return list(_merge(bars, resolution=float(finished.max() - started.min()) * len(lanes) / _MANY_BARS))


def _merge(bars: Iterator[_Bar], resolution: float) -> Iterator[_Bar]:
    """Merge adjacent bars of one lane and outcome up to the length `resolution`."""
    current = next(bars)
    for bar in bars:
        is_alike = (bar.worker, bar.share, bar.kind) == (current.worker, current.share, current.kind)
        if is_alike and bar.finished - current.started <= resolution:
            trials = (*current.trials, *bar.trials)
            current.trials = (min(trials), max(trials))
            current.finished = max(current.finished, bar.finished)
            current.count += bar.count
        else:
            yield current
            current = bar
    yield current


def _bar_label(bar: _Bar, unit: str) -> str:
    first, last = bar.trials
    who = f"trial {first}" if bar.count == 1 else f"{bar.count} attempts, trials {first} to {last}"
    ended = label(bar.kind)
    text = f"<b>{who}</b>: {ended}<br>{short(bar.started)} to {short(bar.finished)} {unit}"
    amounts = [plural(bar.share.machines, "machine")] if bar.share.machines > 1 else []
    if bar.share.gpus:
        amounts.append(f"{bar.share.machines * bar.share.gpus:g} GPUs")
    return "<br>".join([text, *([", ".join(amounts)] if amounts else [])])


def capacity_seconds(history: History, clock: CampaignClock, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative worker-seconds of the sessions at each of `times` (n,), in session."""
    ends = np.r_[0.0, np.cumsum(clock.lengths)]
    return np.interp(times, ends, np.r_[0.0, np.cumsum([session.worker_seconds for session in history.sessions])])


def busy_seconds(attempts: list[AttemptRow], clock: CampaignClock, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative worker-seconds of `attempts` at each of `times` (n,)."""

    def seconds_since_start(moments: NDArray[np.float64]) -> NDArray[np.float64]:
        moments = np.sort(moments)
        sums = np.r_[0.0, np.cumsum(moments)]
        before = np.searchsorted(moments, times, side="right")
        return np.asarray(before * times - sums[before])

    started = clock([attempt.started for attempt in attempts])
    finished = clock([attempt.finished for attempt in attempts])
    return seconds_since_start(started) - seconds_since_start(finished)


def sizes(history: History) -> Figure | None:
    """Return the results of each refit, or the trials of each batch, and the size of the dictionary
    after each refit."""
    batches, refreshes = history.batches, history.refreshes
    if history.is_asynchronous:
        counted, counts = "refit", [len(refresh.trials) for refresh in refreshes]
    else:
        counted, counts = "batch", [len(batch.picks) for batch in batches]
    if not counts:
        return None
    dictionary = [refresh.dictionary_size for refresh in refreshes]
    line: Spec = {"width": 1.5, "shape": "hvh"}
    hover = f"{counted} %{{x}}: <b>%{{y}}</b><extra></extra>"
    name = "trials in the batch" if counted == "batch" else "results in the refit"
    numbers = range(1, len(counts) + 1)
    traces = [
        scatter("lines+markers", numbers, counts, name=name, hovertemplate=hover, line=line | {"color": "--point"})
    ]
    traces[0]["marker"] = {"color": "--point", "size": 4}
    if any(dictionary):
        rounds = range(1, len(dictionary) + 1)
        traces.append(
            scatter(
                "lines",
                rounds,
                dictionary,
                name="points in the dictionary, by refit",
                yaxis="y2",
                hovertemplate="refit %{x}: <b>%{y} points</b><extra></extra>",
                line=line | {"color": "--accent"},
            )
        )
    return Figure(
        name="sizes",
        title="Batches" if counted == "batch" else "Refits",
        caption=f"{plural(len(counts), counted, 'es' if counted == 'batch' else 's')}, "
        f"{np.mean(counts):.3g} {'trials' if counted == 'batch' else 'results'} on average, at most {max(counts)}.",
        traces=traces,
        layout=layout(
            counting_axis(counted, len(counts)),
            axis(name, rangemode="tozero"),
            height=300,
            yaxis2=axis(
                "dictionary", rangemode="tozero", overlaying="y", side="right", showgrid=False, tickmode="auto"
            ),
            showlegend=True,
        ),
        is_wide=True,
    )


def batch_table(history: History) -> dict[str, Any] | None:
    """Return one row for each batch, the newest last: its size, why it ended, the width, what the
    next refit kept, and the share of the workers' time that was lost to waiting until the next
    batch. None in asynchronous mode, which does not wait."""
    batches = history.batches
    if history.is_asynchronous or not batches:
        return None
    clock = CampaignClock.of(history)
    end = history.sessions[-1].ended if history.sessions else batches[-1].time
    edges = clock([*(batch.time for batch in batches), end])
    capacity = np.diff(capacity_seconds(history, clock, edges))
    busy = np.diff(busy_seconds(history.attempts, clock, edges)) if history.attempts else np.zeros(len(batches))
    waiting = np.clip(1.0 - np.divide(busy, capacity, out=np.ones_like(busy), where=capacity > 0), 0.0, 1.0)
    refreshed = {refresh.round: refresh for refresh in history.refreshes}
    rows = []
    for index, batch in enumerate(batches):
        width = next((pick.width for pick in batch.picks if pick.width is not None), None)
        refresh = refreshed.get(batch.round + 1)
        dimension = None if refresh is None else refresh.record.get("effective_dimension")
        rows.append(
            [
                index + 1,
                len(batch.picks),
                batch.reason,
                None if width is None else rounded(width, 4),
                refresh.dictionary_size if refresh is not None and refresh.dictionary_size else None,
                None if dimension is None else rounded(float(dimension), 4),
                f"{waiting[index]:.0%}",
            ]
        )
    names = ("batch", "trials", "why it ended", "width", "dictionary", "effective dimension", "time lost to waiting")
    kinds = ("number", "number", "text", "number", "number", "number", "number")
    kept = [index for index in range(len(names)) if any(row[index] is not None for row in rows)]
    return {
        "columns": [{"name": names[index], "kind": kinds[index]} for index in kept],
        "rows": [[row[index] for index in kept] for row in rows[-_MOST_LISTED:]],
    }


def model_facts(history: History) -> list[tuple[str, str, str]]:
    """Return facts about the fitted model; empty for strategies that do not fit one."""
    records = (refresh.record.get("model") for refresh in reversed(history.refreshes))
    record = next(filter(None, records), None)
    if record is None:
        return []
    names = [name for name, kind in history.settings.space.items() if not isinstance(kind, Constant)]
    scales = round_values(map(float, record["lengthscales"]), 3)
    labels = names if len(names) == len(scales) else [f"parameter {number}" for number in range(1, len(scales) + 1)]
    by_relevance = sorted(zip(labels, scales, strict=True), key=lambda pair: pair[1] or 0.0)
    facts = [("lengthscales", ", ".join(f"{name} {scale}" for name, scale in by_relevance), "the most relevant first")]
    if "noise" in record:
        facts.append(("noise", f"{float(record['noise']):.3g}", "share of the variance of the scores"))
    return facts
