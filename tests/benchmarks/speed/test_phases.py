"""Where a search spends its time (`benchmarks.speed.phases`)."""

import pytest

from benchmarks.speed import phases
from benchmarks.speed.measure import play
from benchmarks.speed.phases import REST, WATCHED, measure
from benchmarks.speed.problems import Problem, load
from orchestrator.bandit.sparse.blocks import Block

SMALL = load("synthetic", 300, 3)


def test_phases_of_a_search_have_its_time_and_what_their_shapes_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "load", lambda name: SMALL)
    taken = measure("synthetic", 60, "global_then_local")
    assert set(taken) == {watched.phase for watched in WATCHED} | {REST}
    for phase in taken.values():
        assert phase.seconds >= 0.0
        assert (phase.calls > 0) == (phase.operations > 0.0) == (phase.moved > 0.0)
    assert taken["a pull: variances of the arms that are looked at"].calls >= 50
    assert taken["sweep over all arms"].calls >= 1


def test_clocks_change_no_pick_and_are_removed() -> None:
    def picks(problem: Problem) -> object:
        return play(problem, problem.strategy(60, "global"), 60, 0)["arms"]

    sweep, alone = Block.sweep, picks(SMALL)
    with phases._clocks():
        assert picks(SMALL) == alone
    assert Block.sweep is sweep
