"""The overview of a run agrees with its history."""

from pathlib import Path

import pytest

from bbkb.orchestrator.history.comparing import best_text
from bbkb.orchestrator.history.facts import trials_text
from bbkb.orchestrator.history.overview import read_overview
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.store.runs import Run
from tests.orchestrator.synthetic_log import SyntheticLog


@pytest.mark.parametrize("log", [SyntheticLog(), SyntheticLog(is_closed=False), SyntheticLog(failure_share=1.0)])
def test_overview_agrees_with_the_history(tmp_path: Path, log: SyntheticLog) -> None:
    run = Run(tmp_path, tmp_path / "campaign.sqlite", "demo")
    first, *later = log.events()
    with run.store() as store:
        store.create(run.name, [first])
        store.claim(run.name, "test").append(later)
        overview = read_overview(run, store)
    history = read_history(run)
    assert overview.began == history.created.time
    assert overview.state is history.state
    assert trials_text(overview.status) == trials_text(history.status())
    assert overview.best == best_text(history)
    assert overview.tags == history.settings.tags


def test_overview_of_a_run_without_a_session_is_not_started(tmp_path: Path) -> None:
    run = Run(tmp_path, tmp_path / "campaign.sqlite", "demo")
    with run.store() as store:
        store.create(run.name, SyntheticLog().events()[:1])
        assert read_overview(run, store).state == "not started"
