"""The algorithm at work, for those who look inside: batches or refits, dictionary, width and waiting."""

from typing import Any

import numpy as np

from bbkb.objectives.parameters import Constant
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import Figure, Spec, axis, counting_axis, layout, round_values, scatter
from bbkb.orchestrator.report.timeline import CampaignClock, busy_seconds, capacity_seconds
from bbkb.orchestrator.wording import plural, rounded

_MOST_LISTED = 300  # batches in the table: the newest


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
