"""`orchestrator.bandit.exact.improvement`: Improvement on the best belief, the common part of EI
and PI (Salgia, Vakili, Zhao 2021, Appendix D.1, after Nguyen et al. 2017, "Regret for expected
improvement over the best-observed value and stopping condition").
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bandit.exact.exact import exact_posterior
from orchestrator.bandit.exact.improvement import Improvement
from orchestrator.bandit.kernels import RBF, Matern52
from orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from orchestrator.bandit.strategies.expected_improvement import ExpectedImprovement
from orchestrator.bandit.strategies.probability_of_improvement import ProbabilityOfImprovement
from orchestrator.bandit.strategy import Observation, Wait
from tests.orchestrator.bandit.decisions import choice
from tests.orchestrator.bandit.sequential_runs import run_sequentially, value

ARMS = np.random.default_rng(0).random((40, 2))
ACQUISITIONS = pytest.mark.parametrize("acquisition", [ExpectedImprovement, ProbabilityOfImprovement])
play = partial(run_sequentially, ARMS, fails=lambda arm: arm % 7 == 3)  # every seventh arm fails


@ACQUISITIONS
@given(seed=st.integers(0, 10**6))
def test_belief_at_every_pick_is_the_refitted_one(acquisition: type[Improvement], seed: int) -> None:
    strategy = acquisition(Matern52(0.4))
    for state, pick in list(play(strategy, 15, seed))[1:]:
        mean, variance = exact_posterior(strategy.kernel, ARMS, state.pulls, 0.01)
        np.testing.assert_allclose(state.belief.mean, mean, atol=1e-8)
        np.testing.assert_allclose(state.belief.variance, variance, atol=1e-8)
        assert (pick.mean, pick.variance) == pytest.approx((mean[pick.arm], variance[pick.arm]))
        assert np.isnan(pick.width)
        assert np.isnan(strategy.posterior(state).ucb).all()


@ACQUISITIONS
def test_best_belief_is_that_of_an_arm_that_may_be_chosen(acquisition: type[Improvement]) -> None:
    strategy, rng = acquisition(RBF(0.3)), np.random.default_rng(1)
    state = strategy.tell(strategy.init(ARMS, rng), [Observation(arm, 0.1 * arm) for arm in range(5)], rng)
    best = int(np.argmax(state.belief.mean))
    failed = strategy.tell(state, [Observation(best, None)], rng)
    target = np.delete(failed.belief.mean, best).max() + strategy.margin
    assert failed.belief == state.belief
    expected = strategy.improvement(failed.belief.mean, np.sqrt(0.01 * failed.belief.variance), target)
    assert strategy.scores(failed).tolist() == expected.tolist() != strategy.scores(state).tolist()


@ACQUISITIONS
def test_wide_margin_explores(acquisition: type[Improvement]) -> None:
    *_, (state, _) = play(acquisition(RBF(0.3)), 12)
    bold = acquisition(RBF(0.3), margin=1e6).ask(state, (), 1)
    variance = state.without_set_aside(state.belief.variance)
    assert choice(bold).picks[0].variance == pytest.approx(variance.max(), rel=1e-4)


@ACQUISITIONS
def test_improvement_ends_at_the_best_arms(acquisition: type[Improvement]) -> None:
    arms = [pick.arm for _, pick in play(acquisition(RBF(0.4)), 60)]
    possible = ARMS[np.arange(40) % 7 != 3]
    assert (value(possible).max() - value(ARMS[arms[-10:]])).mean() < 0.1
    assert len(set(arms)) < 40


@ACQUISITIONS
def test_improvement_waits_while_a_pull_is_pending(acquisition: type[Improvement]) -> None:
    assert acquisition.is_sequential
    for state, _ in play(acquisition(warm_start=RandomStart(3)), 6):
        assert isinstance(acquisition().ask(state, (4,), 5), Wait)


@ACQUISITIONS
def test_prior_decides_if_the_warm_start_failed(acquisition: type[Improvement]) -> None:
    strategy, rng = acquisition(warm_start=UncertaintyStart(max_pulls=3)), np.random.default_rng(0)
    state = strategy.init(ARMS, rng)
    failed = [Observation(arm, None) for arm in state.initial]
    (pick,) = choice(strategy.ask(strategy.tell(state, failed, rng), (), 1)).picks
    assert pick.arm == min(set(range(40)) - {observation.arm for observation in failed}), (
        "all are equal: the lowest index"
    )


@ACQUISITIONS
def test_factor_grows_by_a_row_for_an_arm_s_first_pull_only(
    acquisition: type[Improvement],
) -> None:
    strategy, rng = acquisition(), np.random.default_rng(0)
    state = strategy.tell(strategy.init(ARMS, rng), [Observation(3, 0.5), Observation(8, 0.1)], rng)
    for arm, rows in ((5, 3), (3, 3), (5, 3), (9, 4)):
        state = strategy.tell(state, [Observation(arm, 0.2)], rng)
        assert state.belief.factor.shape == (rows, rows)
    assert state.belief.counts.tolist() == [2, 1, 2, 1]


@ACQUISITIONS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regularization": 0}, "strategy.regularization must be > 0, got 0"),
        ({"margin": -0.1}, "strategy.margin must be >= 0, got -0.1"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused_with_their_name(
    acquisition: type[Improvement], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(acquisition(), **options)
