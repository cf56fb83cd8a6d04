"""Tests of orchestrator/adapters/backlog.py: a pickled backlog."""

from collections import deque

from bbkb.objectives.parameters import Range
from bbkb.orchestrator.adapters.backlog import Backlog, Result
from bbkb.orchestrator.ask_tell.space import Optimizer


def test_results_that_wait_in_a_pickle_of_version_0_2_0_are_learned() -> None:
    optimizer = Optimizer({"x": Range(0.0, 1.0)}, direction="maximize", seed=1)
    first, second = optimizer.ask(2)
    state = Backlog(optimizer, size=1).__getstate__()
    state["_results"] = deque([(first, 0.5), (second, None)])  # pairs of a configuration and a value
    backlog = Backlog.__new__(Backlog)
    backlog.__setstate__(state)
    backlog.learn(Result({"x": 0.25}, 0.75))
    backlog.wait_until_filled()
    assert [trial.value for trial in optimizer.trials] == [0.5, None, 0.75]
