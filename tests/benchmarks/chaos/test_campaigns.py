"""Campaigns on a real Ray cluster of three nodes, whose processes are killed while they run: the
short chaos suite. Its longer part is marked `slow`.

The long one, with hundreds of kills at random, is `python -m benchmarks.chaos`.
"""

import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bbkb.orchestrator.campaign.events import SessionClosed
from benchmarks.chaos.accounting import Victim, account
from benchmarks.chaos.campaign import Campaign, Plan
from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.course import Course, Monkey, Result, Setting, settings
from benchmarks.chaos.objective import executions
from benchmarks.chaos.processes import program_of, wait_for
from tests.ray_limits import NEEDS_PATH_WITHOUT_SPACES

pytestmark = [
    pytest.mark.thorough,
    NEEDS_PATH_WITHOUT_SPACES,
    pytest.mark.timeout(600),  # an idle machine needs a fifth of this time
]

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
