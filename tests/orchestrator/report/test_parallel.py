"""Parallel coordinates: the kind of every axis, and the positions of values on it."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.parameters import Choice, Ordered, Range
from bbkb.orchestrator.report.parallel import parallel_coordinates, parameter_axis
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

FINITE = st.floats(-1e12, 1e12) | st.integers(-(10**9), 10**9)


@given(st.lists(FINITE | st.none(), min_size=1), st.booleans())
@settings(max_examples=100, deadline=None)
def test_parameter_axis_contains_all_values_and_ticks(values: list[float | None], log: bool) -> None:
    if log:
        values = [None if value is None else abs(value) + 1e-6 for value in values]
    axis = parameter_axis("x", [1.0, *values], Range(1e-6, 2e12, log=True) if log else None)
    low, high = axis.range
    slack = 1e-5 * max(abs(low), abs(high))
    assert all(low - slack <= position <= high + slack for position in axis.positions if position is not None)
    assert all(low - slack <= tick <= high + slack for tick in axis.ticks)
    assert low < high
    assert ("none" in axis.ticks.values()) == (None in values)


@given(st.floats(1e-12, 1e12), st.floats(1e-12, 1e12))
@settings(max_examples=60, deadline=None)
def test_log_axis_has_positions_of_logarithms_and_labels_of_values(a: float, b: float) -> None:
    axis = parameter_axis("rate", [a, b], Range(min(a, b), 2 * max(a, b), log=True))
    assert axis.positions == pytest.approx([math.log10(a), math.log10(b)], abs=1e-4)
    for position, text in axis.ticks.items():
        assert math.log10(float(text)) == pytest.approx(position, abs=0.003)


def test_parameter_axis_has_the_bounds_of_the_space() -> None:
    axis = parameter_axis("dropout", [0.2, 0.3], Range(0.0, 0.5))
    assert axis.range == (0.0, 0.5)


def test_parameter_axis_has_a_step_for_each_level_of_a_custom_parameter() -> None:
    powers = SimpleNamespace(levels=(4, 8, 16, 32))  # a kind of parameter that is added later
    axis = parameter_axis("width", [32, 8], cast(Any, powers))
    assert axis.is_stepped
    assert axis.positions == [3.0, 1.0]
    assert list(axis.ticks.values()) == ["4", "8", "16", "32"]


def test_parameter_axis_separates_categories_booleans_and_inactive_values() -> None:
    axis = parameter_axis("activation", ["tanh", None, "relu", True])
    assert len(set(axis.positions)) == 4
    assert sorted(axis.ticks.values()) == ["True", "none", "relu", "tanh"]


@pytest.mark.parametrize("kind", [Ordered, Choice])
def test_parameter_axis_of_ordered_choices_is_a_scale_of_steps(kind: type[Ordered] | type[Choice]) -> None:
    axis = parameter_axis("rate", [0.1, 1e-6, 1e-3], kind((1e-6, 1e-3, 0.1)))
    assert axis.positions == [2.0, 0.0, 1.0]
    assert list(axis.ticks.values()) == ["1e-06", "0.001", "0.1"]


def test_parameter_axis_of_hundreds_of_categories_has_readable_labels() -> None:
    axis = parameter_axis("name", [f"c{i}" for i in range(500)])
    assert len(axis.ticks) <= 24
    assert len(set(axis.positions)) == 500


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_parallel_coordinates_draw_the_best_line_last_in_the_strongest_color(direction: str) -> None:
    history = SyntheticLog(direction=direction).history()
    figure = present(parallel_coordinates(history))
    line = figure.traces[0]["line"]
    best = present(history.best)
    assert line["color"][-1] == pytest.approx(best.value, rel=1e-5)
    assert line["cmin" if line["reversescale"] else "cmax"] == best.value
    labels = [dimension["label"] for dimension in figure.traces[0]["dimensions"]]
    assert labels == ["learning_rate", "batch_size", "dropout", "activation", "value"]
    assert len(figure.traces[0]["dimensions"][0]["values"]) == len(history.succeeded)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_parallel_coordinates_show_infeasible_results_in_the_color_of_the_worst(direction: str) -> None:
    history = SyntheticLog(direction=direction, failure_share=0.0).history()
    better = sorted(history.succeeded, key=history.worth)[-20:]
    for row in better:
        row.is_feasible = False
    figure = present(parallel_coordinates(history))
    line, feasible = (
        figure.traces[0]["line"],
        [row.value or 0.0 for row in history.succeeded if row.is_feasible is not False],
    )
    worst, best = (line["cmin"], line["cmax"]) if direction == "maximize" else (line["cmax"], line["cmin"])
    assert best == (max(feasible) if direction == "maximize" else min(feasible))
    assert line["color"][:20] == pytest.approx([worst] * 20, rel=1e-5)
    assert line["color"][-1] == pytest.approx(best, rel=1e-5)
    assert "Infeasible trials have the color of the worst value." in figure.caption


def test_parallel_coordinates_without_feasible_results_are_colored_by_values() -> None:
    history = SyntheticLog(failure_share=0.0).history()
    for row in history.succeeded:
        row.is_feasible = False
    figure = present(parallel_coordinates(history))
    line = figure.traces[0]["line"]
    assert line["color"] == pytest.approx(sorted(row.value or 0.0 for row in history.succeeded), rel=1e-5)
    assert line["cmin"] < line["cmax"] == max(row.value or 0.0 for row in history.succeeded)


def test_parallel_coordinates_need_a_successful_trial() -> None:
    assert parallel_coordinates(SyntheticLog(trials=5, failure_share=1.0).history()) is None


def test_log_axis_may_cover_all_positive_floats() -> None:
    axis = parameter_axis("x", [5e-324, 1.0, 1.7e308], Range(5e-324, 1.7e308, log=True))
    assert len(axis.ticks) >= 2
    assert all(axis.range[0] <= place <= axis.range[1] for place in axis.ticks)
