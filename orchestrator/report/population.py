"""The tree of a population: which trial continued from which checkpoint."""

from orchestrator.history.ancestry import Segment, depths, schedule
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
    whole = [Segment(row, _start(row), row.training.last_step) for row in history.trials]
    best = [] if history.best is None else schedule(history, history.best.trial)
    lines = [line for part in whole for line in _lines(part, lanes, "--muted", width=1.5)]
    lines += [line for part in best for line in _lines(part, lanes, "--accent", width=4)]
    names = ["· " * trials[trial] + str(trial) for trial in lanes]
    return Figure(
        name="population",
        title="Population",
        caption="One line for each trial, from the step of the checkpoint that it copied to its last step. A dotted "
        "line leads to it from its parent. The thick line is the training of the best member, with all its ancestors.",
        traces=lines,
        layout=layout(
            axis("step", rangemode="tozero"),
            axis("trial", tickvals=list(lanes.values()), ticktext=names, autorange="reversed"),
            height=min(1200, 140 + 18 * len(lanes)),
        ),
    )


def _start(row: TrialRow) -> int:
    return 0 if row.pick.copied is None else row.pick.copied.step


def _lines(part: Segment, lanes: dict[int, int], color: str, width: float) -> list[Spec]:
    """Return the line of a part of a training, and the dotted one from its parent."""
    row = part.row
    copied = row.pick.copied
    lane = lanes.get(row.trial)
    if lane is None:
        return []
    value = "" if row.value is None else f", value {short(row.value)}"
    text = f"trial {row.trial}, {row.status}{label(value)}<br>{parameters_label(row.parameters.items())}"
    lines = [_line((part.start, part.end), (lane, lane), text, color=color, width=width)]
    if copied is not None and copied.trial in lanes:
        between = (lanes[copied.trial], lane)
        lines.append(_line((part.start, part.start), between, label(copied), color=color, width=1, dash="dot"))
    return lines


def _line(steps: tuple[int, int], lanes: tuple[int, int], text: str, **look: object) -> Spec:
    hover = {"text": [text, text], "hovertemplate": "step %{x}, %{text}<extra></extra>"}
    return {"type": "scatter", "mode": "lines", "x": steps, "y": lanes, "line": look, **hover}
