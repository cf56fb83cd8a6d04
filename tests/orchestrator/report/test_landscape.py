"""The value as a function of the parameters: the model's predictions and importance, slices through
the best configuration, and the axes of parallel coordinates."""

import dataclasses
import math
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range, Space
from bbkb.orchestrator.campaign.state import Totals
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.report.landscape import (
    MOST_RESULTS,
    Surrogate,
    fit_surrogate,
    landscape,
    parallel_coordinates,
    parameter_axis,
    slices,
)
from tests.examples import examples
from tests.orchestrator.runs import history_of, tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

FINITE = st.floats(-1e12, 1e12) | st.integers(-(10**9), 10**9)


@pytest.fixture(scope="module")
def history() -> History:
    return SyntheticLog(trials=150, failure_share=0.0).history()


@pytest.fixture(scope="module")
def surrogate(history: History) -> Surrogate:
    return present(fit_surrogate(history))


def test_importance_ranks_the_parameters_as_the_objective_does(surrogate: Surrogate) -> None:
    # the made-up value falls with the square of the learning rate's and the dropout's miss; the
    # batch size has no part
    names = [axis.name for axis in surrogate.axes]
    shares = dict(zip(names, surrogate.total, strict=True))
    assert max(shares, key=lambda name: shares[name]) == "learning_rate"
    assert min(shares, key=lambda name: shares[name]) == "batch_size"
    assert shares["batch_size"] < 0.02
    assert (surrogate.alone <= surrogate.total).all()
    assert surrogate.alone.sum() <= 1.1  # with the error of the estimate


def test_importance_of_conditional_parameters_is_over_existing_configurations(tmp_path: Path) -> None:
    space: Space = {
        "model": Choice(("a", "b")),
        "x": Range(0.0, 1.0, when={"model": "a"}),
        "y": Range(0.0, 1.0, when={"model": "b"}),
    }
    result = tune_here(tmp_path, lambda model, x=0.0, y=0.0: x or 0.0, space, evaluations=80)
    surrogate = present(fit_surrogate(history_of(result)))
    # with M = 1 for model a: Var(Mx) = 5/48, Var(E[Mx | M]) = 1/16, Var(E[Mx | x]) = 1/48
    assert surrogate.alone == pytest.approx([0.6, 0.2, 0.0], abs=0.1)
    assert surrogate.total == pytest.approx([0.8, 0.4, 0.0], abs=0.1)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_surrogate_predicts_the_noise_free_value_within_its_band(direction: str) -> None:
    history = SyntheticLog(trials=150, failure_share=0.0, direction=direction).history()
    surrogate = present(fit_surrogate(history))
    truth = np.array([row.metrics["noise_free"] for row in history.succeeded])
    assert np.abs(surrogate.mean - truth).mean() < 0.02
    assert np.mean(np.abs(surrogate.mean - truth) <= 2 * surrogate.deviation + 0.02) > 0.8


def test_surrogate_resolves_the_space_if_most_results_are_near_the_optimum() -> None:
    history = SyntheticLog(trials=150, failure_share=0.0).history()
    for place, row in enumerate(history.succeeded[40:]):
        row.value = 0.9 - 1e-6 * place
        same = {"learning_rate": 0.01, "batch_size": 64, "activation": "relu"}
        row.pick = dataclasses.replace(row.pick, parameters=same | {"dropout": 0.3 + 1e-4 * place})
    surrogate = present(fit_surrogate(history))
    assert np.corrcoef(surrogate.mean[:40], surrogate.values[:40])[0, 1] > 0.9


def test_memory_of_the_surrogate_grows_linearly_with_the_levels_of_a_choice(tmp_path: Path) -> None:
    space: Space = {"level": Choice(tuple(range(4000))), "x": Range(0.0, 1.0)}
    history = history_of(tune_here(tmp_path, lambda level, x: (level % 7) + x, space, evaluations=20))
    tracemalloc.start()
    surrogate = present(fit_surrogate(history))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6  # one number for each pair of levels would take 128 MB
    assert surrogate.axes[0].positions[surrogate.best] in surrogate.lines[0][0]


def test_text_column_of_a_table_with_many_values_is_ignored(tmp_path: Path) -> None:
    table = tmp_path / "cells.csv"
    table.write_text("name,x\n" + "".join(f"cell {row % 40},{row / 200}\n" for row in range(200)))
    settings = {"candidates": {"table": str(table)}}
    result = tune_here(tmp_path, lambda name, x: float(-((x - 0.3) ** 2)), {}, settings, evaluations=60)
    surrogate = present(fit_surrogate(history_of(result)))
    assert [axis.name for axis in surrogate.axes] == ["x"]


def test_slices_have_one_panel_per_parameter_and_draw_nothing_between_choices(surrogate: Surrogate) -> None:
    choices = [place for place, is_choice in enumerate(surrogate.are_choices) if is_choice]
    assert [surrogate.axes[place].name for place in choices] == ["activation"]
    order = [*choices, *(place for place in range(4) if place not in choices)]
    picture = slices(surrogate, order, True)
    assert len({trace["xaxis"] for trace in picture.traces}) == 4
    panel = [trace for trace in picture.traces if trace["xaxis"] == "x"]
    assert [trace["mode"] for trace in panel] == ["markers", "markers"]
    assert panel[1]["x"] == [0.0, 1.0, 2.0]
    assert len(panel[1]["error_y"]["array"]) == 3


def test_slices_omit_parameters_that_the_best_configuration_does_not_have(tmp_path: Path) -> None:
    def value(kernel: str, c: float, gamma: float | None = None) -> float:
        return c + (1.0 if gamma is None else gamma / 2.0)

    space: dict[str, Parameter] = {
        "kernel": Choice(("linear", "rbf")),
        "gamma": Range(0.0, 1.0, when={"kernel": "rbf"}),
        "c": Range(0.0, 1.0),
    }
    result = tune_here(tmp_path, value, space, evaluations=30)
    surrogate = present(fit_surrogate(history_of(result)))
    assert surrogate.absent == ("gamma",)
    pictures = {figure.name: figure for figure in landscape(surrogate, True)}
    assert "gamma" in pictures["importance"].traces[0]["y"]
    titles = [axis["title"]["text"] for name, axis in pictures["slices"].layout.items() if name.startswith("xaxis")]
    assert sorted(titles) == ["c", "kernel"]
    assert "The best configuration has no gamma." in pictures["slices"].caption


def test_slices_go_through_the_best_feasible_configuration() -> None:
    history = SyntheticLog(trials=60, failure_share=0.0).history()
    best = max(history.succeeded, key=history.worth)
    best.is_feasible = False
    surrogate = present(fit_surrogate(history))
    assert history.succeeded[surrogate.best] is max(history.succeeded, key=history.worth) is not best


@pytest.mark.parametrize("trials", [60, MOST_RESULTS + 300])
def test_slices_go_through_the_best_value_if_no_result_is_feasible(trials: int) -> None:
    history = SyntheticLog(trials=trials, workers=16, failure_share=0.0, direction="minimize").history()
    for row in history.succeeded:
        row.is_feasible = False
    surrogate = present(fit_surrogate(history))
    assert len(surrogate.values) <= MOST_RESULTS
    assert surrogate.values.min() == min(row.value or 0.0 for row in history.succeeded)
    assert surrogate.best == int(surrogate.values.argmin())


def test_slices_are_not_flattened_by_one_far_bad_value() -> None:
    log = SyntheticLog(trials=60, failure_share=0.0)
    history = log.history()
    history.succeeded[10].value = -1e6
    surrogate = present(fit_surrogate(history))
    figure = slices(surrogate, [0, 1], is_maximized=True)
    low, high = figure.layout["yaxis"]["range"]
    assert -10 < low < high < 10
    assert "Outliers lie outside" in figure.caption


def test_importance_caption_says_that_stopped_trials_are_left_out() -> None:
    history = SyntheticLog(trials=60, failure_share=0.0).history()
    history.campaign = dataclasses.replace(history.campaign, totals=Totals(stopped=3))
    pictures = {figure.name: figure for figure in landscape(fit_surrogate(history), True)}
    assert "model of 60 results, without 3 trials that stopped early." in pictures["importance"].caption


@given(st.lists(FINITE | st.none(), min_size=1), st.booleans())
@settings(max_examples=examples(100))
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
def test_log_axis_has_positions_of_logarithms_and_labels_of_values(a: float, b: float) -> None:
    axis = parameter_axis("rate", [a, b], Range(min(a, b), 2 * max(a, b), log=True))
    assert axis.positions == pytest.approx([math.log10(a), math.log10(b)], abs=1e-4)
    for position, text in axis.ticks.items():
        assert math.log10(float(text)) == pytest.approx(position, abs=0.003)


def test_parameter_axis_has_the_bounds_of_the_space() -> None:
    assert parameter_axis("dropout", [0.2, 0.3], Range(0.0, 0.5)).range == (0.0, 0.5)


@pytest.mark.parametrize(
    "parameter",
    [Ordered((1e-6, 1e-3, 0.1)), Choice((1e-6, 1e-3, 0.1)), SimpleNamespace(levels=(1e-6, 1e-3, 0.1))],
    ids=["ordered", "choice", "a kind that is added later"],
)
def test_parameter_axis_has_a_step_for_each_level(parameter: Any) -> None:
    axis = parameter_axis("rate", [0.1, 1e-6, 1e-3], parameter)
    assert axis.range == (-0.5, 2.5)
    assert axis.positions == [2.0, 0.0, 1.0]
    assert list(axis.ticks.values()) == ["1e-06", "0.001", "0.1"]


def test_parameter_axis_separates_categories_booleans_and_inactive_values() -> None:
    axis = parameter_axis("activation", ["tanh", None, "relu", True])
    assert len(set(axis.positions)) == 4
    assert sorted(axis.ticks.values()) == ["True", "none", "relu", "tanh"]


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


def test_figures_need_results() -> None:
    assert parallel_coordinates(SyntheticLog(trials=5, failure_share=1.0).history()) is None
    assert fit_surrogate(SyntheticLog(trials=10, failure_share=0.0).history()) is None
    assert landscape(None, True) == []


def test_log_axis_may_cover_all_positive_floats() -> None:
    axis = parameter_axis("x", [5e-324, 1.0, 1.7e308], Range(5e-324, 1.7e308, log=True))
    assert len(axis.ticks) >= 2
    assert all(axis.range[0] <= place <= axis.range[1] for place in axis.ticks)
