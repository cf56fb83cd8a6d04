"""What earlier runs gain."""

import numpy as np

from benchmarks.peers.functions import Function
from benchmarks.peers.transfer import AFTER, earlier_run, regrets


def test_a_search_begins_with_one_of_the_best_configurations_of_an_earlier_run() -> None:
    problem = Function("branin", 0)
    related = earlier_run("related", problem, 1, 1, 2, 60)
    hostile = earlier_run("hostile", problem, -1, 1, 2, 60)
    assert len(related.configurations) == len(related.rewards) == 60
    best = related.configurations[int(np.argmax(related.rewards))]
    assert problem.evaluate(best, np.random.default_rng(0)).reward == max(related.rewards)
    assert max(hostile.rewards) > max(related.rewards)  # the function's least value, times −1
    without, helped = (regrets(problem, runs, 0, 2, AFTER[-1]) for runs in ([], [related]))
    assert helped[0] < 0.01 * without[0]
    assert list(helped) == sorted(helped, reverse=True)
