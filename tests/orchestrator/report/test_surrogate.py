"""The model behind the pictures of the landscape: it predicts, ranks parameters, and shows what it
was given."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from objectives.parameters import Choice, Parameter, Range
from orchestrator.api import tune
from orchestrator.campaign.state import Totals
from orchestrator.report.curves import learning_curves
from orchestrator.report.landscape import contours, landscape, slices
from orchestrator.report.parallel import parallel_coordinates
from orchestrator.report.surrogate import MOST_RESULTS, fit_surrogate
from tests.orchestrator.synthetic_log import SyntheticLog


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_importance_ranks_the_parameters_as_the_objective_does(direction: str) -> None:
    # the made-up value falls with the square of the learning rate's and the dropout's miss; the
    # batch size has no part
    surrogate = fit_surrogate(SyntheticLog(trials=150, failure_share=0.0, direction=direction).history())
    assert surrogate is not None
    shares = dict(zip([dimension.name for dimension in surrogate.dimensions], surrogate.importance(), strict=True))
    assert max(shares, key=lambda name: shares[name]) == "learning_rate"
    assert min(shares, key=lambda name: shares[name]) == "batch_size"
    assert shares["batch_size"] < 0.02


def test_the_model_predicts_the_noise_free_value_within_its_band() -> None:
    history = SyntheticLog(trials=150, failure_share=0.0).history()
    surrogate = fit_surrogate(history)
    assert surrogate is not None
    mean, deviation = surrogate.predict(surrogate.positions)
    truth = np.array([row.metrics["noise_free"] for row in history.succeeded])
    assert np.abs(mean - truth).mean() < 0.02
    assert np.mean(np.abs(mean - truth) <= 2 * deviation + 0.02) > 0.8


def test_few_results_or_equal_values_have_no_model() -> None:
    assert fit_surrogate(SyntheticLog(trials=10, failure_share=0.0).history()) is None
    assert landscape(None, True) == []


def test_a_long_campaign_is_thinned_before_the_fit_and_keeps_its_best_result() -> None:
    history = SyntheticLog(trials=MOST_RESULTS + 500, workers=16, failure_share=0.0).history()
    surrogate = fit_surrogate(history)
    assert surrogate is not None
    assert len(surrogate.values) <= MOST_RESULTS
    assert history.best is not None
    assert surrogate.values.max() == history.best.value


def test_every_picture_of_the_landscape_is_strict_json_with_one_panel_a_parameter() -> None:
    pictures = {figure.name: figure for figure in landscape(fit_surrogate(SyntheticLog().history()), True)}
    assert list(pictures) == ["importance", "slices", "contours"]
    assert sorted(pictures["importance"].traces[0]["y"]) == ["activation", "batch_size", "dropout", "learning_rate"]
    assert len({trace["xaxis"] for trace in pictures["slices"].traces}) == 4
    assert "total Sobol index" in pictures["importance"].caption


def test_learning_curves_need_reports_and_put_the_best_in_front() -> None:
    history = SyntheticLog(trials=12, failure_share=0.0).history()
    assert learning_curves(history) is None
    for row in history.trials:  # one step each is no curve
        row.reports = {1: 0.5}
        history.reporting[row.trial] = row
    assert learning_curves(history) is None
    for row in history.trials:
        row.reports.update({step: row.trial + step / 10 for step in range(1, 4)})
    figure = learning_curves(history)
    assert figure is not None
    assert history.best is not None
    assert figure.traces[-1]["name"] == f"trial {history.best.trial}"
    assert figure.traces[-1]["x"] == [1, 2, 3]
    assert len(figure.traces) == 12


def test_nothing_is_drawn_between_values_without_an_order() -> None:
    history = SyntheticLog(trials=120, failure_share=0.0).history()
    surrogate = fit_surrogate(history)
    assert surrogate is not None
    choices = [place for place, dimension in enumerate(surrogate.dimensions) if dimension.is_choice]
    assert [surrogate.dimensions[place].name for place in choices] == ["activation"]
    order = [*choices, *(place for place in range(4) if place not in choices)]
    panel = [trace for trace in slices(surrogate, order, True).traces if trace["xaxis"] == "x"]
    assert [trace["mode"] for trace in panel] == ["markers", "markers"]
    assert panel[1]["x"] == [0.0, 1.0, 2.0]
    assert len(panel[1]["error_y"]["array"]) == 3
    figure = contours(surrogate, order, True)
    assert figure is not None
    kinds = [trace["type"] for trace in figure.traces if "z" in trace]
    assert kinds == ["heatmap", "heatmap", "contour"]  # the first two pairs have the choice


def test_parameters_that_the_best_configuration_does_not_have_are_left_out(tmp_path: Path) -> None:
    def value(kernel: str, c: float, gamma: float | None = None) -> float:
        return c + (1.0 if gamma is None else gamma / 2.0)

    space: dict[str, Parameter] = {
        "kernel": Choice(("linear", "rbf")),
        "gamma": Range(0.0, 1.0, when={"kernel": "rbf"}),
        "c": Range(0.0, 1.0),
    }
    settings = {"runs": str(tmp_path), "workers": {"executor": "inline"}, "strategy": {"name": "uniform"}}
    result = tune(value, space, evaluations=30, direction="maximize", progress=False, settings=settings)
    surrogate = fit_surrogate(result._history)
    assert surrogate is not None
    assert surrogate.absent == ("gamma",)
    pictures = {figure.name: figure for figure in landscape(surrogate, True)}
    assert "gamma" in pictures["importance"].traces[0]["y"]
    titles = [axis["title"]["text"] for name, axis in pictures["slices"].layout.items() if name.startswith("xaxis")]
    assert sorted(titles) == ["c", "kernel"]
    assert "The best configuration has no gamma." in pictures["slices"].caption
    assert len([trace for trace in pictures["contours"].traces if "z" in trace]) == 1


def test_slices_go_through_the_best_feasible_configuration() -> None:
    history = SyntheticLog(trials=60, failure_share=0.0).history()
    best = max(history.succeeded, key=history.worth)
    best.is_feasible = False
    surrogate = fit_surrogate(history)
    assert surrogate is not None
    place = history.succeeded.index(max(history.succeeded, key=history.worth))
    assert surrogate.best.tolist() == surrogate.positions[place].tolist()
    assert history.succeeded[place] is not best


@pytest.mark.parametrize("trials", [60, MOST_RESULTS + 100])
def test_slices_go_through_the_best_value_where_no_result_is_feasible(trials: int) -> None:
    history = SyntheticLog(trials=trials, workers=16, failure_share=0.0, direction="minimize").history()
    feasible = landscape(fit_surrogate(history), False)
    for row in history.succeeded:
        row.is_feasible = False
    surrogate = fit_surrogate(history)
    assert surrogate is not None
    assert surrogate.values.min() == min(row.value or 0.0 for row in history.succeeded)
    assert surrogate.best.tolist() == surrogate.positions[int(surrogate.values.argmin())].tolist()
    text = "No result satisfies all constraints: the best configuration is the one with the best value."
    pictures = {figure.name: figure.caption for figure in landscape(surrogate, False)}
    assert text in pictures["slices"]
    assert text in pictures["contours"]
    assert not any(text in figure.caption for figure in feasible)


def test_the_axis_of_learning_curves_shows_the_better_values() -> None:
    history = SyntheticLog(trials=12, failure_share=0.0).history()
    for row in history.trials:
        row.reports = {step: 0.1 if step == 1 else 0.9 + row.trial / 1000 for step in range(1, 9)}
        history.reporting[row.trial] = row
    figure = learning_curves(history)
    assert figure is not None
    low, high = figure.layout["yaxis"]["range"]
    assert 0.85 < low < 0.905
    assert 0.911 < high < 0.95
    assert "double-click to see all" in figure.caption


def test_few_finished_trials_are_given_as_the_reason_for_missing_pictures() -> None:
    few, many = (parallel_coordinates(SyntheticLog(trials=trials, failure_share=0.0).history()) for trials in (3, 40))
    assert few is not None
    assert many is not None
    assert "from 16 trials on that ran to their end: 3 did." in few.caption
    assert "ran to their end" not in many.caption


def test_one_far_value_on_the_bad_side_does_not_flatten_the_slices() -> None:
    log = SyntheticLog(trials=60, failure_share=0.0)
    history = log.history()
    history.succeeded[10].value = -1e6
    surrogate = fit_surrogate(history)
    assert surrogate is not None
    figure = slices(surrogate, [0, 1], is_maximized=True)
    low, high = figure.layout["yaxis"]["range"]
    assert -10 < low < high < 10
    assert "Outlying values lie outside" in figure.caption


def test_the_caption_says_that_stopped_trials_are_left_out() -> None:
    history = SyntheticLog(trials=60, failure_share=0.0).history()
    history.campaign = dataclasses.replace(history.campaign, totals=Totals(stopped=3))
    pictures = {figure.name: figure for figure in landscape(fit_surrogate(history), True)}
    assert "fitted to 60 results, without 3 trials that stopped early." in pictures["importance"].caption
