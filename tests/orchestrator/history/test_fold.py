"""The fold: every view of a log agrees, step by step, and a closed run has nothing in flight; the
overview agrees with it; the thinned trace has every improvement and the extremes of all neighbors."""

import contextlib
import functools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.events import (
    CampaignCreated,
    Event,
    ReportsArrived,
    SessionClosed,
    SessionOpened,
    SessionOutcome,
    TrialsContinued,
    TrialSucceeded,
    body_of,
    event_of,
)
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.errors import ConfigError, StoreError
from bbkb.orchestrator.history.comparing import best_text
from bbkb.orchestrator.history.facts import as_plain, facts
from bbkb.orchestrator.history.fold import (
    MOST_BUCKETS,
    History,
    Trace,
    advance,
    begin,
    fold,
    read_history,
    read_overview,
)
from bbkb.orchestrator.store.runs import Run
from tests.examples import examples
from tests.orchestrator.events import batch, dispatch, settings_from
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.reported import reported

LOGS = st.builds(
    SyntheticLog,
    trials=st.integers(0, 30),
    workers=st.integers(1, 5),
    sessions=st.integers(1, 3),
    failure_share=st.sampled_from((0.0, 0.3, 1.0)),
    direction=st.sampled_from(("maximize", "minimize")),
    seed=st.integers(0, 5),
    is_closed=st.booleans(),
)


@given(LOGS)
def test_history_and_campaign_state_agree_on_the_same_log(log: SyntheticLog) -> None:
    events = log.events()
    status = status_of(functools.reduce(apply, events, CampaignState()))
    history = fold(events)
    assert facts(history.status()) == facts(status)
    failed = sum(1 for attempt in history.attempts if attempt.failure)
    assert sum(cause.attempts for cause in status.trials.failures) == failed


@given(LOGS, st.floats(0, 1))
def test_history_tables_agree_with_the_totals_after_every_prefix(log: SyntheticLog, share: float) -> None:
    events = log.events()
    history = fold(events[: 1 + int(share * (len(events) - 1))])
    counts = {state: sum(row.status == state for row in history.trials) for state in ("succeeded", "failed")}
    status = history.status()
    assert counts == {"succeeded": status.trials.succeeded, "failed": status.trials.failed}
    assert sum(row.status == "running" for row in history.trials) == status.trials.in_flight
    assert sum(row.status == "queued" for row in history.trials) == status.trials.waiting
    assert len(history.succeeded) == status.trials.succeeded
    if status.best.trial is not None:
        row = history.trials[status.best.trial]
        assert (row.value, row.arm, row.parameters) == (status.best.value, status.best.arm, status.best.parameters)


@given(LOGS)
@settings(max_examples=examples(20))
def test_history_advanced_by_single_events_equals_the_fold(log: SyntheticLog) -> None:
    created, *later = log.events()
    assert isinstance(created, CampaignCreated)
    history = begin(created)
    for event in later:
        history = advance(history, event)
    assert history == fold([created, *later])
    assert history.position == 1 + len(later)


@given(LOGS, st.floats(0, 1))
def test_fold_from_a_stored_state_equals_the_complete_fold(log: SyntheticLog, share: float) -> None:
    events = log.events()
    applied = 1 + int(share * (len(events) - 1))
    state = functools.reduce(apply, events[:applied], CampaignState())
    assert fold(events, applied, state) == fold(events)


def running_log() -> list[Event]:
    """Return the log of an open session in which three trials run."""
    events = SyntheticLog(trials=20, workers=3, sessions=1, is_closed=False).events()
    lengths = range(5, len(events))
    return next(events[:n] for n in lengths if len(fold(events[:n]).status().trials.running) == 3)


def test_history_queues_running_trials_at_the_end_of_a_session_and_runs_adopted_ones() -> None:
    events = running_log()
    closed = SessionClosed(time=events[-1].time, outcome=SessionOutcome.INTERRUPTED, reason="interrupted")
    history = fold([*events, closed])
    status = history.status(now=closed.time + 100.0)
    assert (status.trials.in_flight, status.trials.running) == (0, ())
    assert status.trials.waiting == sum(row.status == "queued" for row in history.trials)
    adopted = tuple(history.campaign.running)
    before = next(event for event in events if isinstance(event, SessionOpened))
    opened = replace(before, time=closed.time + 200.0, epoch=2, adopted=adopted)
    again = advance(history, opened)
    assert {row.trial for row in again.trials if row.status == "running"} == set(adopted)


def test_status_of_an_open_session_lists_the_longest_running_trials() -> None:
    history = fold(running_log())
    status = history.status(now=history.campaign.clock.last_time + 7.0)
    ages = [running.seconds for running in status.trials.running]
    assert ages == sorted(ages, reverse=True)
    assert min(ages) >= 7.0
    assert all(running.parameters == history.trials[running.trial].parameters for running in status.trials.running)


def test_status_lists_the_newest_attempts_of_the_log() -> None:
    history = SyntheticLog(trials=40, failure_share=0.4).history()
    recent = [(one.trial, one.attempt, one.failure) for one in history.status().trials.recent]
    assert recent == [(one.trial, one.attempt, one.failure) for one in history.attempts[-8:]]


def test_status_in_json_has_the_best_parameters_and_iso_times() -> None:
    history = SyntheticLog().history()
    plain = json.loads(json.dumps(as_plain(history.status())))
    assert history.best is not None
    assert plain["best_parameters"] == history.best.parameters
    assert plain["last_time"].startswith("2025-06-15T")
    assert plain["last_time"].endswith("Z")
    assert all(attempt["time"].endswith("Z") for attempt in plain["recent"])


def test_fold_rejects_a_log_that_does_not_begin_with_a_campaign() -> None:
    with pytest.raises(ValueError, match="does not begin with the creation"):
        fold([])


def fold_after_snapshot(events: list[Event]) -> History:
    """Return the history whose totals come from a snapshot of the log's end."""
    return fold(events, len(events), CampaignState())


def test_fold_reports_an_event_that_cannot_follow_as_damage() -> None:
    events = [
        replace(event, trial=10**6) if isinstance(event, TrialSucceeded) else event for event in SyntheticLog().events()
    ]
    for read in (fold, fold_after_snapshot):
        with pytest.raises(StoreError, match=r"TrialSucceeded of trial 1000000 at .* cannot follow .*`bbkb verify`"):
            read(events)


@given(LOGS, st.data())
def test_fold_accepts_or_rejects_a_log_with_a_missing_or_moved_event(log: SyntheticLog, data: st.DataObject) -> None:
    created, *later = log.events()
    taken = later.pop(data.draw(st.integers(0, len(later) - 1))) if later else created
    for place in data.draw(st.lists(st.integers(0, len(later)), max_size=2)):
        later.insert(place, taken)
    for read in (fold, fold_after_snapshot):
        with contextlib.suppress(StoreError):
            assert read([created, *later]).position == 1 + len(later)


def test_recorded_settings_need_no_import() -> None:
    tree: dict[str, Any] = SyntheticLog().settings()
    tree["objective"] = {"callable": "no_such_module:f", "direction": "minimize", "options": {}}
    tree["strategy"] = {"name": "no_such_module:Strategy", "mode": "async"}
    created = replace(cast(CampaignCreated, SyntheticLog(trials=0).events()[0]), settings=settings_from(tree))
    read = cast(CampaignCreated, event_of("campaign_created", body_of(created)))
    assert read == created
    assert (read.settings.objective_name, read.settings.is_asynchronous) == ("no_such_module:f", True)
    assert not read.settings.goals.objectives[0].is_maximized


@pytest.mark.parametrize("error", [ConfigError("model.kernel must be …"), MemoryError()])
def test_fold_does_not_report_bad_settings_or_full_memory_as_damage(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> CampaignState:
        raise error

    created, opened = SyntheticLog(trials=0).events()[:2]
    history = begin(cast(CampaignCreated, created))
    monkeypatch.setattr("bbkb.orchestrator.campaign.transitions.apply", fail)
    with pytest.raises(type(error)):
        advance(history, opened)


def test_history_marks_a_continued_trial_that_reports_its_first_step_again() -> None:
    def has_restarted_at(step: int) -> bool:
        events = (
            *SyntheticLog(trials=0).events()[:2], batch(0, [5]), dispatch((0, 1)),
            ReportsArrived(time=1.0, reports=(reported(2, 0.5, 0, 1), reported(3, 0.5, 0, 1))),
            TrialsContinued(time=2.0, trials=(0,), reason="finish"), dispatch((0, 2)),
            ReportsArrived(time=3.0, reports=(reported(step, 0.5, 0, 2),)),
        )  # fmt: skip
        return fold_after_snapshot([*events]).trials[0].training.has_restarted

    assert [has_restarted_at(step) for step in (1, 2, 3, 4)] == [True, True, False, False]


@pytest.mark.parametrize(
    "log",
    [SyntheticLog(), SyntheticLog(is_closed=False), SyntheticLog(failure_share=1.0), SyntheticLog(sessions=0)],
)
def test_overview_agrees_with_the_history(tmp_path: Path, log: SyntheticLog) -> None:
    run = Run(tmp_path, tmp_path / "campaign.sqlite", "demo")
    first, *later = log.events()
    with run.store() as store:
        store.create(run.name, [first])
        if later:
            store.claim(run.name, "test").append(later)
        overview = read_overview(run, store)
    history = read_history(run)
    assert overview.began == history.created.time
    assert overview.state is history.state
    assert overview.status == history.status()
    assert overview.best == best_text(history, history.status())
    assert overview.tags == history.settings.tags


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.booleans()), max_size=300))
def test_trace_of_few_results_has_all_in_order_and_the_feasible_improvements(results: list[tuple[float, bool]]) -> None:
    trace: Trace[int] = Trace()
    best, improvements = -math.inf, []
    for item, (reward, is_feasible) in enumerate(results):
        trace.add(reward, item, is_feasible)
        if is_feasible and reward > best:
            best = reward
            improvements.append(item)
    assert [point.item for point in trace.improvements] == improvements
    assert [point.item for point in trace.points()] == list(range(len(results)))


@given(st.integers(MOST_BUCKETS, 5 * MOST_BUCKETS), st.integers(0, 9))
@settings(max_examples=examples(20))
def test_trace_is_bounded_and_keeps_the_extremes_of_every_bucket(count: int, seed: int) -> None:
    rewards = [float((place * 7919 + seed * 104729) % 10007) for place in range(count)]
    trace: Trace[int] = Trace()
    for item, reward in enumerate(rewards):
        trace.add(reward, item)
    points = list(trace.points())
    assert trace.count == count
    assert len(points) <= 2 * MOST_BUCKETS
    traced = {point.item for point in points}
    for first in range(0, count, trace.width):
        bucket = range(first, min(first + trace.width, count))
        assert max(rewards[place] for place in bucket) in {rewards[place] for place in bucket if place in traced}
        assert min(rewards[place] for place in bucket) in {rewards[place] for place in bucket if place in traced}
