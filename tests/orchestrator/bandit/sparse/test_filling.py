"""Fillers: uncertainty sampling given everything pending, against the exact variances where they are known."""

import numpy as np
import pytest

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.exact import exact_posterior
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.sparse.filling import most_uncertain
from orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategy import Choose, Observation, Wait

ARMS = np.random.default_rng(0).random((60, 2))
KERNEL, LAMBDA = RBF(0.3), 0.2
STRATEGY = BBKB(
    kernel=KERNEL, regularization=LAMBDA, oversampling=1e9, warm_start=UncertaintyStart(workers=8, max_pulls=3)
)


def state_after(pulled: list[int]):  # type: ignore[no-untyped-def]  # a SparseState
    state = STRATEGY.init(ARMS, np.random.default_rng(1))
    return (
        STRATEGY.tell(state, [Observation(arm, 0.5) for arm in pulled], np.random.default_rng(2)) if pulled else state
    )


def exact(state, arms: list[int]) -> Floats:  # type: ignore[no-untyped-def]
    pulls = state.pulls.add(arms, np.zeros(len(arms)))
    return exact_posterior(KERNEL, ARMS, pulls, LAMBDA)[1]


@pytest.mark.parametrize("pulled", [[], [3, 10, 10, 40]])
@pytest.mark.parametrize("pending", [[], [7], [7, 7, 21, 33]])
def test_each_filler_is_an_arm_of_largest_variance_given_all_before_it(pulled: list[int], pending: list[int]) -> None:
    state = state_after(pulled)
    known = list(pending)
    picks = most_uncertain(state, pending, target=0.0, limit=4)
    assert len(picks) == 4
    for number, pick in enumerate(picks):
        variance = exact(state, known)
        # what is not pulled yet is no inducing point, and the pulled arms are: the first is exact, the rest within 1 %
        assert pick.variance == pytest.approx(variance[pick.arm], rel=1e-6 if number == 0 else 1e-2)
        assert variance[pick.arm] >= variance.max() * (1 - (1e-9 if number == 0 else 1e-2))
        known.append(pick.arm)


def test_nothing_is_filled_in_once_every_variance_is_below_the_target() -> None:
    state = state_after([3, 10])
    top = float(exact(state, [7]).max())
    assert most_uncertain(state, [7], target=top * 1.001, limit=5) == ()
    assert len(most_uncertain(state, [7], target=top * 0.999, limit=1)) == 1


def test_arms_set_aside_are_no_fillers() -> None:
    state = state_after([3])
    first = most_uncertain(state, [], 0.0, 1)[0].arm
    after = STRATEGY.tell(state, [Observation(first, None)], np.random.default_rng(3))
    assert first not in [pick.arm for pick in most_uncertain(after, [], 0.0, 10)]


def test_fillers_need_a_warm_start_that_knows_how_many_workers_there_are() -> None:
    for start in (RandomStart(), UncertaintyStart()):
        strategy = BBKB(warm_start=start)
        assert isinstance(strategy.fill(strategy.init(ARMS, np.random.default_rng(0)), [], 3), Wait)
    assert isinstance(STRATEGY.fill(state_after([3]), [5], 3), Choose)
