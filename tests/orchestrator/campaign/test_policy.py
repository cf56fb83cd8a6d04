"""Commands in asynchronous mode: when a worker gets a trial, and when a refresh is due."""

from dataclasses import replace

import pytest

from bbkb.orchestrator.bandit.strategy import Observation
from bbkb.orchestrator.campaign.commands import Ask, Await, Dispatch, Tell
from bbkb.orchestrator.campaign.events import ComputingBegan, Event
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.state import FinishedTrial
from bbkb.orchestrator.campaign.status import idle_seconds
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import Trial
from tests.orchestrator.campaign.short_logs import asynchronous, batch, dispatch, fold, refresh, session, success


def test_async_mode_picks_for_a_free_worker_while_others_run() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1))
    assert decide(state, now=1.0) == Ask(pending=(5, 6), limit=1)  # the reward of 6 waits in the buffer: still pending


def test_spent_drift_budget_triggers_a_refresh() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1))
    state = apply(state, batch(2, [], reason="drift budget", limit=1))
    assert decide(state, now=1.0) == Tell((FinishedTrial(1, Observation(6, 1.0)),))
    assert decide(apply(state, refresh(1)), now=2.0) == Ask(pending=(5,), limit=1)


def test_refresh_waits_while_all_workers_are_busy() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1)), success(0), batch(2, [7], limit=1))
    assert decide(apply(state, dispatch((1, 1), (2, 1))), now=1.0) == Await()


def test_short_batch_is_not_extended_before_a_refresh() -> None:
    state = asynchronous(batch(0, [5], limit=2), dispatch((0, 1)))
    assert decide(state, now=0.0) == Await()


def test_refresh_is_due_after_results_grow_by_the_share() -> None:
    first: tuple[Event, ...] = (batch(0, list(range(20)), limit=20), dispatch(*((trial, 1) for trial in range(20))))
    learned: tuple[Event, ...] = (*first, *(success(trial) for trial in range(10)), refresh(*range(10)))
    grown: tuple[Event, ...] = (*learned, *(success(trial, time=2.0) for trial in (10, 11)))
    # two results more than ten, eight in flight
    assert isinstance(decide(asynchronous(*grown, slots=20, evaluations=99, refresh_growth=0.1), 2.0), Tell)
    assert isinstance(decide(asynchronous(*grown, slots=20, evaluations=99, refresh_growth=0.15), 2.0), Ask)


def test_refresh_without_a_share_is_due_after_each_result() -> None:
    learned = (batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(0), refresh(0), success(1, time=9.0))
    assert isinstance(decide(asynchronous(*learned, refresh_growth=2.0), 9.0), Ask)
    assert isinstance(decide(asynchronous(*learned, refresh_growth=0.0), 9.0), Tell)


def test_backlog_supplies_workers_while_the_strategy_computes() -> None:
    state = asynchronous(batch(0, [5, 6, 7], limit=3), dispatch((0, 1), (1, 1)), success(0))
    state = apply(state, ComputingBegan(time=1.0, what="refreshing"))
    assert decide(state, now=1.0) == Dispatch((Trial(2, 7, {}, 1),))
    assert decide(apply(state, dispatch((2, 1))), now=1.0) == Await()


def test_backlog_covers_the_results_expected_during_a_computation() -> None:
    begun: list[Event] = [batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1))]
    results: list[Event] = [
        success(0, time=1.0),
        ComputingBegan(time=1.0, what="choosing"),
        batch(2, [7], time=1.5, limit=1),
    ]
    later: list[Event] = [dispatch((2, 1), time=1.5), success(1, time=2.0), batch(3, [8], time=2.0, limit=1)]
    state = asynchronous(*begun, *results, *later, dispatch((3, 1), time=2.0))
    assert state.durations.choosing == 0.0  # no computation was announced before the last batch
    state = asynchronous(*begun, *results, dispatch((2, 1), time=1.5), success(1, time=2.0))
    assert (state.durations.choosing, state.durations.between_outcomes) == (0.5, 1.0)
    assert decide(state, now=2.0) == Ask(pending=(5, 6, 7), limit=2)  # one for the free worker, one more


def test_last_results_are_learned_after_the_last_choice() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1), evaluations=2)
    assert decide(state, now=1.0) == Await()
    assert isinstance(decide(apply(state, success(0)), now=1.0), Tell)


@pytest.mark.parametrize(
    ("executor", "started", "cause"),
    [("ray", 3.1, "sending"), ("ray", 4.0, "worker_start"), ("inline", 4.0, "recording")],
)
def test_time_between_dispatch_and_evaluation_is_assigned_to_its_cause(
    executor: str, started: float, cause: str
) -> None:
    opened = replace(session(evaluations=20, strategy={"mode": "async"}), executor=executor)
    dispatched = fold(opened, batch(0, [5], time=3.0, limit=1), dispatch((0, 1), time=3.0))
    ended = replace(success(0, time=9.0), started=started, finished=8.0)
    idle = idle_seconds(apply(dispatched, ended))
    assert idle["recording"] == 1.0 + (started - 3.0 if cause == "recording" else 0.0)
    assert cause == "recording" or idle[cause] == pytest.approx(started - 3.0)
    assert not {"sending", "worker_start", "other"} - {cause} & idle.keys()


def test_attempt_that_waits_for_another_one_on_the_only_worker_leaves_it_busy() -> None:
    dispatched: list[Event] = [batch(0, [5, 6], time=0.0, limit=2), dispatch((0, 1), (1, 1), time=0.0)]
    first = replace(success(0, time=4.0), started=0.0, finished=4.0)
    second = replace(success(1, time=8.0), started=4.5, finished=8.0)
    idle = idle_seconds(asynchronous(*dispatched, first, second, slots=1))
    assert idle == {"recording": 0.5}


def test_computation_between_inline_evaluations_is_the_strategys_time() -> None:
    dispatched: list[Event] = [batch(0, [5, 6], time=0.0, limit=2), dispatch((0, 1), (1, 1), time=0.0)]
    first = replace(success(0, time=4.0), started=0.0, finished=4.0)
    began = ComputingBegan(time=4.0, what="choosing")
    computed: list[Event] = [began, batch(2, [7], time=6.0, limit=1)]
    second = replace(success(1, time=9.0), started=6.5, finished=9.0)
    state = asynchronous(*dispatched, first, *computed, second, slots=1)
    assert idle_seconds(state) == {"refit": 2.0, "recording": 0.5}


def test_idle_seconds_are_assigned_to_their_cause() -> None:
    events: list[Event] = [
        batch(0, [5, 6], time=1.0, limit=2),
        dispatch((0, 1), (1, 1), time=1.0),
    ]  # 1 s with two workers idle
    events += [success(0, time=3.0), ComputingBegan(time=3.0, what="choosing")]
    events += [batch(2, [], time=3.5, limit=1)]  # half a second with one worker idle
    state = asynchronous(*events, success(1, time=7.0), evaluations=20)  # 3.5 s more, for the drift budget
    assert state.clock.idle == {"start_up": 2.0, "refit": 0.5, "drift_budget": 3.5}
    last = asynchronous(*events[:2], success(0, time=3.0), success(1, time=7.0), evaluations=2)
    assert last.clock.idle == {"start_up": 2.0, "campaign_end": 4.0}
    learning: list[Event] = [success(0, time=3.0), success(1, time=4.0), ComputingBegan(time=4.0, what="refreshing")]
    last = asynchronous(*events[:2], *learning, refresh(0, 1, time=9.0), evaluations=2)
    assert last.clock.idle == {"start_up": 2.0, "campaign_end": 1.0, "refit": 10.0}
    in_batches = fold(session(slots=2), *events[:2], success(0, time=3.0), success(1, time=7.0))
    assert in_batches.clock.idle == {"start_up": 2.0, "batch_end": 4.0}
