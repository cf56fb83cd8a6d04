"""Pictures of the landscape: importance, slices and contours of the model."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bbkb.objectives.parameters import Choice, Parameter, Range
from bbkb.orchestrator.campaign.state import Totals
from bbkb.orchestrator.report.landscape import landscape, slices
from bbkb.orchestrator.report.surrogate import MOST_RESULTS, fit_surrogate
from tests.histories import history_of
from tests.orchestrator.quick import tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present


def test_landscape_figures_are_strict_json_with_one_panel_per_parameter() -> None:
    pictures = {figure.name: figure for figure in landscape(fit_surrogate(SyntheticLog().history()), True)}
    assert list(pictures) == ["importance", "slices"]
    assert sorted(pictures["importance"].traces[0]["y"]) == ["activation", "batch_size", "dropout", "learning_rate"]
    assert len({trace["xaxis"] for trace in pictures["slices"].traces}) == 4
    total, alone = (np.array(trace["x"]) for trace in pictures["importance"].traces)
    assert (alone <= total).all()
    assert alone.sum() <= 110  # percent, with the error of the estimate


def test_slices_draw_nothing_between_values_without_an_order() -> None:
    history = SyntheticLog(trials=120, failure_share=0.0).history()
    surrogate = present(fit_surrogate(history))
    choices = [place for place, dimension in enumerate(surrogate.dimensions) if dimension.is_choice]
    assert [surrogate.dimensions[place].name for place in choices] == ["activation"]
    order = [*choices, *(place for place in range(4) if place not in choices)]
    picture = slices(surrogate, order, True)
    shown = [picture.layout[f"yaxis{number}"].get("showticklabels", True) for number in ("", 2, 3, 4)]
    assert shown == [True, False, True, False]  # labels between two panels would overlap the left one
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
    place = history.succeeded.index(max(history.succeeded, key=history.worth))
    assert surrogate.best.tolist() == surrogate.positions[place].tolist()
    assert history.succeeded[place] is not best


@pytest.mark.parametrize("trials", [60, MOST_RESULTS + 100])
def test_slices_go_through_the_best_value_if_no_result_is_feasible(trials: int) -> None:
    history = SyntheticLog(trials=trials, workers=16, failure_share=0.0, direction="minimize").history()
    for row in history.succeeded:
        row.is_feasible = False
    surrogate = present(fit_surrogate(history))
    assert surrogate.values.min() == min(row.value or 0.0 for row in history.succeeded)
    assert surrogate.best.tolist() == surrogate.positions[int(surrogate.values.argmin())].tolist()


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
