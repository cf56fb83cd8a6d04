"""Runs side by side: results, best parameters, and the settings that differ."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import Event, SessionOpened, TrialSucceeded
from bbkb.orchestrator.campaign.settings import Workers
from bbkb.orchestrator.history.comparing import side_by_side
from bbkb.orchestrator.history.fold import History, fold
from tests.orchestrator.synthetic_log import SyntheticLog


def history_with(**settings: Any) -> History:
    def changed(event: Event) -> Event:
        return (
            replace(event, settings=replace(event.settings, **settings)) if isinstance(event, SessionOpened) else event
        )

    return fold(map(changed, SyntheticLog(trials=12, sessions=1).events()))


def test_comparison_has_a_row_for_each_setting_that_differs() -> None:
    one, two = history_with(tags=["a"], note="x" * 500), history_with(tags=["b"], note="x" * 500)
    rows = dict(side_by_side([one, two]))
    assert rows["tags"] == ["['a']", "['b']"]
    assert "note" not in rows
    assert rows["strategy"][0] == rows["strategy"][1] != ""
    assert dict(side_by_side([one, one])).keys() == rows.keys() - {"tags"}


def test_comparison_ignores_the_storage_and_shows_a_missing_setting_as_empty() -> None:
    rows = dict(side_by_side([history_with(store="sqlite", runs="a"), history_with(runs="b", note="long " * 100)]))
    assert not {"store", "runs"} & rows.keys()
    assert rows["note"][0] == ""
    assert len(rows["note"][1]) <= 60


def test_comparison_ignores_options_that_only_some_strategies_have() -> None:
    one = history_with(strategy={"name": "bbkb", "delta": 0.1, "mode": "async"})
    other = history_with(strategy={"name": "uniform", "mode": "batch"})
    rows = dict(side_by_side([one, other]))
    assert (rows["strategy.name"], rows["strategy.mode"]) == (["bbkb", "uniform"], ["async", "batch"])
    assert "strategy.delta" not in rows
    again = history_with(strategy={"name": "bbkb", "mode": "async"})
    assert dict(side_by_side([one, again]))["strategy.delta"] == ["0.1", ""]


def test_comparison_shows_the_best_parameters_of_each_run() -> None:
    history = history_with()
    assert history.best is not None
    rows = dict(side_by_side([history]))
    assert set(history.best.parameters) <= rows.keys()
    assert rows["found by"] == [f"trial {history.best.trial}"]


def test_comparison_averages_runs_that_differ_only_in_their_seed() -> None:
    one, two, other = history_with(seed=1), history_with(seed=2), history_with(seed=3, workers=Workers(retries=9))
    rows = dict(side_by_side([one, two, other]))
    assert one.best is not None
    assert rows["mean over seeds"] == [f"{one.best.value:.6g} ± 0 (2 runs)"] * 2 + [""]
    assert "mean over seeds" not in dict(side_by_side([one, other]))
    assert "mean over seeds" not in dict(
        side_by_side([one, history_with(seed=2, tags=["1"], workers=Workers(retries=1))])
    )


def test_comparison_counts_a_repeated_run_once() -> None:
    one, two = history_with(seed=1), history_with(seed=2, name="again", note="later")
    assert "mean over seeds" not in dict(side_by_side([one, one, history_with(seed=1, tags=["b"])]))
    cells = dict(side_by_side([one, two, one]))["mean over seeds"]
    assert cells[0].endswith("(2 runs)")
    assert len(set(cells)) == 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1e308] * 3, "1e+308 ± 0 (3 runs)"),
        ([sys.float_info.max, -sys.float_info.max], "0 ± 1.8e+308 (2 runs)"),
        ([0.0, 0.0], "0 ± 0 (2 runs)"),
        ([1.0, 2.0, 3.0], "2 ± 0.58 (3 runs)"),
    ],
)
def test_comparison_shows_the_mean_of_huge_values(values: list[float], text: str) -> None:
    def valued(seed: int) -> History:
        def changed(event: Event) -> Event:
            if isinstance(event, SessionOpened):
                return replace(event, settings=replace(event.settings, seed=seed))
            return replace(event, value=values[seed]) if isinstance(event, TrialSucceeded) else event

        return fold(map(changed, SyntheticLog(trials=3, sessions=1).events()))

    assert dict(side_by_side([*map(valued, range(len(values)))]))["mean over seeds"] == [text] * len(values)
