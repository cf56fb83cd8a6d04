"""Curves: each equals a plain recomputation, and plotly accepts each picture."""

import json
from html import unescape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.internals import batch_table, sizes
from bbkb.orchestrator.report.progress import best_so_far
from bbkb.orchestrator.report.snapshot import figures_of
from tests.examples import examples
from tests.histories import history_of
from tests.orchestrator.quick import tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

LOGS = st.builds(
    SyntheticLog,
    trials=st.integers(1, 40),
    sessions=st.integers(1, 3),
    direction=st.sampled_from(["maximize", "minimize"]),
    seed=st.integers(0, 99),
)


@given(LOGS)
@settings(max_examples=examples(15), deadline=None)
def test_plotly_knows_every_property_of_every_picture(log: SyntheticLog) -> None:
    for figure in figures_of(log.history()):
        spec = json.loads(json.dumps(figure.spec, allow_nan=False))
        for trace in spec["data"]:
            _resolve_colors(trace)
        _resolve_colors(spec["layout"])
        go.Figure(spec)  # raises on an unknown property or a value out of its domain


def _resolve_colors(node: object) -> None:
    """Replace CSS variables by colors, as the page's script does."""
    if isinstance(node, list):
        for item in node:
            _resolve_colors(item)
    if isinstance(node, dict):
        for key, value in list(node.items()):
            if key == "colorscale":
                node[key] = [[position, "#123456"] for position, _ in value]
            elif key.endswith("color") and isinstance(value, str):
                assert value.startswith("--")
                node[key] = "#123456"
            else:
                _resolve_colors(value)


@given(LOGS)
@settings(max_examples=examples(25), deadline=None)
def test_best_line_is_the_running_best_of_the_points(log: SyntheticLog) -> None:
    history = log.history()
    figure = best_so_far(history)
    if figure is None:
        assert not history.succeeded
        return
    points, line = figure.traces
    assert points["y"] == pytest.approx([row.value for row in history.succeeded], rel=1e-5)
    choose = max if history.is_maximized else min
    running = [choose(points["y"][: i + 1]) for i in range(len(points["y"]))]
    stepped = [line["y"][np.searchsorted(line["x"][:-1], i + 1, side="right") - 1] for i in range(len(running))]
    assert stepped == running
    assert line["x"][-1] == len(running)


def test_best_so_far_is_not_flattened_by_a_diverged_trial_and_mentions_it() -> None:
    history = SyntheticLog(direction="minimize", failure_share=0).history()
    history.trials[3].value = 1e9
    figure = present(best_so_far(history))
    assert figure.layout["yaxis"]["range"][1] < 10
    assert "1 outlier outside" in figure.caption
    assert history.best is not None
    assert figure.layout["yaxis"]["range"][0] <= history.best.value


def constrained(folder: Path, most: float) -> History:
    """Return a campaign whose results below x = 0.5 have values about 100, the others 0 to 1."""

    def value(x: float) -> dict[str, float]:
        return {"value": 100.0 + x if x < 0.5 else x, "memory": x}

    goal = {"metric": "value", "direction": "minimize"}
    limit = {"metric": "memory", "at_most": most}
    result = tune_here(folder, value, evaluations=40, objectives=[goal], constraints=[limit])
    return history_of(result)


def test_best_line_is_visible_if_infeasible_values_are_better(tmp_path: Path) -> None:
    history = constrained(tmp_path, most=0.499)
    assert history.best is not None
    assert history.best.value is not None
    figure = present(best_so_far(history))
    low, high = figure.layout["yaxis"]["range"]
    feasible = [row.value or 0.0 for row in history.succeeded if row.is_feasible]
    assert len(feasible) > 5
    assert low <= min(feasible) <= max(feasible) <= high
    assert high - low <= 1.1 * 2 * (high - min(feasible))
    assert f"{len(history.succeeded) - len(feasible)} outliers outside" in figure.caption


def test_best_so_far_without_a_feasible_result_has_no_line(tmp_path: Path) -> None:
    history = constrained(tmp_path, most=-1.0)
    figure = present(best_so_far(history))
    assert "best so far" not in [trace["name"] for trace in figure.traces]


def test_hover_text_is_escaped() -> None:
    history = SyntheticLog(failure_share=0).history()
    figure = present(best_so_far(history))
    texts = figure.traces[0]["text"]
    assert any("<b>gelu</b>" in unescape(text) for text in texts)
    assert not any("<b>" in text for text in texts)


@pytest.mark.parametrize("trials", [30, 3000])
def test_internals_show_every_batch_and_dictionary_and_the_time_lost_to_waiting(trials: int) -> None:
    history = SyntheticLog(trials=trials, failure_share=0).history()
    figure = present(sizes(history))
    assert sum(figure.traces[0]["y"]) == trials
    assert figure.traces[1]["y"] == [refresh.dictionary_size for refresh in history.refreshes]
    table = present(batch_table(history))
    names = [column["name"] for column in table["columns"]]
    column = {name: [row[index] for row in table["rows"]] for index, name in enumerate(names)}
    newest = history.batches[-len(table["rows"]) :]
    assert column["trials"] == [len(batch.picks) for batch in newest]
    assert column["why it ended"] == [batch.reason for batch in newest]
    assert all(0 <= int(share.rstrip("%")) <= 100 for share in column["time lost to waiting"])
