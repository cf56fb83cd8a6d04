"""The loop: courses of whole campaigns, failures, and requests to stop."""

from pathlib import Path
from typing import Any, cast

import pytest

from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.campaign.commands import Close
from bbkb.orchestrator.campaign.events import SessionClosed, SessionOutcome, TrialSucceeded
from bbkb.orchestrator.errors import CampaignError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.session.driver import Driver
from tests.examples import spread
from tests.executors import HERE, executor_here
from tests.orchestrator.session.parabola import STARTING, Campaign, Parabola, campaign_with_existing


@pytest.mark.parametrize(("strategy", "kind"), spread(STRATEGIES, HERE))
def test_campaign_ends_with_every_trial_evaluated_once(tmp_path: Path, strategy: str, kind: str) -> None:
    campaign = Campaign(tmp_path, strategy=strategy)
    close = campaign.run(executor_here(kind, campaign.objective))
    assert close == Close(SessionOutcome.FINISHED, "budget spent")
    succeeded = [event.trial for event in campaign.events() if isinstance(event, TrialSucceeded)]
    assert sorted(succeeded) == list(range(30))


def test_bbkb_finds_the_top_of_a_parabola(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=60)
    campaign.run(campaign.simulated_executor())
    best = fold(campaign.events()).best
    assert best is not None
    assert abs(cast(float, best.parameters["x"]) - 0.3) < 0.1


def test_duplicate_result_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(tmp_path, evaluations=10)
    executor = campaign.simulated_executor()
    single = executor.next_outcomes
    monkeypatch.setattr(executor, "next_outcomes", lambda timeout: 2 * single(timeout))
    assert campaign.run(executor).outcome == "finished"
    history = fold(campaign.events())
    assert len(history.attempts) == history.status().trials.done == 10


def test_clean_stop_lets_running_evaluations_end(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver: Driver = campaign.driver(executor, lambda status: driver.stop() if status.trials.succeeded == 5 else None)
    assert driver.run(campaign.session_event(executor)).outcome == "interrupted"
    rows = fold(campaign.events()).trials
    assert not any(row.status == "running" for row in rows)


def test_immediate_stop_leaves_running_evaluations_to_the_next_session(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver: Driver = campaign.driver(
        executor, lambda status: driver.stop(now=True) if status.trials.succeeded == 5 else None
    )
    close = driver.run(campaign.session_event(executor))
    assert "were cancelled" in close.reason
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert fold(campaign.events()).status().trials.done == 30


def test_failing_arms_are_set_aside_and_the_campaign_continues(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=40, objective=Parabola(breaks_below=0.2))
    assert campaign.run(campaign.simulated_executor()).outcome == "finished"
    history = fold(campaign.events())
    failed = [row for row in history.trials if row.status == "failed"]
    assert failed
    assert all(row.attempts == 2 for row in failed)
    assert all("RuntimeError: too small" in row.error for row in failed)
    batches_after = {row.arm: row.batch for row in failed}
    assert not [row for row in history.trials if row.arm in batches_after and row.batch > batches_after[row.arm]]


def test_campaign_ends_soon_with_the_reason_if_everything_fails(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=101, objective=Parabola(breaks_below=2.0))
    close = campaign.run(campaign.simulated_executor())
    assert close.outcome == "failed"
    assert "RuntimeError: too small" in close.reason
    assert len(fold(campaign.events()).trials) < 20


def test_strategy_that_breaks_is_reported_and_nothing_finished_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver = campaign.driver(executor)

    def raise_error(*arguments: Any) -> Any:
        raise ArithmeticError("no such number")

    monkeypatch.setattr(type(campaign.problem.strategy), "tell", raise_error)
    with pytest.raises(CampaignError, match="ArithmeticError in refitting the model: no such number"):
        driver.run(campaign.session_event(executor))
    events = campaign.events()
    assert isinstance(events[-1], SessionClosed)
    assert fold(events).status().trials.done > 0


@pytest.mark.parametrize(("strategy", "direction"), spread(STARTING, ["maximize", "minimize"]))
def test_campaign_with_existing_data_chooses_by_a_posterior_that_contains_them(
    tmp_path: Path, strategy: str, direction: str
) -> None:
    campaign = campaign_with_existing(tmp_path, strategy, direction)
    campaign.run(campaign.simulated_executor())
    history = fold(campaign.events())
    first = history.batches[0].picks[0]
    # the parabola falls to both sides: the best known value is at the top if maximized, at an end
    # if minimized
    assert (abs(cast(float, first.parameters["x"]) - 0.6) < 0.2) == (direction == "maximize")
    assert len(history.trials) == 12
    assert history.existing is not None
    assert (history.refreshes[0].trials, history.refreshes[0].round) == ((), 1)
