"""`benchmarks.asynchrony.rivals`: Other methods that keep workers busy, with BBKB's posterior,
upper bounds and options.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.asynchrony.rivals import Barrier, Liar
from orchestrator.bandit.arms import as_arms
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.sparse.state import SparseState
from orchestrator.bandit.start.warm_start import RandomStart
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategy import Choose, Observation, Strategy

ARMS = np.random.default_rng(0).uniform(size=(40, 2))
START = RandomStart(3)


def state_after(strategy: Strategy[SparseState], seed: int, rounds: int = 2) -> SparseState:
    """A state after the warm start and `rounds` − 1 batches of four, with noisy rewards."""
    rng = np.random.default_rng(seed)
    state = strategy.init(as_arms(ARMS), rng)
    for _ in range(rounds):
        decision = strategy.ask(state, (), 4)
        assert isinstance(decision, Choose)
        arms = [pick.arm for pick in decision.picks]
        state = strategy.tell(state, [Observation(arm, float(ARMS[arm].sum() + rng.normal())) for arm in arms], rng)
    return state


def arms_of(strategy: Strategy[SparseState], state: SparseState, pending: tuple[int, ...], limit: int) -> list[int]:
    decision = strategy.ask(state, pending, limit)
    assert isinstance(decision, Choose)
    return [pick.arm for pick in decision.picks]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 40))
def test_a_barriers_batch_is_full_whatever_the_drift(seed: int, size: int, limit: int) -> None:
    barrier = Barrier(kernel=RBF(0.3), warm_start=START, ratio_threshold=1.0, batch_size=size)
    assert len(arms_of(barrier, state_after(barrier, seed), (), limit)) == min(size, limit)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_a_barrier_picks_what_bbkb_would_as_long_as_that_may_continue(seed: int) -> None:
    bbkb = BBKB(kernel=RBF(0.3), warm_start=START, ratio_threshold=6.0)
    barrier = Barrier(kernel=RBF(0.3), warm_start=START, ratio_threshold=6.0, batch_size=40)
    state = state_after(bbkb, seed)
    picked = arms_of(bbkb, state, (), 40)
    assert arms_of(barrier, state, (), 40)[: len(picked)] == picked


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(0, 39), max_size=6))
def test_a_liar_picks_as_if_the_mean_of_all_rewards_had_come_in(seed: int, pending: list[int]) -> None:
    liar = Liar(kernel=RBF(0.3), warm_start=START)
    state = state_after(liar, seed)
    lie = state.pulls.reward_sums.sum() / state.pulls.counts.sum()
    lied = list(pending)
    for arm in arms_of(liar, state, tuple(pending), 5):
        believed = state.model.fit(state.pulls.add(lied, [lie] * len(lied)), state.dictionary)
        width = liar.confidence.width(state.information_gain)
        assert arm == np.argmax(believed.mean + width * np.sqrt(believed.variance))
        lied.append(arm)


def test_a_liar_never_refuses_and_leaves_arms_alone_that_were_set_aside() -> None:
    liar = Liar(kernel=RBF(0.3), warm_start=START, ratio_threshold=1.0)
    rng = np.random.default_rng(0)
    state = liar.tell(state_after(liar, 0), [Observation(arm, None) for arm in range(1, 40)], rng)
    assert Counter(arms_of(liar, state, (0,) * 50, 7)) == {0: 7}


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be >= 1"):
        Barrier(batch_size=0)
