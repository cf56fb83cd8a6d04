import csv
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from sklearn.datasets import load_diabetes

from benchmarks.regret import cumulative_regret, regret_ratio
from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.confidence import Schedule
from orchestrator.bandit.exact.exact import effective_dimension, exact_posterior
from orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from orchestrator.bandit.sparse import lazy, screening
from orchestrator.bandit.sparse.all_arms import LocalBlocks
from orchestrator.bandit.sparse.blocks import Block
from orchestrator.bandit.sparse.dictionary import Resampling
from orchestrator.bandit.sparse.posterior import SparseModel
from orchestrator.bandit.sparse.screening import UpperBounds
from orchestrator.bandit.sparse.state import SparseState, initial_state
from orchestrator.bandit.sparse.termination import Termination
from orchestrator.bandit.start.warm_start import RandomStart, UncertaintyStart
from orchestrator.bandit.strategies.bbkb import BBKB
from orchestrator.bandit.strategy import Choose, Observation, Wait
from tests.orchestrator.bandit.decisions import array, choice

GRID = np.stack(np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8)), axis=-1).reshape(
    -1, 2
)  # symmetric: full of ties
AWKWARD = np.vstack((GRID, GRID[::3], GRID[:5] + 1e-9))  # duplicates, near-duplicates
# as in the papers' experiments
PAPER = BBKB(
    kernel=RBF(0.5),
    regularization=1e-4,
    noise_variance=1e-4,
    norm_bound=1.0,
    ratio_threshold=2.0,
    termination="global",
    warm_start=RandomStart(),
)
SMOOTH = replace(PAPER, regularization=0.01, noise_variance=0.01)


def value(arms: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.sin(4 * arms[:, 0]) * np.cos(3 * arms[:, -1])
    return result


def play(
    strategy: BBKB,
    arms: np.ndarray,
    rounds: int,
    seed: int = 0,
    limit: int = 10_000,
    true: NDArray[np.float64] | None = None,
    pulls: int = 10**9,
) -> Iterator[tuple[Any, Choose]]:
    """Every decision of a synchronous run, and the state before it, until there were `rounds` or `pulls`."""
    true = value(arms) if true is None else true
    state = strategy.init(arms, np.random.default_rng([seed, 0]))
    noisy = np.random.default_rng([seed, 1])
    for number in range(rounds):
        decision = strategy.ask(state, (), limit)
        assert isinstance(decision, Choose)
        yield state, decision
        chosen = [pick.arm for pick in decision.picks]
        rewards = true[chosen] + 0.05 * noisy.standard_normal(len(chosen))
        observations = [Observation(arm, float(reward)) for arm, reward in zip(chosen, rewards, strict=True)]
        state = strategy.tell(state, observations, np.random.default_rng([seed, 2, number]))
        pulls -= len(chosen)
        if pulls <= 0:
            return


def batches(strategy: BBKB, arms: np.ndarray, rounds: int, **settings: Any) -> list[list[int]]:
    return [[pick.arm for pick in decision.picks] for _, decision in play(strategy, arms, rounds, **settings)]


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("kernel", [RBF(0.3), RBF(5.0), Matern32(0.5), Linear()])
@pytest.mark.parametrize("arms", [GRID, AWKWARD])
def test_lazy_picks_are_the_eager_ones_with_ties_duplicates_and_near_singular_dictionaries(
    termination: Termination, kernel: AnyKernel, arms: NDArray[np.float64]
) -> None:
    lazy = replace(SMOOTH, kernel=kernel, termination=termination, warm_start=RandomStart(60))
    rounds, limit = 12, 40
    eager = batches(replace(lazy, lazy=False), arms, rounds, limit=limit)
    assert batches(lazy, arms, rounds, limit=limit) == eager
    assert max(map(len, eager)) > 1


@given(seed=st.integers(0, 10**6))
def test_lazy_picks_are_the_eager_ones_on_random_problems(seed: int) -> None:
    arms = np.random.default_rng(seed).random((30, 2))
    lazy = replace(SMOOTH, regularization=0.05, termination=("global", "global_then_local")[seed % 2])
    assert batches(lazy, arms, 5, seed=seed) == batches(replace(lazy, lazy=False), arms, 5, seed=seed)


class Work:
    """The cost of lazy evaluation: sweeps over all arms for a reference, and computed arms."""

    def __init__(self, patch: pytest.MonkeyPatch, is_kept: bool) -> None:
        self.is_kept, self.sweeps, self.looked_at = is_kept, 0, 0
        refer, looked_at = Block._refer, UpperBounds.looked_at

        def count_and_refer(block: Any, *arguments: Any) -> Any:
            self.sweeps += 1
            return refer(block, *arguments)

        def count_and_look(bounds: Any, arms: int) -> None:
            self.looked_at += arms
            looked_at(bounds, arms)

        patch.setattr(Block, "_refer", count_and_refer)
        patch.setattr(UpperBounds, "looked_at", count_and_look)

    def check_little_work(self, arms: int, batches: int) -> None:
        """Otherwise every arm was computed anyway, or in a fresh sweep, and equal picks would prove nothing."""
        if self.is_kept:  # bounds far out of date, but bounds
            assert self.sweeps <= 2
        else:
            assert self.sweeps < 0.7 * batches
            assert self.looked_at < 0.55 * arms * batches


@pytest.fixture(params=["as paid for", "always"])
def work(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Of screening in small steps; kept `always`, a reference serves as long as it bounds anything."""
    if request.param == "always":
        monkeypatch.setattr(screening, "TIGHTEN_COST", 0.0)
        monkeypatch.setattr(screening, "LOOK_COST", 0.0)
    monkeypatch.setattr(lazy, "FIRST_NEAR", 16)
    monkeypatch.setattr(lazy, "FIRST_LOOK", 4)
    return Work(monkeypatch, is_kept=request.param == "always")


def asynchronous_game(strategy: BBKB, state: SparseState, steps: int, limit: int, seed: int) -> list[Any]:
    """Every decision, while rewards arrive in any order, pulls stay pending, and some fail."""
    rng, true = np.random.default_rng([seed, 3]), value(array(state.arms))
    decisions: list[Any] = []
    pending: list[int] = []
    for number in range(steps):
        decision = strategy.ask(state, pending, limit)
        decisions.append(decision)
        if isinstance(decision, Choose):
            pending += [pick.arm for pick in decision.picks]
        rng.shuffle(pending)
        done, left = np.split(np.array(pending, np.intp), [int(rng.integers(1, len(pending) + 1))])
        pending = left.tolist()
        rewards = [None if rng.random() < 0.04 else float(true[arm] + 0.05 * rng.standard_normal()) for arm in done]
        observations = [Observation(int(arm), reward) for arm, reward in zip(done, rewards, strict=True)]
        state = strategy.tell(state, observations, np.random.default_rng([seed, 2, number]))
    assert len(state.set_aside) > 0
    return decisions


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("kernel", [RBF(0.3), RBF(5.0), Matern32(0.5), Linear()])
def test_screened_decisions_are_the_eager_ones_with_pending_and_failed_pulls(
    termination: Termination, kernel: AnyKernel, work: Work
) -> None:
    lazily = replace(
        SMOOTH, kernel=kernel, termination=termination, warm_start=RandomStart(30), regularization=0.1, delta=0.5
    )
    arms, games = np.vstack((AWKWARD, np.random.default_rng(5).random((200, 2)))), []
    for strategy in (replace(lazily, lazy=False), lazily):
        work.sweeps = work.looked_at = 0
        state = strategy.init(arms, np.random.default_rng(0))
        games.append(asynchronous_game(strategy, state, 40, limit=12, seed=1))
    assert games[0] == games[1]  # widths, means and variances too, bit for bit
    chosen = [decision for decision in games[0] if decision.reason != "warm start" and isinstance(decision, Choose)]
    assert max(len(decision.picks) for decision in chosen) > 1
    work.check_little_work(len(arms), len(chosen))


@given(seed=st.integers(0, 10**6))
def test_screened_decisions_are_the_eager_ones_on_random_problems(seed: int) -> None:
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
            (screening, "TIGHTEN_COST", 0.0),
            (screening, "LOOK_COST", 0.0),
            (lazy, "FIRST_NEAR", 8),
            (lazy, "FIRST_LOOK", 2),
        ):
            patch.setattr(module, name, number)
        games: list[Any] = []
        for one in (strategy, replace(strategy, lazy=False)):
            played = play(one, arms, 12, seed=seed, limit=20)
            games.append([decision for _, decision in played])
    assert games[0] == games[1]


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("regularization", [1e-4, 0.1])
def test_screened_picks_are_the_eager_ones_on_a_real_table_and_look_at_few_arms(
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
    for one in (strategy, replace(strategy, lazy=False)):
        work.sweeps = work.looked_at = 0
        game = play(one, arms, 300 if one.lazy else len(games[0]), true=true, pulls=300)
        games.append([decision for _, decision in game])
        if one.lazy:
            work.check_little_work(len(arms), len(games[0]) - 1)
    assert games[0] == games[1]
    assert sum(len(decision.picks) for decision in games[0]) >= 300


class Divided:
    """Candidates in several blocks."""

    def __init__(self, features: np.ndarray, cuts: list[int]) -> None:
        self.features, self.cuts = features, cuts

    def __len__(self) -> int:
        return len(self.features)

    def blocks(self, kernel: AnyKernel, regularization: float) -> LocalBlocks:
        return LocalBlocks([Block(kernel, part, regularization) for part in np.split(self.features, self.cuts)])

    def extend(self, features: Floats) -> "Divided":
        return Divided(np.concatenate((self.features, features)), [*self.cuts, len(self.features)])


@pytest.mark.parametrize("termination", ["global", "global_then_local"])
def test_decisions_are_the_same_in_any_division_of_the_arms_into_blocks(termination: Termination, work: Work) -> None:
    strategy = replace(SMOOTH, kernel=Matern52(0.4), termination=termination, warm_start=RandomStart(30))
    start = strategy.init(AWKWARD, np.random.default_rng(0))
    games: list[Any] = []
    for cuts in ([], [40], [1, 2, 30, 80]):
        model = SparseModel(strategy.kernel, cast(Any, Divided(AWKWARD, cuts)), strategy.regularization)
        state, decisions = initial_state(model, start.initial), []
        for number in range(15):
            decision = strategy.ask(state, (), 20)
            decisions.append(decision)
            observations = [
                Observation(pick.arm, float(value(AWKWARD[[pick.arm]])[0])) for pick in choice(decision).picks
            ]
            state = strategy.tell(state, observations, np.random.default_rng(number))
        games.append(decisions)
    assert games[0] == games[1] == games[2]


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


def test_every_pick_is_the_brute_force_argmax_and_says_why() -> None:
    arms = np.random.default_rng(3).random((50, 2))
    strategy = replace(SMOOTH, kernel=Matern52(0.3))
    for state, decision in list(play(strategy, arms, 25))[1:]:
        picks = [pick.arm for pick in decision.picks]
        for pick, (ucb, variance) in zip(decision.picks, dense_upper_bounds(strategy, state, picks), strict=True):
            assert ucb[pick.arm] >= ucb.max() - 1e-9
            assert pick.mean + pick.width * math.sqrt(pick.variance) == pytest.approx(ucb[pick.arm], abs=1e-8)
            assert pick.variance == pytest.approx(variance[pick.arm], abs=1e-8)


def test_the_arm_that_crosses_the_threshold_belongs_to_the_batch() -> None:
    for state, decision in list(play(SMOOTH, GRID, 30))[1:]:
        old = np.array([state.posterior.variance[pick.arm] for pick in decision.picks])
        assert decision.reason == "drift budget"
        assert 1 + old.sum() > 2
        assert 1 + old[:-1].sum() <= 2


def test_a_ratio_threshold_of_one_gives_batches_of_one() -> None:
    sizes = [len(batch) for batch in batches(replace(SMOOTH, ratio_threshold=1.0), GRID, 40)]
    assert sizes == [1] * 40


@given(seed=st.integers(0, 10**6))
def test_the_local_batch_begins_with_the_global_one_and_the_global_one_with_the_product_rule_s(seed: int) -> None:
    arms = np.random.default_rng(seed).random((40, 2))
    for state, _ in list(play(SMOOTH, arms, 12, seed=seed))[1::4]:
        chosen = {}
        for rule in ("product", "global", "global_then_local"):
            decision = replace(SMOOTH, termination=rule).ask(state, (), 10_000)
            chosen[rule] = [pick.arm for pick in choice(decision).picks]
        assert chosen["global"][: len(chosen["product"])] == chosen["product"]
        assert chosen["global_then_local"][: len(chosen["global"])] == chosen["global"]


def test_the_local_rule_makes_longer_batches() -> None:
    sizes = {
        rule: sum(
            map(len, batches(replace(SMOOTH, kernel=RBF(0.15), termination=rule, warm_start=RandomStart(60)), GRID, 16))
        )
        for rule in ("global", "global_then_local")
    }
    assert sizes["global_then_local"] > 1.2 * sizes["global"]


def test_the_limit_cuts_a_batch_and_says_so() -> None:
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
        rest = choice(SMOOTH.ask(state, picks[:cut], 10_000))
        assert rest.picks == full.picks[cut:]
    spent = SMOOTH.ask(state, picks, 10_000)
    assert isinstance(spent, Wait)
    assert "drift budget" in spent.reason


def test_the_warm_start_comes_first_and_rewards_are_waited_for() -> None:
    strategy = replace(SMOOTH, warm_start=RandomStart(5))
    state = strategy.init(GRID, np.random.default_rng(0))
    first = strategy.ask(state, (), 3)
    assert (len(choice(first).picks), first.reason) == (3, "warm start")
    pending = [pick.arm for pick in choice(first).picks]
    pending += [pick.arm for pick in choice(strategy.ask(state, pending, 30)).picks]
    assert pending == list(state.initial)
    assert isinstance(strategy.ask(state, pending, 30), Wait)


def test_as_many_arms_as_failed_are_drawn_when_the_whole_warm_start_failed() -> None:
    strategy = replace(SMOOTH, warm_start=RandomStart(2))
    state = strategy.init(GRID, np.random.default_rng(0))
    half = strategy.tell(state, [Observation(state.initial[0], None)], np.random.default_rng(1))
    assert half.initial == state.initial
    failed = strategy.tell(half, [Observation(state.initial[1], None)], np.random.default_rng(2))
    assert failed.remaining_start() == list(failed.initial[2:])
    assert len(failed.initial) == 4
    assert len(set(failed.initial)) == 4


@pytest.mark.parametrize("workers", [4, 20])
def test_after_uncertainty_sampling_every_batch_feeds_a_third_of_the_workers(workers: int) -> None:
    # max_x σ²(x) ≤ 1/P, and σ̃² ≤ 3σ² with the theory's oversampling, so P (C̃ − 1)/3 arms fit into any batch
    start = UncertaintyStart(workers=workers, max_pulls=10_000)
    strategy = replace(SMOOTH, regularization=0.1, oversampling=80.0, warm_start=start, ratio_threshold=4.0)
    for state, decision in play(strategy, GRID, 12):
        if decision.reason != "warm start":
            exact = exact_posterior(strategy.kernel, GRID, state.pulls, strategy.regularization)[1]
            assert exact.max() <= 1 / workers
            assert len(decision.picks) >= workers * (4.0 - 1) / 3


def test_a_told_batch_adds_to_the_information_gain_with_the_old_variances() -> None:
    *_, (before, decision), (after, _) = play(SMOOTH, GRID, 12)
    old = [before.posterior.variance[pick.arm] for pick in decision.picks]
    assert after.information_gain == pytest.approx(before.information_gain + np.log1p(old).sum())
    assert set(after.dictionary.tolist()) <= set(after.pulls.arms.tolist())


@pytest.mark.parametrize("resampling", ["pulls", "arms"])
def test_dictionaries_stay_within_theorem_1(resampling: Resampling) -> None:
    strategy = replace(SMOOTH, resampling=resampling)
    for state, _ in list(play(strategy, GRID, 40))[1:]:
        dimension = effective_dimension(strategy.kernel, GRID, state.pulls, strategy.regularization)
        assert len(state.dictionary) <= 9 * 2 * (1 + 1 / strategy.regularization) * strategy.oversampling * dimension


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
    uniform = np.arange(1, 1001) * (true.max() - true.mean())
    ratio = regret_ratio(cumulative_regret(true.max(), true[pulled[:1000]]), uniform)
    assert ratio[-1] < 0.5 * ratio[99]
    assert ratio[-1] < (0.1 if width == "practical" else 0.4)


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised features and the target scaled to [0, 1]: Abalone from BBKB_DATA, or what scikit-learn brings."""
    folder = Path(os.environ.get("BBKB_DATA", Path(__file__).parents[5] / "shared" / "data"))
    path = folder / name
    if path.exists():
        rows = list(csv.reader(path.read_text().splitlines()))[1:]
        features = np.array([[float(cell) for cell in row[-8:-1]] for row in rows])
        target = np.array([float(row[-1]) for row in rows])
    else:
        features, target = load_diabetes(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return features, (target - target.min()) / np.ptp(target)


@pytest.mark.parametrize("name", ["abalone/abalone.csv", "bundled"])
def test_on_real_tables_it_beats_uniform(name: str) -> None:
    arms, true = table(name)
    strategy = replace(PAPER, kernel=RBF(12.5), delta=1e-3)
    state, noise = strategy.init(arms, np.random.default_rng(0)), np.random.default_rng(1)
    regret, count, half = 0.0, 0, 0.0
    while count < 500:
        chosen = [pick.arm for pick in choice(strategy.ask(state, (), 500 - count)).picks]
        regret += float((true.max() - true[chosen]).sum())
        count += len(chosen)
        half = half or (regret / count if count >= 250 else 0.0)
        rewards = true[chosen] + 0.01 * noise.standard_normal(len(chosen))
        state = strategy.tell(
            state, list(map(Observation, chosen, rewards.tolist())), np.random.default_rng([0, count])
        )
    assert regret / 500 < 0.6 * (true.max() - true.mean())
    assert regret / 500 < half


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regularization": -1}, "strategy.regularization must be > 0, got -1"),
        ({"noise_variance": -0.5}, "strategy.noise_variance must be >= 0, got -0.5"),
        ({"norm_bound": math.inf}, "strategy.norm_bound must be >= 0 and finite, got inf"),
        ({"delta": 1}, "strategy.delta must be > 0 and < 1, got 1"),
        ({"oversampling": 0.5}, "strategy.oversampling must be >= 1, got 0.5"),
        ({"ratio_threshold": math.nan}, "strategy.ratio_threshold must be >= 1, got nan"),
        ({"width": "wide"}, "strategy.width must be practical, theory or a number > 0, got 'wide'"),
        (
            {"termination": "never"},
            "strategy.termination must be one of global, global_then_local, product, got 'never'",
        ),
        ({"local_covariance": "x"}, "strategy.local_covariance must be one of embedded, paper, got 'x'"),
        ({"dictionary_limit": 0}, "strategy.dictionary_limit must be a whole number >= 1 or left out, got 0"),
        ({"resampling": "x"}, "strategy.resampling must be one of pulls, arms, stable, got 'x'"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        BBKB(**options)
    assert str(raised.value) == message


def test_it_can_be_built_from_a_plain_mapping() -> None:
    adapter = TypeAdapter(BBKB)
    mapping = {
        "kernel": {"name": "matern52", "lengthscale": [0.5, 2]},
        "warm_start": {"name": "uncertainty", "max_pulls": 9},
        "ratio_threshold": 3,
    }
    expected = BBKB(kernel=Matern52((0.5, 2.0)), warm_start=UncertaintyStart(max_pulls=9), ratio_threshold=3.0)
    assert adapter.validate_python(mapping) == expected
    assert adapter.validate_json(adapter.dump_json(expected)) == expected
    with pytest.raises(ValidationError, match="kernal"):
        adapter.validate_python({"kernal": {}})
    with pytest.raises(ValidationError, match="Input should be greater than 0"):
        adapter.validate_python({"regularization": -1})


@pytest.mark.parametrize("termination", ["global", "global_then_local", "product"])
@pytest.mark.parametrize("lazy_", [True, False])
def test_one_by_one_with_what_is_pending_is_the_batch(termination: Termination, lazy_: bool) -> None:
    """What is kept between two asks at a state changes nothing, and neither does its absence."""
    strategy = replace(SMOOTH, termination=termination, lazy=lazy_, ratio_threshold=3.0)
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
            step = strategy.ask(fresh, tuple(batch[:number]), 1)
            assert isinstance(step, Choose)
            assert step.picks[0].arm == batch[number]


@pytest.mark.parametrize("termination", ["global", "global_then_local"])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=10)
def test_arms_appended_between_rounds_are_chosen_as_if_they_were_there_in_a_model_of_their_own(
    termination: Termination, sizes: list[int]
) -> None:
    """The oracle at each round is a model made of all arms at once, with the same pulls and the same dictionary."""
    strategy = replace(SMOOTH, kernel=Matern52(0.4), termination=termination, warm_start=RandomStart(10))
    rng = np.random.default_rng(sum(sizes))
    state = strategy.init(AWKWARD, np.random.default_rng(0))
    for number, size in enumerate(sizes):
        decision = strategy.ask(state, (), 10)
        assert isinstance(decision, Choose)
        arms = [pick.arm for pick in decision.picks]
        rewards = value(array(state.arms)[arms])
        observations = [Observation(arm, float(reward)) for arm, reward in zip(arms, rewards, strict=True)]
        before = strategy.tell(state, observations, np.random.default_rng(number))
        old_arms, pulls = array(before.arms).copy(), before.pulls
        state = before.extend(np.concatenate((rng.random((size, 2)), AWKWARD[:1])))
        whole = replace(state, model=SparseModel(strategy.kernel, state.arms, strategy.regularization))
        assert strategy.ask(state, (3, 3), 10) == strategy.ask(whole, (3, 3), 10)
        assert state.posterior.moments(np.arange(len(state.arms)))[1].shape == (len(state.arms),)
        assert (array(before.arms) == old_arms).all()
        assert before.pulls == pulls
        again = replace(before, model=SparseModel(strategy.kernel, before.arms, strategy.regularization))
        assert strategy.ask(before, (), 10) == strategy.ask(again, (), 10)  # the old state is as good as ever


def test_arms_that_are_appended_must_look_like_the_others() -> None:
    state = SMOOTH.init(GRID, np.random.default_rng(0))
    with pytest.raises(ValueError, match="finite"):
        state.extend(np.full((1, GRID.shape[1]), np.nan))
    with pytest.raises(ValueError, match=r"2 features.*got 3"):
        state.extend(np.zeros((1, 3)))
