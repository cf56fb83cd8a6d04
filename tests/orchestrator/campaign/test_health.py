"""`bbkb.orchestrator.campaign.status`: Warnings about a campaign's workers: a worker that was not
replaced, or an evaluation that does not end.
"""

from bbkb.orchestrator.campaign.events import PlacesChanged, TrialSucceeded
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of, warnings
from bbkb.orchestrator.campaign.transitions import apply
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, session

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


def test_health_has_no_warning_if_trials_always_waited_for_workers() -> None:
    assert warnings(state_after(30, waited=20, late_from=0), since=0.0) == {}


def test_missing_worker_is_noticed_by_the_waiting_time_of_trials() -> None:
    warned = warnings(state_after(40, waited=20, late_from=30), since=0.0)
    assert set(warned) == {"late"}
    assert "33%" in warned["late"]
    assert "0% before" in warned["late"]


def test_lost_time_of_a_session_is_not_counted_in_the_next() -> None:
    state = apply(state_after(40, waited=20, late_from=30), session(slots=1, time=2400.0, epoch=2, evaluations=1000))
    assert warnings(state, since=0.0) == {}


def test_trial_without_an_outcome_for_very_long_is_named() -> None:
    state = fold(session(slots=2), batch(0, [0, 1]), dispatch((0, 1), (1, 1)))
    succeeded = TrialSucceeded(time=100.0, trial=0, attempt=1, value=1.0, started=0.0, finished=100.0, worker="w")
    state = apply(state, succeeded)
    assert warnings(state, since=450.0) == {}
    (text,) = warnings(state, since=550.0).values()
    assert "1 trial (1)" in text


def test_missing_slots_are_in_the_status_of_an_open_session() -> None:
    state = fold(session(slots=4, workers={"count": 4}))
    assert status_of("c", state).remarks == ()
    (remark,) = status_of("c", apply(state, PlacesChanged(time=1.0, slots=3))).remarks
    assert "3 of the 4 workers" in remark
    assert remark.endswith("wait for nodes with room for 1 CPU")


def test_missing_slots_name_machines_cpus_gpus_and_memory() -> None:
    needs = {"count": 4, "machines": 2, "cpus": 3.0, "gpus": 1.0, "memory_gb": 1.5}
    state = apply(fold(session(slots=4, workers=needs)), PlacesChanged(time=1.0, slots=1))
    (remark,) = status_of("c", state).remarks
    assert remark.endswith("room for 2 machines with 3 CPUs, 1 GPU and 1.5 GB each")


def test_inline_executor_has_no_warning_about_slots() -> None:
    assert warnings(fold(session(slots=1, workers={"count": 4, "executor": "inline"})), since=0.0) == {}


def test_attempt_without_an_outcome_long_after_its_time_out_is_named() -> None:
    state = fold(session(slots=2, workers={"timeout_seconds": 5.0}), batch(0, [0, 1]), dispatch((0, 1), (1, 1)))
    assert warnings(state, since=60.0) == {}
    (text,) = warnings(state, since=70.0).values()
    assert "2 trials (0, 1)" in text
    assert "workers.timeout_seconds = 5" in text
    assert "no worker has started it" in text


def test_long_time_out_is_awaited_before_the_warning() -> None:
    state = fold(session(slots=1, workers={"timeout_seconds": 36_000.0}), batch(0, [0]), dispatch((0, 1)))
    assert warnings(state, since=40_000.0) == {}
    assert set(warnings(state, since=60_000.0)) == {"old"}


def test_status_says_that_nothing_has_ended_yet() -> None:
    state = fold(session(slots=1), batch(0, [0]), dispatch((0, 1)))
    assert status_of("c", state, now=500.0).remarks == ()
    (remark,) = status_of("c", state, now=700.0).remarks
    assert "no evaluation of this campaign has ended yet" in remark
