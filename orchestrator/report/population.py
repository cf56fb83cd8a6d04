"""The tree of a population: which trial continued from which checkpoint."""

from orchestrator.history.ancestry import depths, schedule
from orchestrator.history.fold import History
from orchestrator.history.rows import TrialRow
from orchestrator.report.figure import Figure, Spec, axis, label, layout, parameters_label, short

_MOST_SHOWN = 400  # the largest number of lanes that can be distinguished


def population_tree(history: History) -> Figure | None:
    """Return one lane for each trial, from its first step to its last; None without copies."""
    trials = depths(history)
    if not any(trials.values()):
        return None
    lanes = {trial: lane for lane, trial in enumerate(list(trials)[:_MOST_SHOWN])}
    best = history.best
    parts = [] if best is None else schedule(history, best.trial)
    ends = {part.row.trial: part.end for part in parts}
    lines = (line for trial in lanes for line in _lane(history.trials[trial], lanes, ends))
    names = ["· " * trials[trial] + str(trial) for trial in lanes]
    return Figure(
        name="population",
        title="Population",
        caption="One line for each trial, from the step of the checkpoint that it copied to its last step. A dotted "
        "line leads to it from its parent. The thick line is the training of the best member, with all its ancestors.",
        traces=list(lines),
        layout=layout(
            axis("step", rangemode="tozero"),
            axis("trial", tickvals=list(lanes.values()), ticktext=names, autorange="reversed"),
            height=min(1200, 140 + 18 * len(lanes)),
        ),
    )


def _lane(row: TrialRow, lanes: dict[int, int], ends: dict[int, int]) -> list[Spec]:
    """Return the line of a trial and the one from its parent.

    `ends`: the trials that led to the best member → the last step of the part that did, which is
    thick.
    """
    copied = row.pick.copied
    start = 0 if copied is None else copied.step
    lane = lanes[row.trial]
    value = "" if row.value is None else f", value {short(row.value)}"
    text = f"trial {row.trial}, {row.status}{label(value)}<br>{parameters_label(row.parameters.items())}"
    end = row.training.last_step
    lines = [_line((start, end), (lane, lane), text, width=1.5)]
    best_end = ends.get(row.trial)
    if best_end is not None:
        lines.append(_line((start, best_end), (lane, lane), text, width=4, color="--accent"))
    if copied is not None and copied.trial in lanes:
        color = "--muted" if best_end is None else "--accent"
        between = (lanes[copied.trial], lane)
        lines.append(_line((start, start), between, label(copied), width=1, color=color, dash="dot"))
    return lines


def _line(
    steps: tuple[int, int], lanes: tuple[int, int], text: str, color: str = "--muted", **look: object
) -> Spec:  # fmt: skip
    hover = {"text": [text, text], "hovertemplate": "step %{x}, %{text}<extra></extra>"}
    return {"type": "scatter", "mode": "lines", "x": steps, "y": lanes, "line": {"color": color, **look}, **hover}
