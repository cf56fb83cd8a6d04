"""The model behind the pictures of the landscape: it predicts, ranks parameters, and shows its
data."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bbkb.objectives.parameters import Choice, Range, Space
from bbkb.orchestrator.report.curves import learning_curves
from bbkb.orchestrator.report.landscape import landscape
from bbkb.orchestrator.report.surrogate import MOST_RESULTS, fit_surrogate
from tests.histories import history_of
from tests.orchestrator.quick import tune_here
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_importance_ranks_the_parameters_as_the_objective_does(direction: str) -> None:
    # the made-up value falls with the square of the learning rate's and the dropout's miss; the
    # batch size has no part
    surrogate = present(fit_surrogate(SyntheticLog(trials=150, failure_share=0.0, direction=direction).history()))
    names = [dimension.name for dimension in surrogate.dimensions]
    _, total = surrogate.importance()
    shares = dict(zip(names, total, strict=True))
    assert max(shares, key=lambda name: shares[name]) == "learning_rate"
    assert min(shares, key=lambda name: shares[name]) == "batch_size"
    assert shares["batch_size"] < 0.02


def test_importance_of_conditional_parameters_is_over_existing_configurations(tmp_path: Path) -> None:
    space: Space = {
        "model": Choice(("a", "b")),
        "x": Range(0.0, 1.0, when={"model": "a"}),
        "y": Range(0.0, 1.0, when={"model": "b"}),
    }
    result = tune_here(tmp_path, lambda model, x=0.0, y=0.0: x or 0.0, space, evaluations=80)
    surrogate = present(fit_surrogate(history_of(result)))
    alone, total = surrogate.importance()
    # with M = 1 for model a: Var(Mx) = 5/48, Var(E[Mx | M]) = 1/16, Var(E[Mx | x]) = 1/48
    assert alone == pytest.approx([0.6, 0.2, 0.0], abs=0.1)
    assert total == pytest.approx([0.8, 0.4, 0.0], abs=0.1)


def test_surrogate_predicts_the_noise_free_value_within_its_band() -> None:
    history = SyntheticLog(trials=150, failure_share=0.0).history()
    surrogate = present(fit_surrogate(history))
    mean, deviation = surrogate.predict(surrogate.positions)
    truth = np.array([row.metrics["noise_free"] for row in history.succeeded])
    assert np.abs(mean - truth).mean() < 0.02
    assert np.mean(np.abs(mean - truth) <= 2 * deviation + 0.02) > 0.8


def test_surrogate_resolves_the_space_if_most_results_are_near_the_optimum() -> None:
    history = SyntheticLog(trials=150, failure_share=0.0).history()
    for place, row in enumerate(history.succeeded[40:]):
        row.value = 0.9 - 1e-6 * place
        same = {"learning_rate": 0.01, "batch_size": 64, "activation": "relu"}
        near = same | {"dropout": 0.3 + 1e-4 * place}
        row.pick = dataclasses.replace(row.pick, parameters=near)
    surrogate = present(fit_surrogate(history))
    predicted, _ = surrogate.predict(surrogate.positions[:40])
    assert np.corrcoef(predicted, surrogate.values[:40])[0, 1] > 0.9


def test_surrogate_needs_enough_different_results() -> None:
    assert fit_surrogate(SyntheticLog(trials=10, failure_share=0.0).history()) is None
    assert landscape(None, True) == []


def test_surrogate_of_a_long_campaign_uses_a_sample_with_the_best_result() -> None:
    history = SyntheticLog(trials=MOST_RESULTS + 500, workers=16, failure_share=0.0).history()
    surrogate = present(fit_surrogate(history))
    assert len(surrogate.values) <= MOST_RESULTS
    assert history.best is not None
    assert surrogate.values.max() == history.best.value


def test_learning_curves_need_reports_and_draw_the_best_last() -> None:
    history = SyntheticLog(trials=12, failure_share=0.0).history()
    assert learning_curves(history) is None
    for row in history.trials:  # trials with a single step have no curve
        row.own_training().reports = {1: 0.5}
        history.reporting[row.trial] = row
    assert learning_curves(history) is None
    for row in history.trials:
        row.training.reports.update({step: row.trial + step / 10 for step in range(1, 4)})
    figure = present(learning_curves(history))
    assert history.best is not None
    assert figure.traces[-1]["name"] == f"trial {history.best.trial}"
    assert figure.traces[-1]["x"] == [1, 2, 3]
    assert len(figure.traces) == 12


def test_learning_curves_axis_shows_the_better_values() -> None:
    history = SyntheticLog(trials=12, failure_share=0.0).history()
    for row in history.trials:
        row.own_training().reports = {step: 0.1 if step == 1 else 0.9 + row.trial / 1000 for step in range(1, 9)}
        history.reporting[row.trial] = row
    figure = present(learning_curves(history))
    low, high = figure.layout["yaxis"]["range"]
    assert 0.85 < low < 0.905
    assert 0.911 < high < 0.95
    assert "double-click to see all" in figure.caption
