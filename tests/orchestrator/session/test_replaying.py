"""Replay of a log: its state at any event, its decisions, and those of another machine."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bbkb.orchestrator.campaign.events import BatchChosen, CampaignCreated, Event, ModelRefreshed
from bbkb.orchestrator.cli.main import app
from bbkb.orchestrator.engine.replaying import replay_until
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.open import create_run, open_session
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.store.runs import Run
from tests.present import of_type


@pytest.fixture(params=["async", "batch"])
def run(tmp_path: Path, request: Any) -> Run:
    """A finished campaign in virtual time."""
    settings = from_mapping(
        {
            "name": "replayed",
            "objective": {"name": "branin", "direction": "minimize"},
            "candidates": {"size": 200},
            "strategy": {"name": "bbkb", "mode": request.param},
            "budget": {"evaluations": 40},
            "workers": {"executor": "simulated", "count": 5, "simulation": {"sigma": 1.0, "failure_rate": 0.1}},
            "runs": str(tmp_path),
        }
    )
    created = create_run(settings, build(settings))
    open_session(created, settings).run()
    return created


def problem_of(run: Run) -> Any:
    created = of_type(CampaignCreated, run.events()[0])
    return build(created.settings).problem


def test_replay_repeats_every_choice_and_draw(run: Run) -> None:
    events = run.events()
    replayed = replay_until(problem_of(run), events, None, is_checked=True)
    assert replayed.differences == ()
    assert replayed.repeated == sum(isinstance(event, BatchChosen | ModelRefreshed) for event in events) > 5
    assert replayed.engine.state.totals.succeeded == 40


def test_replay_finds_a_choice_that_the_strategy_would_not_make(run: Run) -> None:
    events: list[Event] = list(run.events())
    position = next(i for i, event in enumerate(events) if isinstance(event, BatchChosen) and event.round > 0)
    choice = of_type(BatchChosen, events[position])
    wrong = dataclasses.replace(choice.picks[0], arm=(choice.picks[0].arm + 1) % 200)
    events[position] = dataclasses.replace(choice, picks=(wrong, *choice.picks[1:]))
    differences = replay_until(problem_of(run), events, position + 1, is_checked=True).differences
    (difference,) = differences
    assert difference.startswith(f"event {position}: the choice was [{wrong.arm}")
    assert f"[{choice.picks[0].arm}" in difference


def test_replay_finds_a_dictionary_that_the_strategy_would_not_draw(run: Run) -> None:
    events: list[Event] = list(run.events())
    position = max(i for i, event in enumerate(events) if isinstance(event, ModelRefreshed))
    refresh = of_type(ModelRefreshed, events[position])
    record = {**refresh.record, "dictionary": [*refresh.record["dictionary"], 199]}
    events[position] = dataclasses.replace(refresh, record=record)
    differences = replay_until(problem_of(run), events, position + 1, is_checked=True).differences
    (difference,) = differences
    assert difference.startswith(f"event {position}: dictionary was")


def test_replay_stops_at_any_event_and_rejects_others(run: Run) -> None:
    events = run.events()
    earlier = replay_until(problem_of(run), events, 30, is_checked=False)
    assert earlier.position == 30
    assert earlier.engine.state.totals.succeeded < 40
    for until in (0, len(events) + 1):
        with pytest.raises(UserError, match=f"--until must be >= 1 and <= {len(events)}"):
            replay_until(problem_of(run), events, until, is_checked=False)


def test_replay_command_shows_the_posterior_and_the_reasons(run: Run) -> None:
    shown = CliRunner().invoke(app, ["replay", str(run.folder), "--top", "3"])
    assert shown.exit_code == 0
    assert "all results are equal" in shown.output
    assert "the 3 arms with the largest upper bounds" in shown.output
    assert "ended by:" in shown.output
