"""Warnings about trainings: reports that early stopping cannot use are named, and others are not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import Event, ReportsArrived
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of, warnings
from bbkb.workers.messages import Report
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, opening, settings_of, success
from tests.reported import reported

MODEL = {"rule": "model", "after": 3, "finish": 2, "continues": False, "last_step": 4}
RISING = (0.1, 0.5, 0.7, 0.8)


def warnings_of_trainings(state: CampaignState) -> dict[str, str]:
    return warnings(state, None)


def trained(*trials: tuple[Sequence[float], float], rule: dict[str, Any] | None = MODEL) -> CampaignState:
    """The state after trials with these reports at the steps 1, 2, … and these results."""
    settings = {**settings_of(50, direction="minimize"), "early_stopping": rule}
    events: list[Event] = [
        opening(settings),
        batch(0, [10 + trial for trial in range(len(trials))]),
        dispatch(*((trial, 1) for trial in range(len(trials)))),
    ]
    for trial, (values, result) in enumerate(trials):
        reports = tuple(reported(step, value, trial, 1) for step, value in enumerate(values, 1))
        events += [ReportsArrived(time=1.0, reports=reports)] if reports else []
        events.append(success(trial, result))
    return fold(*events)


def test_warnings_are_empty_if_trials_report_their_returned_value() -> None:
    assert warnings_of_trainings(trained(*[(RISING, 0.8), (RISING, 0.75), ((0.3, 0.3, 0.3, 0.3), 0.31)] * 2)) == {}


@pytest.mark.parametrize("rule", [MODEL, {"rule": "median", "after": 3}])
def test_silent_trials_are_named_after_three_have_finished(rule: dict[str, Any]) -> None:
    assert warnings_of_trainings(trained(*[((), 0.8)] * 2, rule=rule)) == {}
    state = trained(*[((), 0.8)] * 3, rule=rule)
    assert set(warnings_of_trainings(state)) == {"silent"}
    assert status_of("c", state).remarks == tuple(warnings(state, since=0.0).values())
    assert "none of the 3 finished trials reported" in status_of("c", state).remarks[0]
    assert warnings_of_trainings(trained(*[((), 0.8)] * 3, rule=None)) == {}


def test_step_beyond_the_last_one_is_named_at_once() -> None:
    (text,) = warnings_of_trainings(trained(((*RISING, 0.85), 0.85))).values()
    assert "steps up to 5, and early_stopping.last_step is 4" in text


def test_early_ends_are_named_after_three_trials_have_finished() -> None:
    short = (RISING[:3], 0.7)
    assert warnings_of_trainings(trained(short, short)) == {}
    assert warnings_of_trainings(trained(short, short, short, (RISING, 0.8))) == {}, "they may end early by themselves"
    (text,) = warnings_of_trainings(trained(short, short, short)).values()
    assert "3 trials finished at step 3 or before, and early_stopping.last_step is 4" in text
    assert "early_stopping_rounds of XGBoost" in text


@pytest.mark.parametrize(
    "trial",
    [
        ((0.05, 0.05, 0.05, 0.05), 0.056),  # a flat curve; the result comes from other data
        ((0.31, 0.305, 0.30, 0.35), 0.30),  # the best one is returned, not the last one
    ],
)
def test_warnings_are_empty_for_results_near_any_report(trial: tuple[Sequence[float], float]) -> None:
    assert warnings_of_trainings(trained(*[trial] * 4)) == {}


def test_loss_returned_after_reported_accuracies_is_named() -> None:
    assert set(warnings_of_trainings(trained(*[((0.85, 0.9, 0.93, 0.94), 0.21)] * 4))) == {"unlike"}


@pytest.mark.parametrize("result", [-0.8, 80.0])
def test_unlike_results_are_named_if_most_trials_have_them(result: float) -> None:
    unlike, like = (RISING, result), (RISING, 0.8)
    assert warnings_of_trainings(trained(unlike, unlike, like)) == {}
    assert warnings_of_trainings(trained(unlike, unlike, unlike, like, like, like)) == {}
    (text,) = warnings_of_trainings(trained(unlike, unlike, unlike, like)).values()
    assert "3 of 4 finished trials returned something unlike their reports" in text
    assert f"(trial 2: last reported 0.8, returned {result:g})" in text


@pytest.mark.parametrize("metrics", [{}, {"size": 2.0}])
def test_compared_metric_that_is_not_reported_is_named(metrics: Any) -> None:
    objectives = [{"metric": "accuracy"}, {"metric": "size", "direction": "minimize"}]
    rule = {"rule": "median", "after": 1, "metric": "size"}
    settings = {**settings_of(50), "objectives": objectives, "early_stopping": rule}
    events: list[Event] = [
        opening(settings),
        batch(0, [10, 11, 12, 13]),
        dispatch(*((trial, 1) for trial in range(4))),
        *(
            ReportsArrived(
                time=1.0, reports=(Report(trial, 1, 1, {"accuracy": 0.5, **(metrics if trial == 3 else {})}),)
            )
            for trial in range(4)
        ),
        *(replace(success(trial, 0.5), metrics={"size": 2.0}) for trial in range(3)),
    ]
    texts = warnings_of_trainings(fold(*events))
    assert set(texts) == (set() if metrics else {"unreported"})
    assert "trials do not report size" in texts.get("unreported", "trials do not report size")
