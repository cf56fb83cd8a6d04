"""A replayed log equals the live state, whenever the process was interrupted or killed."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.campaign.commands import Close
from bbkb.orchestrator.campaign.events import SessionOutcome, TrialSucceeded
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.engine.engine import replay
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.session.recorder import Recorder
from bbkb.orchestrator.store.store import Writer
from tests.orchestrator.session.parabola import STARTING, Campaign, Killed, campaign_with_existing


def test_interrupt_just_after_a_transaction_writes_nothing_twice(tmp_path: Path, monkeypatch: Any) -> None:
    campaign, calls = Campaign(tmp_path), itertools.count()
    append = Writer.append

    def append_and_interrupt(self: Writer, events: Any, position: int | None = None) -> None:
        append(self, events, position)
        if next(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Writer, "append", append_and_interrupt)
    assert campaign.run(campaign.simulated_executor()).outcome == "interrupted"
    assert next(calls) == 6  # the end of the session was written after the interrupt
    events = campaign.events()
    assert len({repr(event) for event in events}) == len(events)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    succeeded = [event.trial for event in campaign.events() if isinstance(event, TrialSucceeded)]
    assert sorted(succeeded) == list(range(30))


def test_interrupt_at_the_end_keeps_the_recorded_outcome(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "save_snapshot", interrupt)
    campaign = Campaign(tmp_path)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert [event.kind for event in campaign.events()].count("session_closed") == 1


def test_error_at_the_end_does_not_end_the_session_twice(tmp_path: Path, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(Recorder, "save_snapshot", fail)
    campaign = Campaign(tmp_path)
    with pytest.raises(CampaignError, match="RecursionError"):
        campaign.run(campaign.simulated_executor())
    assert [event.kind for event in campaign.events()].count("session_closed") == 1


@pytest.mark.parametrize("seed", range(5))
def test_campaign_killed_repeatedly_makes_the_decisions_of_an_undisturbed_one(tmp_path: Path, seed: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    undisturbed = Campaign(tmp_path / "a")
    undisturbed.run(undisturbed.simulated_executor())
    campaign = Campaign(tmp_path / "b")
    chance = np.random.default_rng(seed)
    close, kills = None, 0
    while close is None:
        lives = int(chance.integers(1, 15))

        def observe(status: Status) -> None:
            nonlocal lives
            lives -= 1
            if lives == 0:
                raise Killed

        executor = campaign.simulated_executor()
        try:
            close = campaign.driver(executor, observe).run(campaign.session_event(executor))
        except Killed:
            kills += 1
    assert kills > 3
    rows, expected = fold(campaign.events()).trials, fold(undisturbed.events()).trials
    assert [(row.arm, row.value) for row in rows] == [(row.arm, row.value) for row in expected]


@pytest.mark.parametrize("strategy", STARTING)
def test_existing_data_are_learned_once_and_a_replay_gives_the_live_state(tmp_path: Path, strategy: str) -> None:
    campaign = campaign_with_existing(tmp_path, strategy)
    executor = campaign.simulated_executor()
    driver = campaign.driver(executor)
    driver.run(campaign.session_event(executor))
    again = replay(campaign.problem, campaign.events())
    live = driver.recorder.engine
    assert (again.state, again.model) == (live.state, live.model)
    assert live.model.pulls.total == 80 + 12


def test_campaign_killed_before_it_learned_existing_data_learns_them_on_resume(tmp_path: Path) -> None:
    campaign = campaign_with_existing(tmp_path, "bbkb")

    def kill(status: Status) -> None:
        raise Killed

    executor = campaign.simulated_executor()
    with pytest.raises(Killed):
        campaign.driver(executor, kill).run(campaign.session_event(executor))
    assert not fold(campaign.events()).refreshes  # the refresh was not committed yet
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    (tmp_path / "undisturbed").mkdir()
    undisturbed = campaign_with_existing(tmp_path / "undisturbed", "bbkb")
    undisturbed.run(undisturbed.simulated_executor())
    ours, theirs = (fold(log.events()) for log in (campaign, undisturbed))
    assert [row.arm for row in ours.trials] == [row.arm for row in theirs.trials]
