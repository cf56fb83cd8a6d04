"""The accounting of the chaos suite finds lost, repeated and invented results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import (
    Event,
    SessionClosed,
    SessionOpened,
    SessionOutcome,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.workers.messages import FailureKind
from benchmarks.chaos.accounting import SEVERAL, Account, Kill, Victim, account
from benchmarks.chaos.campaign import Plan
from benchmarks.chaos.objective import Execution, duration

SEEDS = {100: 0, 101: 1}  # of two trials


def execution(trial: int = 0, pid: int = 7, began: float = 10.0, **more: Any) -> Execution:
    return Execution(100 + trial, pid, began=began, **{"node": "node1", "place": "actor", "ended": 12.0, **more})


def success(it: Execution, attempt: int = 1, time: float | None = None) -> TrialSucceeded:
    ended = it.ended if it.ended is not None else it.began
    metrics = {"pid": float(it.pid), "began": it.began}
    return TrialSucceeded(
        time=time or ended, trial=SEEDS[it.seed], attempt=attempt, value=0.0, started=it.began, finished=ended,
        worker="", metrics=metrics,
    )  # fmt: skip


def failed_trial(trial: int, kind: str = "worker lost", attempt: int = 1) -> TrialFailed:
    return TrialFailed(
        time=11.5, trial=trial, attempt=attempt, failure=FailureKind(kind), message="", is_final=False, started=10.0,
        finished=11.5, worker="",
    )  # fmt: skip


def session(time: float) -> SessionOpened:
    return SessionOpened(
        time=time, epoch=1, executor="ray", slots=2, settings=Settings(name="c", budget=Budget(evaluations=1))
    )


def kill(victim: Victim, time: float, pid: int = 0, node: str = "", strike: int = 1) -> Kill:
    return Kill(strike, time, victim, pid, node)


AT_WORK = TrialsDispatched(time=14.9, attempts=((1, 2),))  # the coordinator, just before a kill at 15
WELL = (execution(0), execution(1, pid=8))  # both trials, undisturbed


def account_of(events: Sequence[Event], executed: Sequence[Execution], *kills: Kill) -> Account:
    return account(2, SEEDS, events, executed, kills)


def test_undisturbed_campaign_has_no_findings() -> None:
    found = account_of([success(it) for it in WELL], WELL)
    assert found.broken == ()
    assert (found.results, found.executions, found.lost, found.twice, found.repeated) == (2, 2, 0, 0, {})


def test_finished_execution_without_an_event_is_lost_even_if_it_ran_again() -> None:
    again = execution(0, pid=9, began=20.0, ended=22.0)
    found = account_of([success(again, 2), success(WELL[1])], (*WELL, again), kill("coordinator", 11.9))
    assert found.lost == 1
    assert "finished and not recorded: trial 0" in found.broken[0]


def test_result_may_reach_the_log_as_late_as_without_kills() -> None:
    late = execution(0, place="task", ended=12.0)  # ended 3 s before the kill that it was lost to
    again = execution(0, pid=9, began=20.0, ended=22.0)
    other = execution(1, pid=8, began=8.0, ended=9.0)
    for written, lost in ((9.0 + 4.0, 0), (9.0, 1)):  # 4 s on its way to the log, or at once
        log: list[Event] = [success(other, time=written), AT_WORK, success(again, 2)]
        assert account_of(log, (late, other, again), kill("coordinator", 15.0)).lost == lost


def test_silent_coordinator_does_not_record_executions_that_end_meanwhile() -> None:
    late = execution(0, place="task", ended=12.0)  # 3 s before the kill
    again = execution(0, pid=9, began=20.0, ended=22.0)
    other = execution(1, pid=8, began=9.0, ended=11.5)
    log: list[Event] = [success(other, time=11.6), success(again, 2)]
    assert account_of(log, (late, other, again), kill("coordinator", 15.0)).lost == 0
    assert account_of([*log, AT_WORK], (late, other, again), kill("coordinator", 15.0)).lost == 1


@pytest.mark.parametrize(("has_coordinator", "lost"), [(True, 0), (False, 1)])
def test_tasks_on_other_nodes_die_with_the_coordinators_node(has_coordinator: bool, lost: int) -> None:
    late = execution(0, place="task", ended=12.0)
    again = execution(0, pid=9, began=20.0, ended=22.0)
    struck = Kill(1, 11.5, "node", 1, "node9", has_coordinator)
    assert account_of([success(WELL[1]), success(again, 2)], (late, WELL[1], again), struck).lost == lost


def test_slow_result_after_a_restart_does_not_widen_the_window_of_a_kill() -> None:
    late = execution(0, place="task", ended=12.0)
    again = execution(0, pid=9, began=20.0, ended=22.0)
    delayed = success(WELL[1], time=21.0)  # the kill came between its end and the log
    assert (
        account_of([AT_WORK, delayed, success(again, 2)], (late, WELL[1], again), kill("coordinator", 15.0)).lost == 1
    )


@pytest.mark.parametrize(
    ("struck", "place"),
    [
        (kill("worker", 12.1, pid=7), "actor"),
        (kill("node", 11.0, node="node1"), "actor"),
        (kill("coordinator", 11.0), "task"),
        (kill("head", 11.0), "actor"),
    ],
    ids=lambda it: getattr(it, "victim", it),
)
def test_execution_may_run_again_if_its_process_was_killed(struck: Kill, place: str) -> None:
    first = execution(0, place=place)
    again = execution(0, pid=9, began=20.0, ended=22.0)
    found = account_of([success(again, 2), success(WELL[1])], (first, WELL[1], again), struck)
    assert found.broken == ()
    assert found.repeated == {struck.victim: 1}
    assert found.repeated_seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    "struck",
    [
        kill("worker", 11.0, pid=70),
        kill("node", 11.0, node="node2"),
        kill("driver", 11.0, pid=7),
        kill("coordinator", 11.0),
        kill("server", 11.0),
        kill("head", 15.0),
        kill("worker", 15.0, pid=7),
    ],
    ids=[
        "another process",
        "another node",
        "driver",
        "coordinator of an actor's call",
        "server",
        "head, handed over",
        "long after it was handed over",
    ],
)
def test_kill_of_another_process_explains_no_second_execution(struck: Kill) -> None:
    again = execution(0, pid=9, began=20.0, ended=22.0)
    found = account_of([AT_WORK, success(again, 2), success(WELL[1])], (*WELL, again), struck)
    assert found.lost == 1
    assert found.repeated == {"no kill explains it": 1}


def test_interruption_without_a_kill_is_reported() -> None:
    first, again = execution(0, ended=None), execution(0, pid=9, began=20.0, ended=22.0)
    found = account_of([success(again, 2), success(WELL[1])], (first, WELL[1], again))
    assert found.lost == 0
    assert "not finished, and no kill explains it: trial 0" in found.broken[0]


def test_trial_that_ends_twice_and_attempt_with_two_outcomes_are_reported() -> None:
    events: list[Event] = [success(it) for it in WELL]
    assert account_of([*events, events[0]], WELL).twice == 2  # the same attempt, and the trial
    assert account_of([*events, failed_trial(1)], WELL).twice == 1


def test_trial_that_never_ends_and_a_result_that_was_never_computed_are_reported() -> None:
    found = account_of([success(WELL[0])], WELL[:1])
    assert found.broken == ("trial 1 never ended",)
    found = account_of([success(it) for it in WELL], WELL[:1])
    assert "recorded and never executed" in found.broken[0]


def test_failure_that_no_kill_can_cause_is_reported() -> None:
    events: list[Event] = [success(it) for it in WELL]
    assert account_of([failed_trial(0, "node lost", attempt=0), *events], WELL).broken == ()
    assert "failed without a kill" in account_of([failed_trial(0, "error", attempt=0), *events], WELL).broken[0]


def test_session_that_gave_up_is_reported() -> None:
    closed = SessionClosed(time=20.0, outcome=SessionOutcome.FAILED, reason="it broke")
    events = [success(it) for it in WELL]
    assert "gave up" in account_of([*events, closed], WELL).broken[0]
    assert account_of([*events, replace(closed, outcome=SessionOutcome.FINISHED)], WELL).broken == ()


def test_recovery_from_a_worker_or_a_node_lasts_until_its_evaluations_run_again() -> None:
    first, second = execution(0, ended=None), execution(1, pid=8, ended=None)
    again = (execution(0, pid=20, began=13.0, ended=14.0), execution(1, pid=21, began=15.0, ended=17.0))
    log = [success(it, 2) for it in again]
    executed = (first, second, *again)
    assert account_of(log, executed, kill("node", 11.0, node="node1")).recoveries == {"node": (4.0,)}
    assert account_of(log, executed, kill("worker", 11.0, pid=7)).recoveries == {"worker": (2.0,)}


def test_recovery_from_a_coordinator_lasts_longer_than_that_from_a_driver() -> None:
    log: list[Event] = [
        success(WELL[0], time=12.0),  # of the old session, on its way already
        session(14.0),
        TrialsDispatched(time=14.5, attempts=((1, 2),)),
        success(WELL[1], time=16.0),
    ]
    assert account_of(log, WELL, kill("coordinator", 11.0)).recoveries == {"coordinator": (3.5,)}
    assert account_of(log, WELL, kill("driver", 11.0)).recoveries == {"driver": (1.0,)}
    together = (kill("coordinator", 11.0), kill("driver", 11.1))
    found = account_of(log, WELL, *together)
    assert found.recoveries == {SEVERAL: (3.5,)}
    assert (found.strikes, found.kills) == ({SEVERAL: 1}, {"coordinator": 1, "driver": 1})


def test_plan_finds_trials_by_seed_and_bounds_their_durations() -> None:
    seeds = Plan("actor", 50, 6, seed=3).seeds()
    assert sorted(seeds.values()) == list(range(50))
    assert seeds != Plan("actor", 50, 6, seed=4).seeds()
    lengths = [duration(seed, 0.05, 2.0) for seed in seeds]
    assert all(0.05 <= length <= 2.0 for length in lengths)
    assert lengths == [duration(seed, 0.05, 2.0) for seed in seeds]
