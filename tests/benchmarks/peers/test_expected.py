"""Problems with priors: they are near a good or a bad configuration, and evaluate as the problem
itself."""

import numpy as np

from benchmarks.peers.expected import Expected
from benchmarks.peers.functions import Function
from objectives.parameters import Range


def test_right_priors_are_better_than_the_median_and_wrong_ones_worse() -> None:
    inner, rng = Function("branin", 0, 0.0), np.random.default_rng(0)
    for is_misled in (False, True):
        problem = Expected(inner, 0, is_misled)
        point = {name: kind.prior for name, kind in problem.space.items() if isinstance(kind, Range)}
        assert (problem.evaluate(point, rng).regret > 1.0) == is_misled
        assert problem.evaluate(point, rng) == inner.evaluate(point, rng)
