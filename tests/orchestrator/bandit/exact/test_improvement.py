"""`orchestrator.bandit.exact.improvement`: Improvement on the best belief, the common part of EI
and PI (Salgia, Vakili, Zhao 2021, Appendix D.1, after Nguyen et al. 2017, "Regret for expected
improvement over the best-observed value and stopping condition").
"""

from functools import partial

import numpy as np
import pytest

from orchestrator.bandit.exact.improvement import Improvement
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.strategies.expected_improvement import ExpectedImprovement
from orchestrator.bandit.strategies.probability_of_improvement import ProbabilityOfImprovement
from orchestrator.bandit.strategy import Observation
from tests.orchestrator.bandit.decisions import choice
from tests.orchestrator.bandit.sequential_runs import run_sequentially

ARMS = np.random.default_rng(0).random((40, 2))
ACQUISITIONS = pytest.mark.parametrize("acquisition", [ExpectedImprovement, ProbabilityOfImprovement])
play = partial(run_sequentially, ARMS, fails=lambda arm: arm % 7 == 3)  # every seventh arm fails


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
def test_factor_grows_by_a_row_for_an_arm_s_first_pull_only(
    acquisition: type[Improvement],
) -> None:
    strategy, rng = acquisition(), np.random.default_rng(0)
    state = strategy.tell(strategy.init(ARMS, rng), [Observation(3, 0.5), Observation(8, 0.1)], rng)
    for arm, rows in ((5, 3), (3, 3), (5, 3), (9, 4)):
        state = strategy.tell(state, [Observation(arm, 0.2)], rng)
        assert state.belief.factor.shape == (rows, rows)
    assert state.belief.counts.tolist() == [2, 1, 2, 1]
