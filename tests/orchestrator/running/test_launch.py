"""`bbkb.orchestrator.running.launch`: results are delivered once, with the parameters of their trials."""

from collections.abc import Sequence
from pathlib import Path

from bbkb.orchestrator.campaign.events import Event, TrialsContinued, TrialStopped
from bbkb.orchestrator.campaign.results import TrialResult
from bbkb.orchestrator.campaign.settings import plain
from bbkb.orchestrator.running.launch import Delivery
from bbkb.orchestrator.store.runs import Run
from tests.orchestrator.events import batch, dispatch, opening, session, success
from tests.reported import reported

OPENED = session(slots=1)
WITH_TRAININGS = opening(
    {**plain(OPENED.settings), "early_stopping": {"rule": "model", "after": 1, "continues": "anew"}},
    slots=1,
)
STOPPED = TrialStopped(
    time=1.0, trial=0, attempt=1, value=0.5, step=3, reports=(reported(3, 0.5),), started=0.0, finished=1.0, worker="w"
)


def delivered(
    folder: Path, earlier: Sequence[Event], events: Sequence[Event], in_thread: bool = False
) -> list[tuple[int | None, str]]:
    run, results = Run(folder, f"sqlite:///{folder / 'c.sqlite'}", "c"), list[TrialResult]()
    with run.store() as store:
        store.create("c", earlier)
        writer = store.claim("c", "test")
        delivery = Delivery(run, results.append)
        if in_thread:
            delivery.start()
        writer.append(events)
        delivery.finish()
    return [(result.trial, result.status) for result in results]


def test_trial_stopped_and_continued_is_delivered_at_both_ends(tmp_path: Path) -> None:
    events = (
        STOPPED,
        TrialsContinued(time=2.0, trials=(0,), reason="finish"),
        dispatch((0, 2), time=2.0),
        success(0, attempt=2, time=3.0),
    )
    assert delivered(tmp_path, (WITH_TRAININGS, batch(0, [5]), dispatch((0, 1))), events) == [
        (0, "stopped"),
        (0, "succeeded"),
    ]


def test_results_of_earlier_sessions_are_not_delivered(tmp_path: Path) -> None:
    earlier = (OPENED, batch(0, [5, 6]), dispatch((0, 1)), success(0))
    events = (dispatch((1, 1)), success(1))
    (tmp_path / "other").mkdir()
    assert delivered(tmp_path, earlier, events) == [(1, "succeeded")]
    assert delivered(tmp_path / "other", earlier, events, in_thread=True) == [(1, "succeeded")]
