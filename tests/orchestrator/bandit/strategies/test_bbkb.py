"""`strategies.bbkb`: picks and batches, with shortcuts and without, and the trials that are continued."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from bbkb.orchestrator.ask_tell.checks import named_strategy
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.results import CurveUpdate, TrialCurve, Turn
from bbkb.orchestrator.bandit.scheduling import Schedule
from bbkb.orchestrator.bandit.sparse import argmax_queue, upper_bounds
from bbkb.orchestrator.bandit.sparse.all_arms import AllArms
from bbkb.orchestrator.bandit.sparse.forecasts import UNSEEN_VARIANCE, PausedTrials
from bbkb.orchestrator.bandit.sparse.picking import BatchPosterior, Picking
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import LEAST_PRIOR, PRIOR_RESULTS, Knowledge, SparseState
from bbkb.orchestrator.bandit.sparse.strategy import Resampling
from bbkb.orchestrator.bandit.sparse.termination import Termination
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick, Wait
from tests.examples import examples, spread
from tests.orchestrator.bandit.eager import eager
from tests.orchestrator.bandit.sequential_runs import arms_of, choice, effective_dimension, value
from tests.orchestrator.bandit.strategies.bbkb_games import AWKWARD, GRID, PAPER, SMOOTH, batches, play, table
from tests.present import present


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
@settings(max_examples=examples(10))
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
    arms, pulled = Arms.of(SQUARE, is_deterministic=True, log_prior=log_prior), list[int]()
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


def test_preference_of_the_center_decays_from_10_results_on_and_ends_at_100() -> None:
    state, _ = search(CHOOSER, EXPECTED, 5)
    layout = replace(present(state.layout), prefers_center=True)
    for results, share in ((5, 1.0), (10, 1.0), (40, 0.25), (99, 10 / 99)):
        pulls = Pulls.none(len(SQUARE)).add([0] * results, [0.0] * results)
        assert present(replace(state, layout=layout, pulls=pulls).prior_bonus) == pytest.approx(share * EXPECTED)
    pulls = Pulls.none(len(SQUARE)).add([0] * 100, [0.0] * 100)
    assert replace(state, layout=layout, pulls=pulls).prior_bonus is None


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


@pytest.mark.parametrize(("resampling", "width"), spread(["pulls", "arms"], ["practical", "theory"]))
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
    arms = Arms.of(POINTS, is_deterministic=None if repeats else True, **options)
    state = ON_A_PLATEAU.init(arms, np.random.default_rng(0))
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
    only_center = picks(lambda arm: 0.0, log_prior=-((POINTS - 0.5) ** 2).sum(axis=1), prefers_center=True)
    assert {pick.reason for pick in only_center[10:]} == {"spread"}


def test_batch_on_a_plateau_has_the_picks_of_single_asks() -> None:
    state = ON_A_PLATEAU.init(Arms.of(POINTS, repeats=False), np.random.default_rng(0))
    state = ON_A_PLATEAU.tell(state, [Observation(arm, 0.0) for arm in range(12)], np.random.default_rng(1))
    together = [pick.arm for pick in choice(ON_A_PLATEAU.ask(state, [50], 6)).picks]
    pending = [50]
    while len(pending) < 7:
        pending += [pick.arm for pick in choice(ON_A_PLATEAU.ask(state, pending, 1)).picks]
    assert together == pending[1:]
    assert len(set(pending)) == 7


MANY = np.vstack((AWKWARD, np.random.default_rng(5).random((200, 2))))


KERNELS_AND_RULES = spread([RBF(0.3), RBF(5.0), Matern32(0.5), Linear()], ["global", "global_then_local", "product"])


@pytest.mark.parametrize(("kernel", "termination"), KERNELS_AND_RULES)
@pytest.mark.parametrize("arms", [GRID, AWKWARD])
def test_lazy_picks_equal_eager_ones_with_ties_duplicates_and_near_singular_dictionaries(
    termination: Termination, kernel: AnyKernel, arms: NDArray[np.float64]
) -> None:
    lazy = replace(SMOOTH, kernel=kernel, termination=termination, warm_start=RandomStart(60))
    rounds, limit = 12, 40
    oracle = batches(eager(lazy), arms, rounds, limit=limit)
    assert batches(lazy, arms, rounds, limit=limit) == oracle
    assert max(map(len, oracle)) > 1


class Work:
    """The cost of lazy evaluation: sweeps over all arms for a reference, and computed arms."""

    def __init__(self, patch: pytest.MonkeyPatch, is_kept: bool) -> None:
        self.is_kept, self.sweeps, self.evaluated = is_kept, 0, 0
        refer, enter = AllArms._refer, BatchPosterior.enter

        def count_and_refer(arms: AllArms, *arguments: Any) -> Any:
            self.sweeps += 1
            return refer(arms, *arguments)

        def count_and_enter(posterior: Any, arms: Indices) -> None:
            self.evaluated += len(arms)
            enter(posterior, arms)

        patch.setattr(AllArms, "_refer", count_and_refer)
        patch.setattr(BatchPosterior, "enter", count_and_enter)

    def check_little_work(self, arms: int, batches: int) -> None:
        """Otherwise every arm was computed anyway, or in a fresh sweep, and equal picks would prove
        nothing."""
        if self.is_kept:  # bounds of an old posterior, which are still valid
            assert self.sweeps <= 2
        else:
            assert self.sweeps < 0.7 * batches
            assert self.evaluated < 0.55 * arms * batches


@pytest.fixture(params=["as paid for", "always"])
def work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count the work of screening in small steps; with `always`, a reference is used as long as it
    bounds anything."""
    if request.param == "always":
        monkeypatch.setattr(upper_bounds, "COST", 0.0)
        monkeypatch.setattr(upper_bounds, "RATIO", 9.0)
    monkeypatch.setattr(argmax_queue, "FIRST_NEAR", 16)
    monkeypatch.setattr(argmax_queue, "FIRST_LOOK", 4)
    return Work(monkeypatch, is_kept=request.param == "always")


@cache
def asynchronous_game(strategy: BBKB) -> list[Any]:
    """Every decision, while rewards arrive in any order, pulls stay pending, and some fail."""
    rng, true = np.random.default_rng([1, 3]), value(MANY)
    state = strategy.init(MANY, np.random.default_rng(0))
    decisions: list[Any] = []
    pending: list[int] = []
    for number in range(40):
        decision = strategy.ask(state, pending, 12)
        decisions.append(decision)
        if isinstance(decision, Choose):
            pending += [pick.arm for pick in decision.picks]
        rng.shuffle(pending)
        done, still_pending = np.split(np.array(pending, np.intp), [int(rng.integers(1, len(pending) + 1))])
        pending = still_pending.tolist()
        rewards = [None if rng.random() < 0.04 else float(true[arm] + 0.05 * rng.standard_normal()) for arm in done]
        observations = [Observation(int(arm), reward) for arm, reward in zip(done, rewards, strict=True)]
        state = strategy.tell(state, observations, np.random.default_rng([1, 2, number]))
    assert len(state.set_aside) > 0
    return decisions


@pytest.mark.parametrize(("kernel", "termination"), KERNELS_AND_RULES)
def test_screened_decisions_equal_eager_ones_with_pending_and_failed_pulls(
    termination: Termination, kernel: AnyKernel, work: Work
) -> None:
    lazily = replace(
        SMOOTH, kernel=kernel, termination=termination, warm_start=RandomStart(30), regularization=0.1, delta=0.5
    )
    expected = asynchronous_game(eager(lazily))
    work.sweeps = work.evaluated = 0
    assert asynchronous_game.__wrapped__(lazily) == expected  # widths, means and variances too, bit for bit
    decisions = [decision for decision in expected if decision.reason != "warm start" and isinstance(decision, Choose)]
    assert max(len(decision.picks) for decision in decisions) > 1
    work.check_little_work(len(MANY), len(decisions))


@given(seed=st.integers(0, 10**6))
def test_screened_decisions_equal_eager_ones_on_random_problems(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = np.vstack((rng.random((60, 2)), rng.random((1, 2))))
    arms[40:50] = arms[:10]
    arms[50:60] = arms[:10] + 10.0 ** rng.uniform(-12, -4)
    strategy = replace(
        SMOOTH,
        kernel=(RBF, Matern32, Matern52)[seed % 3](float(rng.uniform(0.1, 3))),
        regularization=float(10 ** rng.uniform(-4, -0.5)),
        ratio_threshold=float(rng.uniform(1.5, 6)),
        termination=("global", "global_then_local", "product")[rng.integers(3)],
        local_covariance=("embedded", "paper")[rng.integers(2)],
        warm_start=RandomStart(10),
    )
    with pytest.MonkeyPatch.context() as patch:
        for module, name, number in (
            (upper_bounds, "COST", 0.0),
            (argmax_queue, "FIRST_NEAR", 8),
            (argmax_queue, "FIRST_LOOK", 2),
            (argmax_queue, "MOST_NUMBERS", (300, 2**22)[seed % 2]),  # so few that arms are sent back
        ):
            patch.setattr(module, name, number)
        games: list[Any] = []
        for played_strategy in (strategy, eager(strategy)):
            played = play(played_strategy, arms, 12, seed=seed, limit=20)
            games.append([decision for _, decision in played])
    assert games[0] == games[1]


@pytest.mark.parametrize(
    "termination",
    [
        pytest.param("global", marks=pytest.mark.thorough),
        "global_then_local",
        pytest.param("product", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("regularization", [pytest.param(1e-4, marks=pytest.mark.thorough), 0.1])
def test_screened_picks_equal_eager_ones_on_a_real_table_from_few_arms(
    termination: Termination, regularization: float, work: Work
) -> None:
    arms, true = table("abalone/abalone.csv")
    arms, true = arms[:800], true[:800]
    strategy = replace(
        PAPER,
        kernel=RBF(12.5 if regularization < 1e-3 else 3.0),
        regularization=regularization,
        termination=termination,
    )
    games: list[Any] = []
    for played_strategy in (strategy, eager(strategy)):
        work.sweeps = work.evaluated = 0
        game = play(played_strategy, arms, len(games[0]) if games else 300, true=true, pulls=300)
        games.append([decision for _, decision in game])
        if played_strategy is strategy:
            work.check_little_work(len(arms), len(games[0]) - 1)
    assert games[0] == games[1]
    assert sum(len(decision.picks) for decision in games[0]) >= 300


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("lazy_", [True, False])
def test_single_picks_with_pending_ones_equal_the_batch(termination: Termination, lazy_: bool) -> None:
    """Caches between two asks at a state change no pick, and neither does their absence."""
    strategy = replace(SMOOTH, termination=termination, ratio_threshold=3.0)
    strategy = strategy if lazy_ else eager(strategy)
    for state, decision in play(strategy, AWKWARD, rounds=6):
        if decision.reason == "warm start":
            continue
        batch = [pick.arm for pick in decision.picks]
        going_on: list[int] = []
        while isinstance(step := strategy.ask(state, tuple(going_on), 2), Choose):
            assert strategy.ask(state, tuple(going_on), 2) == step  # a second time, from the start
            going_on += [pick.arm for pick in step.picks]
        assert going_on == batch
        for number in range(0, len(batch), 3):
            fresh = replace(state)  # nothing kept
            step = choice(strategy.ask(fresh, tuple(batch[:number]), 1))
            assert step.picks[0].arm == batch[number]


LAST, TRIALS = 16, 40
PAUSED = list(range(1, TRIALS, 2))


def strategy() -> BBKB:
    instance: Any = named_strategy("bbkb")
    assert isinstance(instance, BBKB)
    return instance


def curve_of(features: np.ndarray, trial: int, arm: int) -> TrialCurve:
    """Odd trials were stopped at step 4; a curve rises to an end that is best in the middle of the
    space."""
    end, curve = -float(np.sum((features[arm] - 0.5) ** 2)), TrialCurve(trial, arm)
    for step in (1, 2, 4) if trial % 2 else (1, 2, 4, 8, LAST):
        curve = curve.after(step, end - 0.5 / step)
    return curve if trial % 2 else curve.end(curve.rewards[-1])


def begun(bbkb: BBKB, features: np.ndarray, repeats: bool = False) -> SparseState:
    return bbkb.init(Arms.of(features, repeats=repeats), np.random.default_rng(0))


def tell(
    bbkb: BBKB, state: SparseState, curves: Sequence[TrialCurve], paused: Sequence[int], **options: Any
) -> SparseState:
    """The state after these curves and their latest values."""
    observations = [Observation(curve.arm, curve.rewards[-1], is_stopped=not curve.is_finished) for curve in curves]
    told = bbkb.with_curves(state, CurveUpdate(tuple(curves), tuple(paused), LAST, **options))
    return bbkb.tell(told, observations, np.random.default_rng(0))


def learned(bbkb: BBKB, features: np.ndarray, trials: int, before: SparseState | None = None) -> SparseState:
    """The state that knows the trials up to `trials`."""
    state = begun(bbkb, features) if before is None else before
    first_new = len(state.curve_state.known.by_trial)
    curves = [curve_of(features, trial, trial) for trial in range(first_new, trials)]
    return tell(bbkb, state, curves, range(1, trials, 2))


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(1).random((300, 3))


def test_curves_are_learned_with_the_next_results(features: np.ndarray) -> None:
    bbkb = strategy()
    state = learned(bbkb, features, TRIALS)
    posterior = state.posterior
    curve = TrialCurve(TRIALS, 250, (1, 2), (5.0, 6.0))
    told = bbkb.with_curves(state, CurveUpdate((curve,), (), LAST))
    assert told.posterior is posterior
    assert TRIALS not in told.curve_state.known.by_trial
    after = bbkb.tell(told, [Observation(251, 0.1)], np.random.default_rng(0))
    assert after.curve_state.known.by_trial[TRIALS].rewards == (5.0, 6.0)
    assert after.curve_state.unlearned is None


def test_draws_and_fits_do_not_depend_on_earlier_computations(features: np.ndarray) -> None:
    bbkb = strategy()
    states = [learned(bbkb, features, TRIALS) for _ in range(2)]
    assert isinstance(bbkb.ask(states[0], (), 3), Choose)  # the other one has computed nothing
    records = [bbkb.recorded(learned(bbkb, features, TRIALS + 6, state)) for state in states]
    assert records[0] == records[1]


def test_unlearned_values_change_neither_the_model_nor_a_forecast(features: np.ndarray) -> None:
    bbkb, rng, found = strategy(), np.random.default_rng(3), []
    for is_changed in (False, True):
        curves = [curve_of(features, trial, trial) for trial in range(TRIALS)]
        if is_changed:  # the first three values, at steps 1, 2 and 4
            early = [tuple(rng.normal(size=3).tolist()) for _ in curves]
            rewards = [(*values, *curve.rewards[3:]) for curve, values in zip(curves, early, strict=True)]
            curves = [replace(curve, rewards=rewards[curve.trial]) for curve in curves]
        state = tell(bbkb, begun(bbkb, features), curves, PAUSED, learned_from=8)
        record = bbkb.recorded(state)
        forecasts = [(one.trial, one.mean, one.high) for one in bbkb.predict_trials(state, PAUSED)]
        found.append((record["dictionary"], record["model"]["curve"], forecasts))
    assert found[0] == found[1]
    assert [trial for trial, _, _ in found[0][2]] == PAUSED


def test_stopped_trials_compete_in_the_order_of_their_bounds(features: np.ndarray) -> None:
    state = learned(strategy(), features, TRIALS)
    predictions = present(state.paused_predictions)
    spreads = np.sqrt(np.maximum(predictions.deviations**2 - predictions.noise, 0.0))
    bounds = predictions.means + 2.0 * spreads
    running = [int(predictions.arms[np.argmax(bounds)])]
    competing, taken = PausedTrials(state, running, 2.0), []
    while (best := competing.take(-100.0, 0.0)) is not None:
        taken.append(best.trial)
    expected = [trial for trial in predictions.trials[np.argsort(-bounds)].tolist() if trial not in running]
    assert taken == expected
    assert PausedTrials(state, [], 2.0).take(100.0, 0.0) is None
    forced = replace(state, curve_state=replace(state.curve_state, compete=Turn.PAUSED_FIRST))
    first = present(PausedTrials(forced, running, 2.0).take(100.0, 0.0))
    assert first.trial == expected[0]


def test_paused_trial_that_has_diverged_is_expected_to_end_poorly_and_is_not_continued(features: np.ndarray) -> None:
    bbkb, taken, means = strategy(), [], []
    for has_diverged in (False, True):
        curves = [curve_of(features, trial, trial) for trial in range(TRIALS)]
        best = max(PAUSED, key=lambda trial: curves[trial].rewards[-1])
        if has_diverged:
            curves[best] = curves[best].after(5, math.nan)
        state = tell(bbkb, begun(bbkb, features), curves, PAUSED)
        competing = PausedTrials(state, (), 2.0)
        tops = [competing.take(-100.0, 0.0) for _ in PAUSED]
        taken.append({top.trial for top in tops if top is not None})
        means.append(bbkb.predict_trials(state, [best])[0].mean)
    assert taken[0] - taken[1] == {best}
    assert means[1] < means[0]


def test_forecasts_are_wider_until_a_trial_has_reached_the_last_step(features: np.ndarray) -> None:
    """Trial 0 is at step 4, or has ended; all others were stopped at step 4."""
    bbkb, widths = strategy(), []
    for is_ended in (False, True):
        stopped = [curve_of(features, 2 * trial + 1, trial) for trial in range(1, 12)]
        first = curve_of(features, 0, 0) if is_ended else curve_of(features, 1, 0)
        state = tell(bbkb, begun(bbkb, features), [first, *stopped], [])
        # a result without a curve shows no rise
        state = bbkb.tell(state, [Observation(200, 0.3)], np.random.default_rng(0))
        trials = [curve.trial for curve in stopped]
        predictions = present(state.knowledge.predictions(trials))
        deviations = np.array([trial.deviation for trial in bbkb.predict_trials(state, trials)])
        widths.append(deviations**2 - predictions.deviations**2)
    assert widths[0] == pytest.approx(UNSEEN_VARIANCE / 2)  # log 4 is half of log 16
    assert widths[1] == pytest.approx(0.0)


def test_paused_trials_that_do_not_compete_are_neither_continued_nor_restarted(features: np.ndarray) -> None:
    bbkb = strategy()
    small = features[:TRIALS]
    curves = [curve_of(small, trial, trial) for trial in range(TRIALS)]
    state = tell(bbkb, begun(bbkb, small, repeats=True), curves, PAUSED, compete=Turn.NEW_FIRST)
    decision = choice(bbkb.ask(state, (), 20))
    assert [pick.trial for pick in decision.picks] == [None] * len(decision.picks)
    assert not {pick.arm for pick in decision.picks} & set(PAUSED)
