"""Figures of several objectives and of constraints: the front, its hypervolume, and the share of
feasible results."""

from itertools import combinations

import numpy as np

from bbkb.orchestrator.campaign.front import Front
from bbkb.orchestrator.campaign.hypervolume import hypervolume
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.rows import TrialRow
from bbkb.orchestrator.report.figure import (
    MANY_POINTS,
    Figure,
    Spec,
    axis,
    label,
    layout,
    parameters_label,
    round_values,
    scatter,
    sentences,
)
from bbkb.orchestrator.report.progress import INFEASIBLE, step_figure
from bbkb.orchestrator.wording import plural, rounded

_MOST_PAIRS = 3  # the largest number of figures of the front
_MOST_VOLUMES = 200  # the largest number of hypervolumes in a figure


def fronts(history: History) -> list[Figure]:
    """Return a figure of the results for each pair of objectives; none with a single objective."""
    pairs = list(combinations(range(len(history.goals.objectives)), 2))[:_MOST_PAIRS]
    return [_front(history, pair) for pair in pairs if history.succeeded]


def _front(history: History, pair: tuple[int, int]) -> Figure:
    goals = history.goals
    members = {member.trial for member in history.campaign.results.front.members}
    rows = history.succeeded[-MANY_POINTS:]
    dominated = [row for row in rows if row.trial not in members]
    inside = [row for row in dominated if row.is_feasible is not False]
    outside = [row for row in dominated if row.is_feasible is False]
    traces = [_points(history, inside, pair, "evaluations", {"color": "--point", "size": 6, "opacity": 0.6})]
    if outside:
        traces.append(_points(history, outside, pair, "infeasible", INFEASIBLE))
    on_front = sorted((history.trials[trial] for trial in members), key=lambda row: _values(history, row)[pair[0]])
    traces.append(_points(history, on_front, pair, "front", {"color": "--accent", "size": 9}))
    if len(goals.objectives) == 2:
        traces[-1] |= {"mode": "lines+markers", "line": {"color": "--accent", "width": 1.5, "dash": "dot"}}
    first, second = (goals.objectives[number] for number in pair)
    feasible = " and that satisfy all constraints" if goals.constraints else ""
    is_cut = len(history.succeeded) > len(rows)
    caption = sentences(
        f"{plural(len(members), 'result')} that no other result dominates{feasible}.",
        is_cut and f"Only the newest {len(rows):,} of the other results are drawn.",
    )
    return Figure(
        name="front" if pair == (0, 1) else f"front-{pair[0]}-{pair[1]}",
        title=f"Front: {first.metric} and {second.metric}",
        caption=caption,
        traces=traces,
        layout=layout(axis(label(first)), axis(label(second)), height=400, showlegend=True),
    )


def _values(history: History, row: TrialRow) -> tuple[float, ...]:
    return history.goals.values(row.value or 0.0, row.metrics)


def _points(history: History, rows: list[TrialRow], pair: tuple[int, int], name: str, marker: Spec) -> Spec:
    values = [_values(history, row) for row in rows]
    return scatter(
        "markers",
        round_values(point[pair[0]] for point in values),
        (point[pair[1]] for point in values),
        name=name,
        text=[f"trial {row.trial}<br>{parameters_label(row.parameters.items())}" for row in rows],
        hovertemplate="<b>%{x}, %{y}</b><br>%{text}<extra></extra>",
        marker=marker,
    )


def hypervolume_course(history: History) -> Figure | None:
    """Return the hypervolume of the front after each evaluation; None if there is a single
    objective."""
    goals = history.goals
    last = history.campaign.results.front
    if len(goals.objectives) < 2 or not last.members:
        return None
    changes = _front_changes(history)
    shown = np.unique(np.linspace(0, len(changes) - 1, _MOST_VOLUMES).astype(int))
    reference = last.reference(goals)
    volumes = np.zeros(len(history.succeeded))
    for first, front in (changes[change] for change in shown.tolist()):
        volumes[first:] = hypervolume([member.rewards for member in front.members], reference)
    pairs = zip(goals.objectives, reference, strict=True)
    measured = ", ".join(f"{objective.metric} {rounded(objective.sign * reward, 4)}" for objective, reward in pairs)
    caption = f"The volume between the front and the reference point: {measured}."
    return step_figure("hypervolume", "Hypervolume", caption, volumes, axis("hypervolume", rangemode="tozero"))


def _front_changes(history: History) -> list[tuple[int, Front]]:
    """Return each change of the front: the index of its result, and the new front."""
    front = Front()
    changes = []
    for index, row in enumerate(history.succeeded):
        before = front.members
        front = front.after(history.goals, row.trial, (row.value or 0.0, row.metrics), {})
        if front.members is not before and front.members != before:
            changes.append((index, front))
    return changes


def feasible_share(history: History) -> Figure | None:
    """Return the share of results so far that satisfy all constraints; None if there are no
    constraints."""
    if not history.goals.constraints or not history.succeeded:
        return None
    feasible = [row.is_feasible is not False for row in history.succeeded]
    shares = np.cumsum(feasible) / np.arange(1, len(feasible) + 1)
    caption = f"The share of all results so far that satisfy {' and '.join(map(str, history.goals.constraints))}."
    return step_figure("feasible", "Feasible results", caption, shares, axis("share", range=[0, 1.02]))
