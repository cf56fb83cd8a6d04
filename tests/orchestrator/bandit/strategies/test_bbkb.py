"""Batches of BBKB: each pick against dense matrices, the rules that end a batch, the warm start."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, Matern52
from bbkb.orchestrator.bandit.sparse.picking import Picking
from bbkb.orchestrator.bandit.sparse.state import Knowledge
from bbkb.orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Observation, Wait
from tests.orchestrator.bandit.decisions import arms_of, choice
from tests.orchestrator.bandit.strategies.bbkb_games import GRID, SMOOTH, batches, play


def dense_upper_bounds(strategy: BBKB, state: Any, picks: list[int]) -> Iterator[tuple[Floats, Floats]]:
    """u of every arm before each pick, from dense matrices alone."""
    arms, lam = state.arms, strategy.regularization
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
