"""The accounting of the chaos suite, and campaigns on real clusters whose processes are killed."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
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
from benchmarks.chaos import network
from benchmarks.chaos.accounting import SEVERAL, Account, Kill, Victim, account
from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.course import Course, Monkey, Result, Setting, settings
from benchmarks.chaos.network import Cut, cuts_report, ray_settings
from benchmarks.chaos.objective import Execution, duration, executions
from benchmarks.chaos.processes import program_of, wait_for
from tests.deploy.namespaces import Machines, missing
from tests.ray_limits import NEEDS_PATH_WITHOUT_SPACES

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
    return SessionOpened(time=time, epoch=1, slots=2, settings=Settings(name="c", budget=Budget(evaluations=1)))


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


WORKERS = 6
SECONDS = (0.2, 3.0)  # seconds of the shortest and the longest evaluation


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos") / "notes"


@pytest.fixture(scope="module")
def cluster(notes: Path) -> Iterator[Cluster]:
    with Cluster(settings(notes, *SECONDS)) as started:
        started.start(workers=2)
        yield started


def strike(cluster: Cluster, notes: Path, folder: Path, plan: Plan, strikes: Sequence[tuple[Victim, ...]]) -> Result:
    rng = random.Random(plan.seed)
    course = Course(cluster, Monkey(cluster, rng, notes), rng, folder, notes)
    return course.run(Setting(plan, pause=(0.2, 1.0), kills=100), iter(strikes))


@pytest.mark.thorough
@NEEDS_PATH_WITHOUT_SPACES
@pytest.mark.timeout(600)
def test_evaluation_in_a_worker_actor_survives_kills_of_coordinator_and_driver(
    cluster: Cluster, notes: Path, tmp_path: Path
) -> None:
    plan = Plan("actor", 45, WORKERS, seed=1)
    result = strike(cluster, notes, tmp_path, plan, [("coordinator",), ("driver",), ("coordinator", "driver")])
    assert "\n".join(result.complaints) == ""
    found = result.account
    assert (found.results, found.executions, found.repeated) == (45, 45, {})
    assert found.kills["coordinator"] == 2
    assert found.sessions in (2, 3)  # a coordinator that is killed before it opens its session leaves none


@pytest.mark.thorough
@NEEDS_PATH_WITHOUT_SPACES
@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("actor", 2), ("task", 3)])
def test_finished_result_is_neither_lost_nor_recorded_twice_after_any_kill(
    cluster: Cluster, notes: Path, tmp_path: Path, kind: str, seed: int
) -> None:
    strikes: list[tuple[Victim, ...]] = [("worker",), ("node",), ("worker", "coordinator"), ("driver",)]
    result = strike(cluster, notes, tmp_path, Plan(kind, 60, WORKERS, seed), strikes)
    assert "\n".join(result.complaints) == ""
    found = result.account
    assert (found.results, found.lost, found.twice) == (60, 0, 0)
    assert set(found.kills) == {"worker", "coordinator", "driver", "node"}
    assert found.sessions == 2


@pytest.mark.thorough
@NEEDS_PATH_WITHOUT_SPACES
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_driver_of_a_lost_cluster_names_the_cause_and_the_remedy(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with Cluster(settings(notes, *SECONDS)) as here:
        here.start(workers=0)
        campaign = Campaign(here, Plan("actor", 500, 2, seed=5), tmp_path)
        wait_for(lambda: campaign.results() >= 2, 120.0, "results must come")
        for pid in here.mark.pids():
            if program_of(pid) in ("gcs_server", "raylet"):
                here.mark.kill(pid)
        assert campaign.driver.wait(200) == 1
    words = campaign.said()
    assert "Ray's process raylet on this machine could not be reached for 40 s. Every finished result" in words
    assert f"bbkb resume {campaign.run.folder}" in words


@pytest.mark.thorough
@NEEDS_PATH_WITHOUT_SPACES
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_local_campaign_ends_with_its_driver_and_resumes_without_a_loss(tmp_path: Path) -> None:
    notes, plan = tmp_path / "notes", Plan("auto", 24, 2, seed=4)
    with Cluster(settings(notes, 0.02, 0.3)) as here:
        campaign = Campaign(here, plan, tmp_path)
        wait_for(lambda: campaign.results() >= 5, 120.0, "results must come")
        first = campaign.driver
        first.kill()
        assert first.wait(200) == -signal.SIGKILL

        def is_at_rest() -> bool:
            return campaign.coordinator() is None and not any(here.mark.is_on(it.pid) for it in executions(notes))

        wait_for(is_at_rest, 60.0, "what a local Ray runs must end with its driver")
        broken_off = len(executions(notes))
        campaign.resume()
        wait_for(campaign.is_over, 120.0, "the campaign must come to its end")
        assert campaign.driver.wait(200) == 0
        assert campaign.verify() == ""
    # all processes ended with the driver; a result of the last second may have been recorded before
    # or not
    totals = account(plan.evaluations, plan.seeds(), campaign.events(), executions(notes), ())
    assert (totals.results, totals.twice) == (24, 0)
    assert totals.executions - totals.results <= plan.workers <= broken_off
    assert sum(isinstance(event, SessionClosed) for event in campaign.events()) == 1


_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9000), timeout=2).close()"
_LISTEN = """
import socket
listening = socket.create_server(("", 9000))
print("listening", flush=True)
while True:
    listening.accept()[0].close()
"""


@pytest.mark.skipif(bool(missing()), reason=missing() or "none")
def test_machines_reach_each_other_unless_the_link_is_cut(tmp_path: Path) -> None:
    with Machines(("head", "node1"), "10.79.0", tmp_path) as made:
        listen = [*made.inside("node1"), sys.executable, "-c", _LISTEN]
        connect = [*made.inside("head"), sys.executable, "-c", _CONNECT, made.addresses["node1"]]

        def is_reachable() -> bool:
            return subprocess.run(connect, capture_output=True, check=False).returncode == 0

        with subprocess.Popen(listen, stdout=subprocess.PIPE) as listening:
            try:
                assert listening.stdout is not None
                listening.stdout.readline()
                assert is_reachable()
                made.cut("node1")
                assert not is_reachable()
                made.heal("node1")
                assert is_reachable()
            finally:
                listening.kill()


def test_cuts_report_has_a_row_for_each_cut() -> None:
    found = [Cut("actor", None, 2, (30.0, 40.0), 1, ()), Cut("task", 5.0, 2, (), 0, ("it hung",))]
    rows = cuts_report(found).splitlines()[2:]
    assert rows == [
        "| actor | never | 2 | 35.0 | 40.0 | 1 | none |",
        "| task | 5 | 2 | not needed |  | 0 | it hung |",
    ]
    assert "not run" in cuts_report([])


def test_chaos_cluster_has_the_settings_of_deploy_ray_env() -> None:
    shipped = ray_settings(Path(network.__file__).parents[2] / "deploy" / "ray.env")
    assert shipped["RAY_health_check_failure_threshold"] == "3"
    assert not any(name.startswith("#") or not name for name in shipped)
