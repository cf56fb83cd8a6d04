"""`benchmarks.papers.measured`: One run of an algorithm, from the log of its campaign, as arrays
with one entry for each pull.
"""

import numpy as np
import pytest

from benchmarks.papers.measured import Measured, measure
from orchestrator.campaign.events import (
    BatchChosen,
    CampaignCreated,
    Event,
    ModelRefreshed,
    PickedTrial,
    SessionOpened,
    TrialsDispatched,
    TrialSucceeded,
)
from orchestrator.store.migrations import rules_of_version_2

NOISE_FREE = (0.2, 0.9, 0.5)


def _log(direction: str = "maximize") -> list[Event]:
    """A first batch of one pull, then one of two; choosing takes 1 and 4 s, updating 2 and 6 s."""
    settings = {"objective": {"direction": direction}, "budget": {"evaluations": 3}, "workers": {"retries": 2}}
    events: list[Event] = [
        CampaignCreated(
            time=0.0,
            name="a",
            seed=0,
            arms=3,
            candidates_digest="",
            objective="",
            optimum=1.0,
            settings=settings,
            rules=rules_of_version_2(settings, 0),
        ),
        SessionOpened(
            time=0.0, epoch=1, executor="simulated", slots=2, settings=settings, rules=rules_of_version_2(settings, 2)
        ),
    ]
    for round_, (trials, reason, asked, telling) in enumerate(
        [((0,), "warm start", 1.0, 2.0), ((1, 2), "limit", 4.0, 6.0)]
    ):
        picks = tuple(PickedTrial(trial=t, arm=t, parameters={}, mean=0.0, width=0.0, variance=0.0) for t in trials)
        events.append(BatchChosen(time=0.0, round=round_, picks=picks, reason=reason, seconds=asked))
        events.append(TrialsDispatched(time=0.0, attempts=tuple((t, 1) for t in trials)))
        events += [
            TrialSucceeded(
                time=0.0, trial=t, attempt=1, value=9.0, started=0.0, finished=10.0 * (t + 1), worker="w",
                metrics={"noise_free": NOISE_FREE[t]},
            )
            for t in trials
        ]  # fmt: skip
        size = 7 + round_
        events.append(
            ModelRefreshed(time=0.0, round=round_ + 1, trials=trials, dictionary_size=size, record={}, seconds=telling)
        )
    return events


@pytest.fixture
def measurements() -> Measured:
    return measure(_log())


def test_regret_is_of_the_values_without_noise(measurements: Measured) -> None:
    np.testing.assert_allclose(measurements.regret, [0.8, 0.9, 1.4])
    np.testing.assert_allclose(measurements.simple_regret, [0.8, 0.1, 0.1])
    np.testing.assert_allclose(measurements.average_regret, [0.8, 0.45, 1.4 / 3])


def test_what_is_minimised_has_the_regret_of_its_negative() -> None:
    measurements = measure(_log("minimize"))
    np.testing.assert_allclose(measurements.values, np.negative(NOISE_FREE))
    assert measurements.optimum == -1.0


def test_a_batch_shares_the_time_of_its_choice_and_of_its_update(measurements: Measured) -> None:
    np.testing.assert_allclose(measurements.clock, [3.0, 8.0, 13.0])


def test_the_first_pull_waits_for_existing_data(measurements: Measured) -> None:
    events = _log()
    events.insert(2, ModelRefreshed(time=0.0, round=0, trials=(), dictionary_size=5, record={}, seconds=8.0))
    np.testing.assert_allclose(measure(events).clock, measurements.clock + 8.0)


def test_a_batch_lasts_as_long_as_its_longest_evaluation(measurements: Measured) -> None:
    assert measurements.total_clock[-1] == pytest.approx(13.0 + 10.0 + 30.0)


def test_the_warm_start_is_not_counted_among_the_batches(measurements: Measured) -> None:
    assert measurements.batch_count == 1
    assert measurements.batch_sizes.tolist() == [1.0, 2.0, 2.0]
    assert measurements.dictionary_sizes.tolist() == [7, 8, 8]


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a trial"):
        measure(_log()[:2])
