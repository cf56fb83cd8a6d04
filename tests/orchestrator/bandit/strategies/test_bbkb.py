"""Batches of BBKB: each pick against dense matrices, the rules that end a batch, the warm start.

Arms that are appended to a state of BBKB.

The user's prior over arms counts in the choice, less with each result, and not in the model.

The guarantees of BBKB, measured: sizes of dictionaries, and regret beside the uniform policy.

As long as the best reward is that of most arms, picks cover the space.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.scheduling import Schedule
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import LEAST_PRIOR, PRIOR_RESULTS, Knowledge
from bbkb.orchestrator.bandit.sparse.strategy import Resampling
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation, Pick, Wait
from tests.orchestrator.bandit.decisions import arms_of, choice
from tests.orchestrator.bandit.eager import eager
from tests.orchestrator.bandit.effective_dimension import effective_dimension
from tests.orchestrator.bandit.sequential_runs import value
from tests.orchestrator.bandit.strategies.bbkb_games import AWKWARD, GRID, PAPER, SMOOTH, batches, play, table


def dense_upper_bounds(strategy: BBKB, state: Any, picks: list[int]) -> Iterator[tuple[Floats, Floats]]:
    """u of every arm before each pick, from dense matrices alone."""
    arms, lam = state.model.arms, strategy.regularization
    gram = strategy.kernel.cross(arms, arms)
    inducing = gram[np.ix_(state.dictionary, state.dictionary)]
    values, vectors = np.linalg.eigh(inducing)
    keep = values > 1e-13 * values.max()
    Z = gram[:, state.dictionary] @ (vectors[:, keep] / np.sqrt(values[keep]))
    V = (Z.T * state.pulls.counts) @ Z + lam * np.eye(keep.sum())
    mean = Z @ np.linalg.solve(V, Z.T @ state.pulls.reward_sums)
    residual = (gram.diagonal() - (Z * Z).sum(axis=1)) / lam
    width = 0.1 * math.sqrt(2 * state.information_gain + math.log(100)) + math.sqrt(lam)
    for arm in picks:
        variance = residual + np.einsum("ai,ia->a", Z, np.linalg.solve(V, Z.T))
        yield mean + width * np.sqrt(np.maximum(variance, 0)), variance
        V += np.outer(Z[arm], Z[arm])


def test_pick_is_the_brute_force_argmax_with_its_reason() -> None:
    arms = np.random.default_rng(3).random((50, 2))
    strategy = replace(SMOOTH, kernel=Matern52(0.3))
    for state, decision in list(play(strategy, arms, 25))[1:]:
        picks = [pick.arm for pick in decision.picks]
        for pick, (ucb, variance) in zip(decision.picks, dense_upper_bounds(strategy, state, picks), strict=True):
            assert ucb[pick.arm] >= ucb.max() - 1e-9
            assert pick.mean + pick.width * math.sqrt(pick.variance) == pytest.approx(ucb[pick.arm], abs=1e-8)
            assert pick.variance == pytest.approx(variance[pick.arm], abs=1e-8)


def test_pick_computes_no_promised_gain_without_a_fitted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Picking, "upper_bound")
    monkeypatch.delattr(Knowledge, "prospect")
    assert {decision.prospect for _, decision in play(SMOOTH, GRID, 20)} == {None}


def test_decision_computes_its_promised_gain_once(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, rng = BBKB(**with_preset(BBKB, {})), np.random.default_rng(0)
    state = strategy.init(GRID, rng)
    for _ in range(4):
        arms = arms_of(strategy.ask(state, [], 10))
        state = strategy.tell(state, [Observation(arm, float(GRID[arm].sum())) for arm in arms], rng)
    asked, bound_of = list[int](), Picking.upper_bound

    def counted(picking: Picking, arm: int) -> float:
        asked.append(arm)
        return bound_of(picking, arm)

    monkeypatch.setattr(Picking, "upper_bound", counted)
    decision = choice(strategy.ask(state, [], 5))
    assert decision.prospect is not None
    assert (len(decision.picks), len(asked)) == (5, 1)


def test_arm_that_crosses_the_threshold_belongs_to_the_batch() -> None:
    for state, decision in list(play(SMOOTH, GRID, 30))[1:]:
        old = np.array([state.posterior.variance[pick.arm] for pick in decision.picks])
        assert decision.reason == "drift budget"
        assert 1 + old.sum() > 2
        assert 1 + old[:-1].sum() <= 2


def test_ratio_threshold_of_one_gives_batches_of_one() -> None:
    sizes = [len(batch) for batch in batches(replace(SMOOTH, ratio_threshold=1.0), GRID, 40)]
    assert sizes == [1] * 40


@given(seed=st.integers(0, 10**6))
def test_local_batch_extends_the_global_one_which_extends_that_of_the_product_rule(seed: int) -> None:
    arms = np.random.default_rng(seed).random((40, 2))
    for state, _ in list(play(SMOOTH, arms, 12, seed=seed))[1::4]:
        batches = {}
        for rule in ("product", "global", "global_then_local"):
            decision = replace(SMOOTH, termination=rule).ask(state, (), 10_000)
            batches[rule] = arms_of(decision)
        assert batches["global"][: len(batches["product"])] == batches["product"]
        assert batches["global_then_local"][: len(batches["global"])] == batches["global"]


def test_local_rule_makes_longer_batches() -> None:
    sizes = {
        rule: sum(
            map(len, batches(replace(SMOOTH, kernel=RBF(0.15), termination=rule, warm_start=RandomStart(60)), GRID, 16))
        )
        for rule in ("global", "global_then_local")
    }
    assert sizes["global_then_local"] > 1.2 * sizes["global"]


def test_limit_cuts_a_batch_and_is_its_recorded_reason() -> None:
    *_, (state, full) = play(replace(SMOOTH, warm_start=RandomStart(60)), GRID, 30)
    cut = choice(SMOOTH.ask(state, (), 2))
    assert cut.reason == "limit"
    assert cut.picks == full.picks[:2]
    assert len(full.picks) > 2


def test_pending_pulls_spend_the_drift_budget() -> None:
    *_, (state, full) = play(replace(SMOOTH, warm_start=RandomStart(60)), GRID, 30)
    assert len(full.picks) > 2
    picks = [pick.arm for pick in full.picks]
    for cut in range(len(picks)):
        remaining = choice(SMOOTH.ask(state, picks[:cut], 10_000))
        assert remaining.picks == full.picks[cut:]
    spent = SMOOTH.ask(state, picks, 10_000)
    assert isinstance(spent, Wait)
    assert "drift budget" in spent.reason


def test_warm_start_comes_first_and_the_strategy_waits_for_its_rewards() -> None:
    strategy = replace(SMOOTH, warm_start=RandomStart(5))
    state = strategy.init(GRID, np.random.default_rng(0))
    first = strategy.ask(state, (), 3)
    assert (len(choice(first).picks), first.reason) == (3, "warm start")
    pending = arms_of(first)
    pending += arms_of(strategy.ask(state, pending, 30))
    assert pending == list(state.initial)
    assert isinstance(strategy.ask(state, pending, 30), Wait)


def test_failed_warm_start_is_replaced_by_the_same_number_of_draws() -> None:
    strategy = replace(SMOOTH, warm_start=RandomStart(2))
    state = strategy.init(GRID, np.random.default_rng(0))
    half = strategy.tell(state, [Observation(state.initial[0], None)], np.random.default_rng(1))
    assert half.initial == state.initial
    failed = strategy.tell(half, [Observation(state.initial[1], None)], np.random.default_rng(2))
    assert failed.remaining_start() == list(failed.initial[2:])
    assert len(failed.initial) == 4
    assert len(set(failed.initial)) == 4


@pytest.mark.parametrize("workers", [4, 20])
def test_batches_after_uncertainty_sampling_feed_a_third_of_the_workers(workers: int) -> None:
    # max_x σ²(x) ≤ 1/P, and σ̃² ≤ 3σ² with the theory's oversampling, so P (C̃ − 1)/3 arms fit into
    # any batch
    start = UncertaintyStart(workers=workers, max_pulls=10_000)
    strategy = replace(SMOOTH, regularization=0.1, oversampling=80.0, warm_start=start, ratio_threshold=4.0)
    for state, decision in play(strategy, GRID, 12):
        if decision.reason != "warm start":
            exact = exact_posterior(strategy.kernel, GRID, state.pulls, strategy.regularization)[1]
            assert exact.max() <= 1 / workers
            assert len(decision.picks) >= workers * (4.0 - 1) / 3


def test_learned_batch_adds_to_the_information_gain_with_the_old_variances() -> None:
    *_, (before, decision), (after, _) = play(SMOOTH, GRID, 12)
    old = [before.posterior.variance[pick.arm] for pick in decision.picks]
    assert after.information_gain == pytest.approx(before.information_gain + np.log1p(old).sum())
    assert set(after.dictionary.tolist()) <= set(after.pulls.arms.tolist())


def test_bbkb_can_be_built_from_a_plain_mapping() -> None:
    adapter = TypeAdapter(BBKB)
    mapping = {
        "kernel": {"name": "matern52", "lengthscale": [0.5, 2]},
        "warm_start": {"name": "uncertainty", "max_pulls": 9},
        "ratio_threshold": 3,
    }
    expected = BBKB(kernel=Matern52((0.5, 2.0)), warm_start=UncertaintyStart(max_pulls=9), ratio_threshold=3.0)
    assert adapter.validate_python(mapping) == expected
    assert adapter.validate_json(adapter.dump_json(expected)) == expected
    with pytest.raises(ValidationError, match="Input should be greater than 0"):
        adapter.validate_python({"regularization": -1})


@pytest.mark.parametrize("termination", ["global", "global_then_local"])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=10)
def test_appended_arms_are_chosen_as_in_a_model_built_with_all_arms(termination: Termination, sizes: list[int]) -> None:
    """The oracle at each round is a model made of all arms at once, with the same pulls and the
    same dictionary."""
    strategy = replace(SMOOTH, kernel=Matern52(0.4), termination=termination, warm_start=RandomStart(10))
    rng = np.random.default_rng(sum(sizes))
    state = strategy.init(AWKWARD, np.random.default_rng(0))
    for number, size in enumerate(sizes):
        arms = arms_of(strategy.ask(state, (), 10))
        rewards = value(state.model.arms[arms])
        observations = [Observation(arm, float(reward)) for arm, reward in zip(arms, rewards, strict=True)]
        before = strategy.tell(state, observations, np.random.default_rng(number))
        old_arms, pulls = before.model.arms.copy(), before.pulls
        state = before.extend(np.concatenate((rng.random((size, 2)), AWKWARD[:1])))
        whole = replace(state, model=SparseModel(strategy.kernel, state.model.arms, strategy.regularization))
        assert strategy.ask(state, (3, 3), 10) == strategy.ask(whole, (3, 3), 10)
        assert state.posterior.moments(np.arange(len(state.model.arms)))[1].shape == (len(state.model.arms),)
        assert (before.model.arms == old_arms).all()
        assert before.pulls == pulls
        again = replace(before, model=SparseModel(strategy.kernel, before.model.arms, strategy.regularization))
        assert strategy.ask(before, (), 10) == strategy.ask(again, (), 10)  # the old state is unchanged


def test_arms_that_are_appended_must_look_like_the_others() -> None:
    state = SMOOTH.init(GRID, np.random.default_rng(0))
    with pytest.raises(ValueError, match="finite"):
        state.extend(np.full((1, GRID.shape[1]), np.nan))
    with pytest.raises(ValueError, match=r"2 features.*got 3"):
        state.extend(np.zeros((1, 3)))


SQUARE = np.random.default_rng(0).random((400, 2))
EXPECTED = -0.5 * ((SQUARE - 0.8) ** 2).sum(axis=1) / 0.25**2
CHOOSER = BBKB(**with_preset(BBKB, {"coverage": 0.0}))


def search(chooser: BBKB, log_prior: np.ndarray[Any, Any] | None, results: int) -> tuple[Any, list[int]]:
    """Return the state after this number of results, and the arms, chosen one at a time; the best
    arm is at (.2, .2)."""
    rewards = -((SQUARE - 0.2) ** 2).sum(axis=1)
    arms, pulled = Arms.of(SQUARE, repeats=False, log_prior=log_prior), list[int]()
    state = chooser.init(arms, np.random.default_rng(0))
    for number in range(results):
        decision = choice(chooser.ask(state, [], 1))
        pulled.append(decision.picks[0].arm)
        told = [Observation(pulled[-1], float(rewards[pulled[-1]]))]
        state = chooser.tell(state, told, np.random.default_rng([1, number]))
    return state, pulled


def test_pick_has_the_largest_bound_with_the_bonus_of_all_arms() -> None:
    differing = 0
    for results in (10, 12, 14, 20):
        state, _ = search(CHOOSER, EXPECTED, results)
        belief = CHOOSER.posterior(state)
        bounds = belief.ucb + PRIOR_RESULTS / results * np.maximum(EXPECTED, LEAST_PRIOR)
        bounds[state.blocked_arms()] = -np.inf
        decision = choice(CHOOSER.ask(state, [], 1))
        assert decision.picks[0].arm == np.argmax(bounds)
        differing += int(np.argmax(np.where(np.isinf(bounds), -np.inf, belief.ucb)) != np.argmax(bounds))
    assert differing


def test_lazy_picks_equal_eager_ones_with_pending_pulls() -> None:
    state, _ = search(CHOOSER, EXPECTED, 20)
    picked = []
    for chooser in (CHOOSER, eager(CHOOSER)):
        picked.append(arms_of(chooser.ask(state, [3, 5], 16)))
    assert picked[0] == picked[1]


def test_belief_about_rewards_equals_the_one_without_a_prior() -> None:
    state, _ = search(CHOOSER, EXPECTED, 12)
    plain = replace(state, log_prior=None)
    assert np.array_equal(CHOOSER.posterior(state).mean, CHOOSER.posterior(plain).mean)
    assert CHOOSER.recommend(state) == CHOOSER.recommend(plain)


def test_wrong_prior_is_overcome() -> None:
    _, pulled = search(CHOOSER, EXPECTED, 60)
    late = SQUARE[pulled[40:]]
    assert np.median(np.abs(late - 0.2).max(axis=1)) < 0.3


def test_new_arms_bring_their_prior() -> None:
    state, _ = search(CHOOSER, EXPECTED, 9)
    after = CHOOSER.extend(state, np.array([[0.5, 0.5]]), [], np.array([-3.0]))
    assert after.prior_bonus is not None
    assert after.prior_bonus.shape == (401,)
    assert after.prior_bonus[400] == pytest.approx(PRIOR_RESULTS / 9 * LEAST_PRIOR)


def test_promised_gain_is_at_least_that_of_the_largest_bound() -> None:
    for results in (8, 9, 12, 20):
        state, _ = search(CHOOSER, EXPECTED, results)
        decision = choice(CHOOSER.ask(state, [], 1))
        if decision.prospect is None:  # nothing is fitted yet
            continue
        bounds = np.delete(CHOOSER.posterior(state).ucb, state.blocked_arms())
        largest = state.knowledge.prospect(float(bounds.max()))
        assert decision.prospect.gain >= largest.gain - 1e-9
        assert results > 9 or largest.gain > 0.0


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_dictionaries_stay_within_theorem_1(resampling: Resampling) -> None:
    strategy = replace(SMOOTH, resampling=resampling)
    for state, _ in list(play(strategy, GRID, 40))[1:]:
        dimension = effective_dimension(strategy.kernel, GRID, state.pulls, strategy.regularization)
        counts, record = state.pulls.counts, strategy.recorded(state)
        assert record["effective_dimension"] == pytest.approx(counts @ state.posterior.variance, rel=1e-3)
        assert dimension / 3 <= record["effective_dimension"] <= 3 * dimension
        assert "dictionary_bound" not in record  # its q̄ is not that of the theorem
        assert (
            len(state.dictionary)
            <= 9 * 2 * (1 + 1 / strategy.regularization) * strategy.oversampling_after(40) * dimension
        )


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
@pytest.mark.parametrize("width", ["practical", "theory"])
def test_regret_on_a_smooth_function_falls_well_below_uniform(resampling: Resampling, width: Schedule) -> None:
    arms = np.random.default_rng(5).random((300, 2))
    strategy = replace(
        PAPER,
        regularization=0.0025,
        noise_variance=0.0025,
        width=width,
        resampling=resampling,
        norm_bound=0.5,
    )
    pulled: list[int] = []
    for _, decision in play(strategy, arms, 1000):
        pulled += [pick.arm for pick in decision.picks]
        if len(pulled) >= 1000:
            break
    true = value(arms)
    regret = np.cumsum(true.max() - true[pulled[:1000]])
    ratio = regret / (np.arange(1, 1001) * (true.max() - true.mean()))
    assert ratio[-1] < 0.5 * ratio[99]
    assert ratio[-1] < (0.1 if width == "practical" else 0.4)


@pytest.mark.parametrize("name", ["abalone/abalone.csv", "bundled"])
def test_bbkb_beats_uniform_on_real_tables(name: str) -> None:
    arms, true = table(name)
    strategy = replace(PAPER, kernel=RBF(12.5), delta=1e-3)
    state, noise = strategy.init(arms, np.random.default_rng(0)), np.random.default_rng(1)
    regret, count, half = 0.0, 0, 0.0
    while count < 500:
        picked = arms_of(strategy.ask(state, (), 500 - count))
        regret += float((true.max() - true[picked]).sum())
        count += len(picked)
        half = half or (regret / count if count >= 250 else 0.0)
        rewards = true[picked] + 0.01 * noise.standard_normal(len(picked))
        state = strategy.tell(
            state, list(map(Observation, picked, rewards.tolist())), np.random.default_rng([0, count])
        )
    assert regret / 500 < 0.6 * (true.max() - true.mean())
    assert regret / 500 < half


ON_A_PLATEAU = BBKB(**with_preset(BBKB, {}))
POINTS = np.random.default_rng(0).random((300, 3))
NEAR = np.abs(POINTS - 0.5).max(axis=1)


def picks(reward_of: Callable[[int], float], *, repeats: bool = False, **options: Any) -> list[Pick]:
    """Return 40 picks, one at a time."""
    state = ON_A_PLATEAU.init(Arms.of(POINTS, repeats=repeats, **options), np.random.default_rng(0))
    picked: list[Pick] = []
    for number in range(40):
        picked += choice(ON_A_PLATEAU.ask(state, [], 1)).picks
        told = [Observation(picked[-1].arm, reward_of(picked[-1].arm))]
        state = ON_A_PLATEAU.tell(state, told, np.random.default_rng(number))
    return picked


@pytest.mark.parametrize("poor", [0.0, -1.0])
def test_picks_cover_the_space_until_one_arm_is_better(poor: float) -> None:
    """Some arms may even be worse than the plateau."""
    hit = picks(lambda arm: 0.0)[20].arm

    def reward(arm: int) -> float:
        return 1.0 if arm == hit else poor if POINTS[arm, 0] < 0.2 else 0.0

    picked = picks(reward)
    at = [pick.arm for pick in picked].index(hit)
    assert at >= 10
    assert {pick.reason for pick in picked[10 : at + 1]} == {"spread"}
    assert "spread" not in {pick.reason for pick in picked[at + 1 :]}


def test_picks_on_a_plateau_are_not_at_the_edge() -> None:
    edge = np.mean(NEAR > 0.45)  # of all arms
    assert np.mean([NEAR[pick.arm] > 0.45 for pick in picks(lambda arm: 0.0)[10:]]) < edge + 0.15


def test_no_pick_covers_the_space_if_rewards_are_noise_or_the_user_expects_good_arms() -> None:
    rng = np.random.default_rng(1)
    noisy = picks(lambda arm: float(rng.random() < 0.7), repeats=True)
    assert "spread" not in {pick.reason for pick in noisy[24:]}
    expected = picks(lambda arm: 0.0, log_prior=-((POINTS - 0.9) ** 2).sum(axis=1))
    assert "spread" not in {pick.reason for pick in expected}


def test_batch_on_a_plateau_has_the_picks_of_single_asks() -> None:
    state = ON_A_PLATEAU.init(Arms.of(POINTS, repeats=False), np.random.default_rng(0))
    state = ON_A_PLATEAU.tell(state, [Observation(arm, 0.0) for arm in range(12)], np.random.default_rng(1))
    together = [pick.arm for pick in choice(ON_A_PLATEAU.ask(state, [50], 6)).picks]
    pending = [50]
    while len(pending) < 7:
        pending += [pick.arm for pick in choice(ON_A_PLATEAU.ask(state, pending, 1)).picks]
    assert together == pending[1:]
    assert len(set(pending)) == 7
