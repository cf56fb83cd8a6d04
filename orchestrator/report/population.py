"""The tree of a population: which trial continued from which checkpoint."""

from orchestrator.history.ancestry import Descendant, is_population, schedule, tree
from orchestrator.history.fold import History
from orchestrator.report.figure import Figure, Spec, axis, label, layout, parameters_label, short

_MOST_SHOWN = 400  # the largest number of lanes that can be distinguished


def population_tree(history: History) -> Figure | None:
    """Return one lane for each trial, from its first step to its last; None without copies."""
    if not is_population(history):
        return None
    shown = tree(history)[:_MOST_SHOWN]
    best = history.best
    ancestors = {} if best is None else {part.trial: part.end for part in schedule(history, best.trial)}
    lanes = {descendant.row.trial: lane for lane, descendant in enumerate(shown)}
    traces = [trace for descendant in shown for trace in _lane(descendant, lanes, ancestors)]
    names = [f"{'· ' * descendant.depth}{descendant.row.trial}" for descendant in shown]
    return Figure(
        name="population",
        title="Population",
        caption="One line for each trial, from the step of the checkpoint that it copied to its last step. A dotted "
        "line leads to it from its parent. The thick line is the training of the best member, with all its ancestors.",
        traces=traces,
        layout=layout(
            axis("step", rangemode="tozero"),
            axis("trial", tickvals=list(range(len(shown))), ticktext=names, autorange="reversed"),
            height=min(1200, 140 + 18 * len(shown)),
        ),
    )


def _lane(descendant: Descendant, lanes: dict[int, int], ancestors: dict[int, int]) -> list[Spec]:
    """Return the lines of a trial and from its parent; the part that led to the best member is
    thick."""
    row = descendant.row
    copied = row.pick.copied
    start = 0 if copied is None else copied.step
    lane = lanes[row.trial]
    value = "" if row.value is None else f", value {short(row.value)}"
    text = f"trial {row.trial}, {row.status}{label(value)}<br>{parameters_label(row.parameters.items())}"
    lines = [_line([start, row.training.last_step], [lane, lane], text, {"width": 1.5, "color": "--muted"})]
    if row.trial in ancestors:
        lines.append(_line([start, ancestors[row.trial]], [lane, lane], text, {"width": 4, "color": "--accent"}))
    if copied is not None and copied.trial in lanes:
        is_best = row.trial in ancestors
        color = "--accent" if is_best else "--muted"
        ends = [lanes[copied.trial], lane]
        lines.append(_line([start, start], ends, label(copied), {"width": 1, "color": color, "dash": "dot"}))
    return lines


def _line(steps: list[int], lanes: list[int], text: str, line: Spec) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": steps,
        "y": lanes,
        "line": line,
        "text": [text, text],
        "hovertemplate": "step %{x}, %{text}<extra></extra>",
    }
