"""Warnings about workers, trainings and strategies."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import Event, PlacesChanged, ReportsArrived, TrialSucceeded
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of, warnings
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import Report
from tests.orchestrator.events import (
    batch,
    dispatch,
    existing_data,
    fold,
    opening,
    session,
    settings_of,
    success,
)
from tests.reported import reported

MINUTE = 60.0


def state_after(minutes: int, waited: int = 0, late_from: int = 10**9) -> CampaignState:
    """One worker with a trial per minute; from minute `late_from` on, each trial begins `waited`
    seconds after its dispatch."""
    state = fold(session(slots=1, evaluations=1000), batch(0, [0] * minutes))
    for minute in range(minutes):
        now = minute * MINUTE
        began = now + (waited if minute >= late_from else 0)
        state = apply(state, dispatch((minute, 1), time=now))
        succeeded = TrialSucceeded(
            time=now + MINUTE, trial=minute, attempt=1, value=1.0, started=began, finished=now + MINUTE, worker="w"
        )
        state = apply(state, succeeded)
    return state


def test_missing_worker_is_noticed_by_the_waiting_time_of_trials_in_a_session() -> None:
    assert warnings(state_after(30, waited=20, late_from=0), since=0.0) == {}  # they always waited
    state = state_after(40, waited=20, late_from=30)
    assert set(warned := warnings(state, since=0.0)) == {"late"}
    assert "33%" in warned["late"]
    assert "0% before" in warned["late"]
    assert warnings(apply(state, session(slots=1, time=2400.0, epoch=2, evaluations=1000)), since=0.0) == {}


def test_trial_without_an_outcome_for_very_long_is_named() -> None:
    state = fold(session(slots=2), batch(0, [0, 1]), dispatch((0, 1), (1, 1)))
    succeeded = TrialSucceeded(time=100.0, trial=0, attempt=1, value=1.0, started=0.0, finished=100.0, worker="w")
    state = apply(state, succeeded)
    assert warnings(state, since=450.0) == {}
    (text,) = warnings(state, since=550.0).values()
    assert "1 trial (1)" in text


def test_missing_slots_are_named_with_the_needs_of_an_evaluation_on_ray() -> None:
    state = fold(session(slots=4, workers={"count": 4}))
    assert status_of(state).remarks == ()
    (remark,) = status_of(apply(state, PlacesChanged(time=1.0, slots=3))).remarks
    assert "3 of the 4 workers" in remark
    assert remark.endswith("wait for nodes with room for 1 CPU")
    needs = {"count": 4, "machines": 2, "cpus": 3.0, "gpus": 1.0, "memory_gb": 1.5}
    (remark,) = status_of(apply(fold(session(slots=4, workers=needs)), PlacesChanged(time=1.0, slots=1))).remarks
    assert remark.endswith("room for 2 machines with 3 CPUs, 1 GPU and 1.5 GB each")
    assert warnings(fold(session(slots=1, workers={"count": 4, "executor": "inline"})), since=0.0) == {}


def test_attempt_without_an_outcome_long_after_its_time_out_is_named() -> None:
    state = fold(session(slots=2, workers={"timeout_seconds": 5.0}), batch(0, [0, 1]), dispatch((0, 1), (1, 1)))
    assert warnings(state, since=60.0) == {}
    (text,) = warnings(state, since=70.0).values()
    assert "2 trials (0, 1)" in text
    assert "workers.timeout_seconds = 5" in text
    assert "no worker has started it" in text
    state = fold(session(slots=1, workers={"timeout_seconds": 36_000.0}), batch(0, [0]), dispatch((0, 1)))
    assert warnings(state, since=40_000.0) == {}
    assert set(warnings(state, since=60_000.0)) == {"old"}


def test_status_says_that_nothing_has_ended_yet() -> None:
    state = fold(session(slots=1), batch(0, [0]), dispatch((0, 1)))
    assert status_of(state, now=500.0).remarks == ()
    (remark,) = status_of(state, now=700.0).remarks
    assert "no evaluation of this campaign has ended yet" in remark


MODEL = {"rule": "model", "after": 3, "continues": False, "last_step": 4}
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


@pytest.mark.parametrize("rule", [MODEL, {"rule": "median", "after": 3}])
def test_silent_trials_are_named_after_three_have_finished(rule: dict[str, Any]) -> None:
    assert warnings_of_trainings(trained(*[((), 0.8)] * 2, rule=rule)) == {}
    state = trained(*[((), 0.8)] * 3, rule=rule)
    assert set(warnings_of_trainings(state)) == {"silent"}
    assert status_of(state).remarks == tuple(warnings(state, since=0.0).values())
    assert "none of the 3 finished trials reported" in status_of(state).remarks[0]
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
        (RISING, 0.75),
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


@pytest.mark.parametrize(("executor", "seconds"), [("ray", 0.01), ("ray", 10.0), ("inline", 0.01)])
def test_trainings_that_end_before_a_response_arrives_on_ray_are_named(executor: str, seconds: float) -> None:
    settings = {
        **settings_of(50, direction="minimize"),
        "early_stopping": {"rule": "median", "after": 1},
        "workers": {"executor": executor},
    }
    events: list[Event] = [opening(settings), batch(0, list(range(20))), dispatch(*((trial, 1) for trial in range(20)))]
    for trial in range(20):
        result = replace(success(trial, 0.5), started=0.0, finished=seconds, reports=(reported(1, 0.5, trial, 1),))
        assert warnings_of_trainings(fold(*events)) == {}
        events.append(result)
    texts = warnings_of_trainings(fold(*events))
    assert set(texts) == ({"short"} if (executor, seconds) == ("ray", 0.01) else set())


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


MINE = {"name": "mine:Strategy"}


def test_own_strategy_that_chooses_everything_at_once_is_named() -> None:
    (remark,) = fold(session(strategy=MINE), batch(0, list(range(10)))).notes.remarks
    assert remark.startswith("the strategy chose all of the 10 trials before any result, so it learns nothing: `limit`")


def test_choice_is_not_named_for_listed_strategies_batches_small_budgets_or_known_results() -> None:
    assert fold(session(strategy={"name": "uniform"}), batch(0, list(range(10)))).notes.remarks == ()
    assert fold(session(strategy=MINE), batch(0, list(range(9)))).notes.remarks == ()
    assert fold(session(strategy=MINE, evaluations=4), batch(0, list(range(4)))).notes.remarks == ()
    assert fold(session(strategy=MINE), existing_data(1.0), batch(0, list(range(10)))).notes.remarks == ()
    learned = fold(session(strategy=MINE), batch(0, [0]), dispatch((0, 1)), success(0))
    assert apply(learned, batch(1, list(range(9)))).notes.remarks == ()
