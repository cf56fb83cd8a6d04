"""A campaign's figures for Prometheus: the totals of its log, under few names and labels."""

import functools
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.state import LABELS, CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.running.coordinator.starting import DESCRIPTIONS, totals_of
from bbkb.orchestrator.session.recorder import Span
from tests.examples import examples
from tests.orchestrator.synthetic_log import SyntheticLog

LOGS = st.builds(SyntheticLog, trials=st.integers(0, 30), workers=st.integers(1, 5), seed=st.integers(0, 5))


def statuses(log: SyntheticLog) -> list[Status]:
    """After each event."""
    states, state = [], CampaignState()
    for event in log.events():
        state = apply(state, event)
        states.append(state)
    return [status_of(state) for state in states]


@given(LOGS)
@settings(max_examples=examples(30))
def test_counters_never_fall_and_end_at_the_totals_of_the_log(log: SyntheticLog) -> None:
    courses = [totals_of(status).counters for status in statuses(log)]
    for before, after in itertools.pairwise(courses):
        for key, value in before.items():
            if key[0] == "bbkb_evaluations":
                assert after[key] >= value
    last = functools.reduce(apply, log.events(), CampaignState())
    evaluations = {key[2]: value for key, value in courses[-1].items() if key[0] == "bbkb_evaluations"}
    assert (evaluations["succeeded"], evaluations["failed"]) == (last.totals.succeeded, last.totals.failed)


@given(LOGS)
@settings(max_examples=examples(30))
def test_names_and_labels_are_few(log: SyntheticLog) -> None:
    for status in statuses(log):
        totals = totals_of(status)
        assert set(totals.gauges) <= set(DESCRIPTIONS)
        assert {(name, label) for name, label, _ in totals.counters} <= {
            ("bbkb_evaluations", "status"),
            ("bbkb_idle_seconds", "cause"),
        }
        assert {of for _, label, of in totals.counters if label == "cause"} <= set(LABELS)


def test_histogram_exists_for_every_measured_time() -> None:
    assert {f"bbkb_{span.value}_seconds" for span in Span} <= set(DESCRIPTIONS)
