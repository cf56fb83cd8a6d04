"""`bbkb.orchestrator.bandit.strategies.uniform`: The uniform policy: every pull an arm at random."""

import numpy as np

from bbkb.orchestrator.bandit.strategies.uniform import MOST_PENDING, Uniform
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Wait
from tests.orchestrator.bandit.sequential_runs import arms_of

ARMS = np.zeros((10, 1))


def test_arms_are_uniform_over_those_not_set_aside() -> None:
    uniform = Uniform()
    state = uniform.init(ARMS, np.random.default_rng(0))
    state = uniform.tell(state, [Observation(3, None), Observation(7, None)], np.random.default_rng(0))
    counts = np.bincount(arms_of(uniform.ask(state, (), 4000)), minlength=10)
    assert counts[[3, 7]].tolist() == [0, 0]
    # five standard deviations of a count with mean 500 are below 110
    assert abs(counts[np.setdiff1d(np.arange(10), [3, 7])] - 500).max() < 110


def test_finished_and_pending_pulls_advance_the_sequence_alike() -> None:
    uniform = Uniform()
    state = uniform.init(ARMS, np.random.default_rng(0))
    after = uniform.tell(state, [Observation(1, 0.5), Observation(1, 0.5)], np.random.default_rng(0))
    assert uniform.ask(after, (), 5) == uniform.ask(state, (1, 1), 5)
    assert uniform.ask(after, (), 5) != uniform.ask(state, (), 5)


def test_batch_ends_at_the_number_of_results_that_a_campaign_may_keep() -> None:
    uniform = Uniform()
    state = uniform.init(ARMS, np.random.default_rng(0))
    assert isinstance(uniform.ask(state, [1] * (MOST_PENDING - 1), 5), Choose)
    assert uniform.ask(state, [1] * MOST_PENDING, 5) == Wait("batch of 20000 pulls")


def test_uniform_posterior_contains_only_mean_rewards() -> None:
    uniform = Uniform()
    state = uniform.init(ARMS, np.random.default_rng(0))
    believed = uniform.posterior(
        uniform.tell(state, [Observation(4, 1.0), Observation(4, 2.0)], np.random.default_rng())
    )
    assert believed.mean[4] == 1.5
    assert np.isnan(believed.mean).sum() == 9
    assert np.isnan(believed.variance).all()
    assert np.isnan(believed.ucb).all()


def test_seeds_give_different_sequences() -> None:
    uniform = Uniform()
    one, other = (uniform.init(ARMS, np.random.default_rng(seed)) for seed in (0, 1))
    assert uniform.ask(one, (), 20) != uniform.ask(other, (), 20)
