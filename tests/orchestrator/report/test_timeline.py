"""Time: pauses are cut out, no attempt is lost from the picture, and busy time adds up."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.settings import Workers
from bbkb.orchestrator.history.fold import History, fold
from bbkb.orchestrator.report.figure import Spec
from bbkb.orchestrator.report.timeline import CampaignClock, timeline
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

LOGS = st.builds(
    SyntheticLog,
    trials=st.integers(1, 60),
    workers=st.integers(1, 12),
    sessions=st.integers(1, 4),
    start=st.sampled_from([0.0, 1.75e9]),
    seed=st.integers(0, 99),
)


@given(LOGS)
@settings(max_examples=25, deadline=None)
def test_campaign_clock_stops_between_sessions(log: SyntheticLog) -> None:
    history = log.history()
    clock = CampaignClock.of(history)
    ends = clock([session.ended for session in history.sessions])
    assert ends[-1] == pytest.approx(history.status().budget.elapsed_seconds, abs=1e-5)
    assert clock([session.started for session in history.sessions]) == pytest.approx(np.r_[0.0, ends[:-1]], abs=1e-5)
    assert clock(history.sessions[0].started - 5) == 0
    assert clock(history.sessions[-1].ended + 5) == pytest.approx(ends[-1], abs=1e-5)


def bars_of(history: History) -> list[Spec]:
    return [trace for trace in present(timeline(history)).traces if trace["type"] == "bar"]


@given(LOGS)
@settings(max_examples=25, deadline=None)
def test_gantt_has_a_bar_for_each_attempt_in_its_workers_lane(log: SyntheticLog) -> None:
    history = log.history()
    bars = bars_of(history)
    lanes = Counter(worker for trace in bars for worker in trace["y"])
    assert lanes == Counter(attempt.worker for attempt in history.attempts)
    assert len(bars) == len({attempt.failure for attempt in history.attempts})
    seconds, _ = CampaignClock.of(history).unit
    seconds_drawn = sum(sum(trace["x"]) for trace in bars) * seconds
    assert seconds_drawn == pytest.approx(sum(a.finished - a.started for a in history.attempts), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("stop", ["stopped early", "paused"])
def test_gantt_does_not_count_a_stopped_attempt_as_success(stop: str) -> None:
    history = SyntheticLog(trials=12, sessions=1).history()
    history.attempts[:] = [
        attempt._replace(stop=stop) if attempt.trial % 2 else attempt for attempt in history.attempts
    ]
    bars = {trace["name"].partition(" (")[0]: trace for trace in bars_of(history)}
    assert len(bars[stop]["y"]) == sum(attempt.trial % 2 and not attempt.failure for attempt in history.attempts)
    assert all(stop in text for text in bars[stop]["text"])
    assert bars["succeeded"]["marker"]["color"] != bars[stop]["marker"]["color"]


def test_gantt_merges_bars_of_thousands_of_attempts_without_loss() -> None:
    history = SyntheticLog(trials=6000, workers=8, failure_share=0.01).history()
    texts = [text for trace in bars_of(history) for text in trace["text"]]
    assert len(texts) < len(history.attempts) / 2
    counts = [int(text.split()[0].removeprefix("<b>")) if "attempts" in text else 1 for text in texts]
    assert sum(counts) == len(history.attempts)


def test_gantt_bar_names_the_machines_and_gpus_of_its_trial() -> None:
    history = SyntheticLog(trials=2, failure_share=0, workers=1).history()
    workers = Workers(machines=2, gpus=8, gpus_from="gpus")
    history.settings = replace(history.settings, workers=workers)
    for row, gpus in zip(history.trials, (1, 4), strict=True):
        row.pick = replace(row.pick, parameters={"gpus": gpus})
    (trace,) = bars_of(history)
    assert [text.rpartition("<br>")[2] for text in trace["text"]] == ["2 machines, 2 GPUs", "2 machines, 8 GPUs"]


def test_gantt_lanes_have_natural_order() -> None:
    figure = present(timeline(SyntheticLog(workers=11).history()))
    assert figure.layout["yaxis"]["categoryarray"][::-1][-3:] == ["10.0.0.9", "10.0.0.10", "10.0.0.11"]


@given(LOGS, st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_utilization_curve_has_the_mean_of_the_campaign_and_counts_running_trials(
    log: SyntheticLog, share: float
) -> None:
    events = log.events()
    history = fold(events[: 1 + int(share * (len(events) - 1))])
    figure = timeline(history)
    if figure is None:
        assert not history.attempts
        return
    (curve,) = (trace for trace in figure.traces if trace["type"] == "scatter")
    shares = np.array(curve["y"][:-1])
    assert ((shares >= 0) & (shares <= 100)).all()
    assert shares.mean() / 100 == pytest.approx(history.status().workers.utilization, abs=0.01)
