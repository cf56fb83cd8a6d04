"""Curves: each equals a plain recomputation, and plotly accepts each picture."""

import json
import math
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.goals import ConstraintGoal
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.pictures import figures
from bbkb.orchestrator.report.progress import (
    Course,
    batch_sizes,
    best_so_far,
    cumulative_regret,
    dictionary_sizes,
    regret_gaps,
    simple_regret,
)
from tests.examples import examples
from tests.histories import history_of
from tests.orchestrator.quick import tune_here
from tests.orchestrator.synthetic_log import OPTIMUM, SyntheticLog
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
    for figure in figures(log.history()):
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
    assert "1 outlying value lies outside" in figure.caption
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
    assert f"{len(history.succeeded) - len(feasible)} outlying values lie outside" in figure.caption
    course = Course(history)
    assert course.visible == (low, high)  # the range on the live page
    assert course.caption == figure.caption
    assert "a cross one that breaks a constraint" in figure.caption


def test_best_so_far_without_a_feasible_result_says_that_it_has_no_line(tmp_path: Path) -> None:
    history = constrained(tmp_path, most=-1.0)
    figure = present(best_so_far(history))
    assert "there is no line of the best value so far, because none satisfies all constraints" in figure.caption
    assert "best so far" not in [trace["name"] for trace in figure.traces]


def test_hover_text_is_escaped() -> None:
    history = SyntheticLog(failure_share=0).history()
    figure = present(best_so_far(history))
    texts = figure.traces[0]["text"]
    assert any("<b>gelu</b>" in unescape(text) for text in texts)
    assert not any("<b>" in text for text in texts)


@given(LOGS)
@settings(max_examples=examples(15), deadline=None)
def test_regret_is_recomputed_from_the_noise_free_values(log: SyntheticLog) -> None:
    history = log.history()
    best = OPTIMUM if history.is_maximized else 1 - OPTIMUM
    gaps = [abs(best - row.metrics["noise_free"]) for row in history.succeeded]
    assert regret_gaps(history) == pytest.approx(gaps)
    simple, cumulative = simple_regret(history), cumulative_regret(history)
    if not gaps:
        assert simple is cumulative is None
        return
    assert simple is not None
    assert cumulative is not None
    assert simple.traces[0]["y"] == pytest.approx([min(gaps[: i + 1]) for i in range(len(gaps))], rel=1e-5)
    assert cumulative.traces[0]["y"] == pytest.approx([sum(gaps[: i + 1]) for i in range(len(gaps))], rel=1e-5)


def test_regret_counts_feasible_results_only() -> None:
    history = SyntheticLog(failure_share=0).history()
    middle = float(np.median([row.metrics["noise_free"] for row in history.succeeded]))
    goals = replace(history.goals, constraints=(ConstraintGoal(metric="noise_free", at_most=middle),))
    history.campaign = replace(history.campaign, rules=replace(history.campaign.rules, goals=goals))
    for row in history.succeeded:
        row.is_feasible = row.metrics["noise_free"] <= middle
    gaps = [OPTIMUM - row.metrics["noise_free"] if row.is_feasible else math.inf for row in history.succeeded]
    first = next(place for place, gap in enumerate(gaps) if math.isfinite(gap))
    assert 0 < sum(map(math.isinf, gaps)) < len(gaps)
    simple = present(simple_regret(history))
    cumulative = present(cumulative_regret(history))
    assert simple.traces[0]["y"][:first] == [None] * first
    running = np.minimum.accumulate(gaps)
    assert simple.traces[0]["y"][first:] == pytest.approx(list(running[first:]), rel=1e-5)
    assert cumulative.traces[0]["y"][-1] == pytest.approx(sum(filter(math.isfinite, gaps)), rel=1e-5)
    assert "Only results that satisfy all constraints count" in simple.caption
    for row in history.succeeded:
        row.is_feasible = False
    assert simple_regret(history) is cumulative_regret(history) is None


def test_regret_needs_a_known_optimum() -> None:
    history = SyntheticLog(has_optimum=False).history()
    assert simple_regret(history) is None
    assert cumulative_regret(history) is None


def test_regret_caption_mentions_the_evaluated_optimum() -> None:
    history = SyntheticLog(failure_share=0).history()
    history.succeeded[4].metrics = {"noise_free": OPTIMUM}
    figure = present(simple_regret(history))
    assert "evaluated as number 5" in figure.caption
    assert figure.traces[0]["y"][3] is not None
    assert set(figure.traces[0]["y"][4:]) == {None}


@pytest.mark.parametrize("trials", [30, 8000])
def test_batches_and_dictionary_show_every_round(trials: int) -> None:
    history = SyntheticLog(trials=trials, failure_share=0).history()
    batches = present(batch_sizes(history))
    dictionary = present(dictionary_sizes(history))
    assert sum(batches.traces[0]["y"]) == trials
    assert dictionary.traces[0]["y"] == [refresh.dictionary_size for refresh in history.refreshes]
    assert (batches.traces[0]["type"] == "bar") == (len(history.batches) <= 60)
