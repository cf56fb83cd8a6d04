"""The tree of a population: which trial continued from which checkpoint."""

from collections.abc import Iterable, Mapping

from bbkb.orchestrator.history.ancestry import Segment, depths, own_segment, schedule
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.figure import Figure, Spec, axis, label, layout, parameters_label, short

_MOST_SHOWN = 400  # the largest number of lanes that can be distinguished


def population_tree(history: History) -> Figure | None:
    """Return one lane for each trial, from its first step to its last; None without copies."""
    trials = depths(history)
    if not any(trials.values()):
        return None
    lanes = {trial: lane for lane, trial in enumerate(list(trials)[:_MOST_SHOWN])}
    whole = [own_segment(row) for row in history.trials]
    best = [] if history.best is None else schedule(history, history.best.trial)
    names = ["· " * trials[trial] + str(trial) for trial in lanes]
    return Figure(
        name="population",
        title="Population",
        caption="One line for each trial, from the step of the checkpoint that it copied to its last step. A vertical "
        "line leads to it from its parent. The thick line is the training of the best member, with all its ancestors.",
        traces=[_tree(whole, lanes, color="--muted", width=1.5), _tree(best, lanes, color="--accent", width=4)],
        layout=layout(
            axis("step", rangemode="tozero"),
            axis("trial", tickvals=list(lanes.values()), ticktext=names, autorange="reversed"),
            height=min(1200, 140 + 18 * len(lanes)),
        ),
    )


def _tree(parts: Iterable[Segment], lanes: Mapping[int, int], **look: object) -> Spec:
    """Return the lines of parts of trainings; each begins in the lane of its parent."""
    steps: list[int | None] = []
    heights: list[int | None] = []
    texts: list[str] = []
    for row, start, end in (part for part in parts if part.row.trial in lanes):
        lane = lanes[row.trial]
        copied = row.pick.copied
        steps += [start, start, end, None]
        heights += [lane if copied is None else lanes.get(copied.trial, lane), lane, lane, None]
        value = "" if row.value is None else f", value {short(row.value)}"
        origin = "" if copied is None else f"{label(copied)}<br>"
        text = f"trial {row.trial}, {row.status}{label(value)}<br>{origin}"
        texts += [text + parameters_label(row.parameters.items())] * 4
    hover = {"text": texts, "hovertemplate": "step %{x}, %{text}<extra></extra>"}
    return {"type": "scatter", "mode": "lines", "x": steps, "y": heights, "line": look, **hover}
