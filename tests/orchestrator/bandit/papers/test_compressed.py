"""`papers.compressed`: the exact posterior over the informative pulls only.

The acquisitions of the compressed strategies, beside the posterior of the stored pairs.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.exact.strategy import log_improvement
from bbkb.orchestrator.bandit.kernels import RBF
from bbkb.orchestrator.bandit.papers.compressed import (
    Compressed,
    CompressedEI,
    CompressedMPI,
    CompressedUCB,
    EntropyTest,
)
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick, Wait
from tests.orchestrator.bandit.sequential_runs import choice

ARMS = np.random.default_rng(0).random((30, 2))
ACQUISITIONS = [CompressedUCB, CompressedEI, CompressedMPI]


def truth(arm: int) -> float:
    return float(np.sin(6 * ARMS[arm, 0]) + ARMS[arm, 1])


def run(strategy: Compressed, steps: int, noise: float = 0.05) -> tuple[list[Any], list[Pick], list[Observation]]:
    """States, decisions and observations of a campaign of at most `steps` pulls."""
    rng = np.random.default_rng(3)
    states, picks, learned = [strategy.init(ARMS, np.random.default_rng(1))], [], []
    for _ in range(steps):
        decision = strategy.ask(states[-1], (), 5)
        if not isinstance(decision, Choose):
            assert isinstance(decision, Wait)
            break
        picks.append(decision.picks[0])
        learned.append(Observation(picks[-1].arm, truth(picks[-1].arm) + noise * rng.standard_normal()))
        states.append(strategy.tell(states[-1], [learned[-1]], np.random.default_rng()))
    return states, picks, learned


def stored(states: list[Any], learned: list[Observation]) -> list[Observation]:
    """The pulls that entered, with one `tell` for each."""
    return [observation for observation, after in zip(learned, states[1:], strict=True) if after.stored == (0,)]


def entropy(strategy: Compressed, variance: float) -> float:
    return 0.5 * math.log(2 * math.pi * math.e * (strategy.noise_variance + variance))


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
@pytest.mark.parametrize(("test", "epsilon", "floor"), [("absolute", -0.5, False), ("relative", 0.7, True)])
def test_pair_is_stored_exactly_when_its_entropy_passes_the_test(
    acquisition: type[Compressed], test: EntropyTest, epsilon: float, floor: bool
) -> None:
    strategy = acquisition(RBF(0.3), 0.01, epsilon=epsilon, entropy_test=test)
    threshold = epsilon + (math.log(math.sqrt(2 * math.pi * math.e * 0.01)) if floor else 0.0)
    states, picks, learned = run(strategy, 40)
    is_stored = []
    for before, after, pick, observation in zip(states[4:], states[5:], picks[4:], learned[4:], strict=False):
        is_stored.append(entropy(strategy, 0.01 * float(before.belief.variance[pick.arm])) > threshold)
        assert after.stored == (0,) * is_stored[-1]
        assert after.belief == (
            before.belief.pull(observation.arm, observation.reward) if is_stored[-1] else before.belief
        )
        assert after.pulls.total == before.pulls.total + 1
    assert 0 < sum(is_stored) < len(is_stored)


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
@pytest.mark.parametrize(
    ("test", "epsilon"), [("absolute", -math.inf), ("relative", 0.0)], ids=["absolute", "relative"]
)
@pytest.mark.parametrize("evaluate", [True, False])
def test_pairs_are_not_compressed_without_a_budget(
    acquisition: type[Compressed], test: EntropyTest, epsilon: float, evaluate: bool
) -> None:
    strategy = acquisition(RBF(0.3), 1e-3, epsilon, test, evaluate)
    states, picks, learned = run(strategy, 30)
    assert stored(states, learned) == learned
    assert states[-1].model_order == 30
    assert states[-1].skipped == 0
    pulls = Pulls.none(30)
    for pick, observation in zip(
        picks, learned, strict=True
    ):  # the uncompressed method, from the dense exact posterior
        if pulls.total >= 4:
            mean, variance = exact_posterior(RBF(0.3), ARMS, pulls, 1e-3)
            np.testing.assert_allclose([pick.mean, pick.variance], [mean[pick.arm], variance[pick.arm]], rtol=1e-6)
        pulls = pulls.add([observation.arm], [cast(float, observation.reward)])


def test_pair_with_a_variance_rounded_to_zero_is_stored_without_a_budget() -> None:
    strategy, rng = CompressedUCB(RBF(1.0), 1e-20, 0.0, "relative"), np.random.default_rng(0)
    state = strategy.tell(strategy.init(ARMS, rng), [Observation(0, 0.5)], rng)
    assert state.belief.variance[0] == 0.0
    assert strategy.tell(state, [Observation(0, 0.5)], rng).stored == (0,)


def test_published_budget_stores_a_few_pairs_only() -> None:
    states, _, _ = run(CompressedUCB(RBF(1.0)), 60)
    assert states[-1].pulls.total == 60
    assert states[-1].model_order <= 12
    # ½ log(2πe(σ² + v)) = 1e-4 at v = 0.0576
    assert CompressedUCB().informative_variance(1e-3) == pytest.approx(0.0576, abs=1e-4)


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_initial_points_are_distinct_and_all_stored(acquisition: type[Compressed]) -> None:
    strategy = acquisition(RBF(1.0), initial_points=12)
    states, picks, _ = run(strategy, 12)
    assert len({pick.arm for pick in picks}) == 12
    assert sorted(pick.arm for pick in picks) == states[-1].dictionary.tolist()
    assert len(acquisition().init(ARMS, np.random.default_rng(0)).initial) == 4
    assert len(acquisition().init(np.zeros((5, 8)), np.random.default_rng(0)).initial) == 5


def skipping_loop(strategy: Compressed, state: Any) -> tuple[int, int] | None:
    """The papers' loop, literally."""
    for skipped in range(strategy.max_skipped + 1):
        arm = int(state.available[np.argmax(strategy.scores(state, state.step + skipped))])
        if 1e-3 * state.belief.variance[arm] > strategy.informative_variance(1e-3):
            return arm, skipped
    return None


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_skipping_finds_the_same_step_as_a_linear_search(acquisition: type[Compressed]) -> None:
    total = skipped = 0
    for epsilon in (-1.0, 0.0):
        strategy = acquisition(RBF(0.3), 1e-3, epsilon, evaluate_uninformative=False, max_skipped=3000)
        states, picks, _ = run(strategy, 30)
        for state, after, pick in zip(states[4:], states[5:], picks[4:], strict=False):
            assert (pick.arm, after.skipped - state.skipped) == skipping_loop(strategy, state)
            assert after.step == state.step + 1 + after.skipped - state.skipped
        skipped += states[-1].skipped
        if state_is_over(strategy, states[-1]):
            assert skipping_loop(strategy, states[-1]) is None
            total += 1
    assert total > 0
    assert (skipped > 0) == (acquisition is CompressedUCB)


def state_is_over(strategy: Compressed, state: Any) -> bool:
    decision = strategy.ask(state, (), 1)
    return isinstance(decision, Wait)


def test_wider_bounds_end_the_skipping_for_ucb() -> None:
    strategy = CompressedUCB(RBF(0.3), 1e-3, -0.5, evaluate_uninformative=False)
    states, picks, learned = run(strategy, 60)
    assert states[-1].skipped > 0
    assert states[-1].model_order == len(learned)  # evaluated pairs are informative
    for state, after, pick in zip(states[4:], states[5:], picks[4:], strict=False):
        assert pick.width == strategy.width_at(state, after.step - 1)


def test_strategy_reports_that_nothing_informative_remains() -> None:
    strategy = CompressedEI(RBF(1.0), evaluate_uninformative=False, max_skipped=9)
    states, _, _ = run(strategy, 60)
    decision = strategy.ask(states[-1], (), 1)
    assert decision == Wait("the next 10 steps all fail the entropy test: nothing informative is left to pull")


def test_skipped_steps_count_when_the_following_pull_is_learned() -> None:
    strategy = CompressedUCB(RBF(0.3), 1e-3, -0.5, evaluate_uninformative=False)
    states, picks, _ = run(strategy, 60)
    at = next(i for i in range(len(picks)) if states[i + 1].skipped > states[i].skipped)
    before, rng = states[at], np.random.default_rng()
    assert strategy.tell(before, [], rng).skipped == before.skipped
    other = (picks[at].arm + 1) % 30
    assert strategy.tell(before, [Observation(other, 0.1)], rng).skipped == before.skipped
    assert strategy.tell(before, [Observation(picks[at].arm, None)], rng).skipped == states[at + 1].skipped


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_skipping_states_are_restored_from_their_records(acquisition: type[Compressed]) -> None:
    strategy = acquisition(RBF(0.3), 1e-3, -0.5, evaluate_uninformative=False)
    states, _, learned = run(strategy, 40)
    restored = strategy.init(ARMS, np.random.default_rng(1))
    for live, observation in zip(states[1:], learned, strict=True):
        restored = strategy.restore(restored, [observation], strategy.recorded(live))
        assert restored == live
        assert restored.belief.mean.tolist() == live.belief.mean.tolist()
        assert strategy.ask(restored, (), 1) == strategy.ask(live, (), 1)


@pytest.mark.parametrize("acquisition", ACQUISITIONS)
def test_existing_results_are_tested_one_by_one_in_their_order(acquisition: type[Compressed]) -> None:
    strategy = acquisition(RBF(0.5))
    start = strategy.init(ARMS, np.random.default_rng(1))
    rows = [Observation(arm, truth(arm)) for arm in range(30) for _ in range(2)]
    at_once = strategy.tell(start, rows, np.random.default_rng())
    one_by_one = start
    for row in rows:
        one_by_one = strategy.tell(one_by_one, [row], np.random.default_rng())
    assert at_once.belief == one_by_one.belief
    assert at_once.model_order == one_by_one.model_order == len(at_once.stored)
    assert (
        at_once.largest == one_by_one.largest == max(cast(float, rows[position].reward) for position in at_once.stored)
    )
    assert 4 <= len(at_once.stored) < 30  # an initial point is stored untested the first time only


@given(
    z=st.one_of(st.floats(-3, 8), st.floats(-2e3, 0), st.floats(-1e8, -1)), deviation=st.sampled_from([1e-4, 1.0, 3.0])
)
def test_tiny_improvements_have_accurate_logarithms(z: float, deviation: float) -> None:
    # φ(z) + zΦ(z) = φ(z) ∫ u exp(zu − u²/2) du over u > 0; with u = v / a the integrand keeps its
    # scale
    a = max(1.0, -z)
    integral, _ = quad(lambda v: v * math.exp(z * v / a - 0.5 * (v / a) ** 2), 0, 60, epsabs=0, epsrel=1e-11, limit=200)
    expected = math.log(deviation / math.sqrt(2 * math.pi)) - 0.5 * z * z + math.log(integral) - 2 * math.log(a)
    got = log_improvement(np.array([z * deviation]), np.array([deviation]), 0.0)[0]
    assert got == pytest.approx(expected, rel=0, abs=1e-8 + 1e-15 * z * z)


def test_certain_arm_improves_by_its_excess_over_the_target() -> None:
    got = log_improvement(np.array([3.0, 1.0]), np.zeros(2), 2.0)
    assert got[0] == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(got[1])
    assert got[1] < -1e100


def upper_bound(mean: Floats, deviation: Floats, largest: float, allowed: Indices, step: int) -> Floats:
    """Corollary 3.3, with δ = 0.2."""
    bound: Floats = mean + math.sqrt(2 * math.log(30 * step**2 * math.pi**2 / (6 * 0.2))) * deviation
    return bound


def improvement(mean: Floats, deviation: Floats, target: float) -> Floats:
    z = (mean - target) / deviation
    expected: Floats = deviation * norm.pdf(z) + (mean - target) * norm.cdf(z)
    return expected


def over_the_best_reward(mean: Floats, deviation: Floats, largest: float, allowed: Indices, step: int) -> Floats:
    return improvement(mean, deviation, largest)


def over_the_best_mean(mean: Floats, deviation: Floats, largest: float, allowed: Indices, step: int) -> Floats:
    return improvement(mean, deviation, float(mean[allowed].max()))


@pytest.mark.parametrize("epsilon", [-math.inf, -0.5])
@pytest.mark.parametrize(
    ("strategy", "acquisition"),
    [
        (CompressedUCB(RBF(0.3), 0.01, delta=0.2), upper_bound),
        (CompressedEI(RBF(0.3), 0.01), over_the_best_reward),
        (CompressedMPI(RBF(0.3), 0.01), over_the_best_mean),
    ],
)
def test_pick_has_the_largest_acquisition_given_the_stored_pairs(
    strategy: Compressed, acquisition: Callable[..., Floats], epsilon: float
) -> None:
    strategy = replace(strategy, epsilon=epsilon)
    state, rng = strategy.init(ARMS, np.random.default_rng(1)), np.random.default_rng(2)
    pairs: list[tuple[int, float]] = []
    dropped = positive = 0
    for t in range(1, 45):
        (pick,) = choice(strategy.ask(state, (), 1)).picks
        assert pick.arm not in state.set_aside
        if t > 4:
            arms, rewards = zip(*pairs, strict=True)
            mean, variance = exact_posterior(RBF(0.3), ARMS, Pulls.none(30).add(arms, rewards), 0.01)
            allowed = np.setdiff1d(np.arange(30), state.set_aside)
            scores = acquisition(mean, np.sqrt(0.01 * variance), max(rewards), allowed, t)
            assert scores[pick.arm] == pytest.approx(scores[allowed].max(), rel=1e-5)
            positive += scores.max() > 1e-6
            bounds = strategy.posterior(state).ucb
            expected = scores if acquisition is upper_bound else np.full(30, np.nan)
            np.testing.assert_allclose(bounds, expected, atol=1e-9)
        reward = float(np.sin(5 * ARMS[pick.arm, 0]) + 0.1 * rng.standard_normal())
        # the arm with the best belief fails in the middle of the run
        failed = [Observation(int(np.argmax(state.belief.mean)), None)] if t == 25 else []
        state = strategy.tell(state, [Observation(pick.arm, reward), *failed], rng)
        pairs += [(pick.arm, reward)] * (0 in state.stored)
        dropped += state.stored == ()
    assert len(state.set_aside) == 1
    assert positive > 20
    assert (dropped > 0) == (epsilon > -math.inf)


def test_improvement_too_small_for_a_float_still_picks_the_likeliest_arm() -> None:
    arms = np.linspace(0, 1, 20)[:, None]
    strategy, rng = CompressedEI(RBF(0.5), 1e-6, -math.inf), np.random.default_rng(0)
    state = strategy.init(arms, rng)
    rows = [Observation(arm, float(arms[arm, 0])) for arm in range(20)] * 4 + [Observation(19, 1.5)]
    state = strategy.tell(state, rows, rng)
    mean, deviation = state.belief.mean, np.sqrt(1e-6 * state.belief.variance)
    assert improvement(mean, deviation, 1.5).max() < 1e-300
    assert choice(strategy.ask(state, (), 1)).picks[0].arm == int(np.argmax((mean - 1.5) / deviation)) != 0


def test_ties_go_to_the_lowest_arm_that_may_be_chosen() -> None:
    strategy, rng = CompressedUCB(), np.random.default_rng(0)
    state = strategy.init(np.zeros((6, 1)), rng)
    rows = [Observation(arm, 0.5) for arm in state.initial] + [Observation(0, None)]
    state = strategy.tell(state, rows, rng)
    assert choice(strategy.ask(state, (), 1)).picks[0].arm == 1


def test_width_of_a_box_is_that_of_theorem_3_2() -> None:
    strategy = CompressedUCB(decision_set="box", gradient_constants=(2.0, 3.0), delta=0.2)
    state = strategy.init(ARMS, np.random.default_rng(0))
    r = float(np.ptp(ARMS, axis=0).max())
    beta = 2 * math.log(2 * 49 * math.pi**2 / 0.6) + 4 * math.log(49 * 2 * 3 * r * math.sqrt(math.log(4 * 2 * 2 / 0.2)))
    assert strategy.width_at(state, 7) == pytest.approx(math.sqrt(beta * state.noise))
