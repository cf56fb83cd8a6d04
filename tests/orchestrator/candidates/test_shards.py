"""`candidates.shards`: actors that hold blocks of arms and answer queries about them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from bbkb.orchestrator.candidates.shards import ShardedArms
from bbkb.orchestrator.errors import ActorLostError

pytestmark = pytest.mark.usefixtures("ray_cluster")

ARMS = np.random.default_rng(0).random((600, 2))
ARMS[300:310] = ARMS[:10]  # equal arms in different shards
STRATEGY = BBKB(
    kernel=RBF(0.3), regularization=0.01, noise_variance=0.01, ratio_threshold=60.0, warm_start=RandomStart(20)
)


@pytest.fixture(params=[1, 3], scope="module")
def sharded(request: pytest.FixtureRequest) -> Iterator[ShardedArms]:
    """The arms over one or three actors."""
    arms = ShardedArms.start(ARMS, request.param)
    yield arms
    arms.close()


def decisions(strategy: BBKB, arms: Floats | ShardedArms) -> list[Choose]:
    state, decisions_made = strategy.init(arms, np.random.default_rng(1)), []
    for number in range(5):
        decision = strategy.ask(state, (5, 5) if number % 2 else (), 25)
        assert isinstance(decision, Choose)
        decisions_made.append(decision)
        observations = [Observation(pick.arm, float(np.sin(5 * ARMS[pick.arm]).sum())) for pick in decision.picks]
        observations.append(Observation(100 * number, None))
        state = strategy.tell(state, observations, np.random.default_rng(number))
    return decisions_made


@pytest.mark.parametrize("termination", ["global", "global_then_local"])
def test_decisions_over_shards_equal_those_of_one_array_bit_for_bit(
    sharded: ShardedArms, termination: Termination
) -> None:
    strategy = replace(STRATEGY, termination=termination)
    assert decisions(strategy, sharded) == decisions(strategy, ARMS)


def test_uncertainty_sampling_over_shards_equals_that_of_one_array(sharded: ShardedArms) -> None:
    strategy = replace(STRATEGY, warm_start=UncertaintyStart(max_pulls=8))
    initial = [strategy.init(arms, np.random.default_rng(0)).initial for arms in (sharded, ARMS)]
    assert initial[0] == initial[1]


def test_belief_over_shards_equals_that_of_one_array(sharded: ShardedArms) -> None:
    observations = [Observation(arm, float(arm)) for arm in range(0, 600, 40)]
    beliefs = []
    for arms in (sharded, ARMS):
        state = STRATEGY.init(arms, np.random.default_rng(0))
        beliefs.append(STRATEGY.posterior(STRATEGY.tell(state, observations, np.random.default_rng(1))))
    np.testing.assert_allclose(beliefs[0].mean, beliefs[1].mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(beliefs[0].variance, beliefs[1].variance, rtol=1e-9, atol=1e-9)


def test_shards_with_appended_arms_equal_one_array(sharded: ShardedArms) -> None:
    appended = np.random.default_rng(5).random((9, 2))
    answers = []
    for arms in (sharded, ARMS):
        state = STRATEGY.init(arms, np.random.default_rng(0))
        for number in range(3):
            decision = STRATEGY.ask(state, (), 20)
            assert isinstance(decision, Choose)
            observations = [Observation(pick.arm, float(pick.arm % 7)) for pick in decision.picks]
            state = STRATEGY.tell(state, observations, np.random.default_rng(number)).extend(appended[3 * number :][:3])
            answers.append(decision)
        assert len(state.arms) == 609
    assert answers[:3] == answers[3:]


def test_shards_with_two_alternating_states_equal_one_array(sharded: ShardedArms) -> None:
    answers = []
    for arms in (sharded, ARMS):
        first_state = STRATEGY.init(arms, np.random.default_rng(0))
        first_state = STRATEGY.tell(
            first_state, [Observation(arm, float(arm)) for arm in first_state.initial], np.random.default_rng(1)
        )
        other = STRATEGY.tell(first_state, [Observation(7, 90.0)], np.random.default_rng(2))
        picks: tuple[list[int], list[int]] = ([], [])
        for _ in range(12):
            for state, pending in zip((first_state, other), picks, strict=True):
                decision = STRATEGY.ask(state, tuple(pending), 1)
                pending += [pick.arm for pick in decision.picks] if isinstance(decision, Choose) else []
        answers.append(picks)
    assert answers[0] == answers[1]
    assert len(answers[0][0]) > 1


def test_dead_shard_is_an_error_with_a_remedy() -> None:
    sharded = ShardedArms.start(ARMS, 2)
    state = STRATEGY.init(sharded, np.random.default_rng(0))
    state = STRATEGY.tell(state, [Observation(arm, 0.5) for arm in state.initial], np.random.default_rng(1))
    sharded.close()
    with pytest.raises(ActorLostError, match=r"a shard of the candidates died .* `bbkb resume` continues"):
        STRATEGY.ask(state, (), 3)
