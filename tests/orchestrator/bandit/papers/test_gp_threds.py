"""`papers.gp_threds`: GP-ThreDS (Salgia, Vakili, Zhao 2021, Algorithms 1 to 6)."""

import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel
from bbkb.orchestrator.bandit.papers.boxes import Box
from bbkb.orchestrator.bandit.papers.gp_threds import SUB_PERFORMING, Epoch, First, GPThreDS, Search, ThresholdState
from bbkb.orchestrator.bandit.scheduling import rkhs_width
from bbkb.orchestrator.bandit.strategy import Choose, Observation
from tests.orchestrator.bandit.sequential_runs import choice

SEARCHES = pytest.mark.parametrize("search", ["direct", "random_walk"])
UNCAPPED = 10**6


def smooth_problem(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Arms (40, 2), the values there of a function in the RKHS of RBF(0.3), and its norm."""
    rng = np.random.default_rng(seed)
    arms, centers, weights = rng.random((40, 2)), rng.random((5, 2)), rng.normal(size=5)
    norm = math.sqrt(weights @ RBF(0.3).cross(centers, centers) @ weights)
    return arms, RBF(0.3).cross(arms, centers) @ weights, norm


def play(strategy: GPThreDS, arms: np.ndarray, values: np.ndarray, rounds: int, noise: float = 0.0) -> Iterator[Any]:
    """Return triples of a state, the arm pulled there and the next state."""
    rng = np.random.default_rng(3)
    state = strategy.init(arms, np.random.default_rng(1))
    for _ in range(rounds):
        decision = choice(strategy.ask(state, (), 4))
        (pick,) = decision.picks
        reward = float(values[pick.arm] + noise * rng.standard_normal())
        state_after = strategy.tell(state, [Observation(pick.arm, reward)], rng)
        yield state, pick.arm, state_after
        state = state_after


def boxes_with(state: ThresholdState, boxes: tuple[Box, ...], arm: int) -> list[Box]:
    return [box for box in boxes if len(state.boxed.inside(box, np.array([arm])))]


@SEARCHES
def test_maximizer_is_never_pruned_without_noise(search: Search) -> None:
    # |f − μ| ≤ ‖f‖ σ holds for every f without noise, so no test can err; an undecided test never ends
    epochs = 0
    for seed in range(5):
        arms, values, norm = smooth_problem(seed)
        options: dict[str, Any] = {"norm_bound": norm, "regularization": 1e-3, "noise_scale": 0.0, "c": 0.05}
        low, high = float(values.max()) - 1.0, float(values.max()) + 0.3
        strategy = GPThreDS(RBF(0.3), **options, low=low, high=high, max_local_pulls=UNCAPPED, search=search)
        best = int(values.argmax())
        for _, _, state_after in play(strategy, arms, values, 100):
            assert len(boxes_with(state_after, state_after.epoch.roots, best)) == 1
            for leaf in (
                *state_after.epoch.found,
                *state_after.visit.taken,
            ):  # a leaf is taken only for a value above τ
                assert values[state_after.boxed.inside(leaf, np.arange(40))].max() >= state_after.epoch.threshold - 1e-9
        epochs += state_after.epoch.number - 1
    assert epochs > 5


def test_epoch_finds_the_brute_force_leaves_without_noise() -> None:
    ended = 0
    for seed in range(4):
        arms, values, norm = smooth_problem(seed)
        options: dict[str, Any] = {"norm_bound": norm, "regularization": 1e-4, "noise_scale": 0.0, "c": 0.05}
        strategy = GPThreDS(RBF(0.3), **options, low=-0.4, high=float(values.max()) + 0.4, max_local_pulls=UNCAPPED)
        for before, _, state_after in play(strategy, arms, values, 60):
            if state_after.epoch.number == before.epoch.number + 1:
                leaves = {
                    before.boxed.leaf(box, arm, 2)
                    for box in before.epoch.roots
                    for arm in before.boxed.inside(box, np.arange(40)).tolist()
                }
                peaks = {leaf: values[before.boxed.inside(leaf, np.arange(40))].max() for leaf in leaves}
                tau, margin = before.epoch.threshold, strategy.margin(before.epoch)
                surely = {leaf for leaf, peak in peaks.items() if peak > tau - margin}
                roots = set(state_after.epoch.roots) if state_after.epoch.height > before.epoch.height else set()
                assert roots == surely == {leaf for leaf, peak in peaks.items() if peak >= tau}
                ended += 1
    assert ended > 4


def dense_belief(
    kernel: AnyKernel, arms: np.ndarray, pulled: list[int], rewards: list[float], lam: float
) -> tuple[Floats, Floats]:
    """Return the belief of equations 2 and 3, with one row for each pull."""
    gram = np.linalg.inv(kernel.cross(arms[pulled], arms[pulled]) + lam * np.eye(len(pulled)))
    cross = kernel.cross(arms, arms[pulled])
    variance = kernel.diagonal(arms) - np.einsum("ap,pq,aq->a", cross, gram, cross)
    return cross @ gram @ np.array(rewards), np.sqrt(np.maximum(variance, 0))


def algorithm_1_and_4(strategy: GPThreDS, arms: np.ndarray) -> Generator[int, tuple[int, float], None]:
    """The paper's loops as printed, on quadrants of the unit square. Yields arms, −1 for x_1; is
    sent the rewards."""
    unit = (arms - arms.min(axis=0)) / np.ptp(arms, axis=0)
    low, high, height, roots = strategy.low, strategy.high, 1, [np.arange(len(arms))]
    corners: list[tuple[float, ...]] = [(0.0, 0.0)]
    side = 1.0
    while True:
        tau = (low + high) / 2
        leaves: dict[tuple[float, ...], Any] = {}
        for root, corner in zip(roots, corners, strict=True):
            grid, since = [int(arm) for arm in root], 0
            pulled: list[int] = []
            rewards: list[float] = []
            arm, reward = yield -1
            while grid:
                pulled.append(arm)
                rewards.append(reward)
                since += 1
                mean, deviation = dense_belief(strategy.kernel, arms, pulled, rewards, strategy.regularization)
                beta = strategy.norm_bound + strategy.noise_scale * math.sqrt(
                    2 * (math.log(len(pulled)) + 1 + math.log(1 / strategy.delta))
                )
                while grid:
                    lower, upper = (mean - beta * deviation)[grid], (mean + beta * deviation)[grid]
                    if upper.max() <= tau - strategy.c * 2.0**-height:
                        grid = []
                    elif lower.max() >= tau or since >= (strategy.max_local_pulls or math.inf):
                        star = grid[int(np.argmax(lower))]
                        child = tuple(int(unit[star, j] >= corner[j] + side / 2) for j in range(2))
                        place = tuple(corner[j] + child[j] * side / 2 for j in range(2))
                        mine = [
                            a for a in root if all(int(unit[a, j] >= corner[j] + side / 2) == child[j] for j in (0, 1))
                        ]
                        leaves[place], since = np.array(mine), 0
                        grid = [a for a in grid if a not in mine]
                    else:
                        break
                if grid:
                    arm, reward = yield grid[int(np.argmax(upper))]
        if leaves:
            low, roots, corners = tau - 2 * strategy.c * 2.0**-height, list(leaves.values()), list(leaves)
            height, side = height + 1, side / 2
        else:
            shift = (high - low) / 2
            low, high = low - shift, high - shift


@pytest.mark.parametrize("first", ["random", "centre"])
def test_direct_search_pulls_the_arms_of_the_published_algorithm(first: First) -> None:
    arms = np.random.default_rng(5).random((60, 2))
    arms[:2] = (0, 0), (1, 1)  # the domain is the unit square, so that every halving of it is a quadrant's
    values = np.sin(5 * arms[:, 0]) * np.cos(4 * arms[:, 1])
    strategy = GPThreDS(RBF(0.2), noise_scale=0.05, norm_bound=1.5, low=-1.0, high=2.0, max_local_pulls=15, first=first)
    printed, accepted = algorithm_1_and_4(strategy, arms), 0
    expected = next(printed)
    for state, arm, state_after in play(strategy, arms, values, 90, noise=0.1):
        if any(len(state.boxed.inside(box, np.arange(60))) == 1 for box in state_after.epoch.roots):
            break  # from here on a box is no longer halved into quadrants
        assert arm == (state.first_arm(first) if expected == -1 else expected)
        arms_of_visit = state_after.pulls.reward_sums - state.pulls.reward_sums
        expected = printed.send((arm, float(arms_of_visit[arm])))
        accepted += sum(verdict != SUB_PERFORMING for verdict in state_after.verdicts)
    assert state.epoch.height >= 2
    assert accepted > 3


def test_walk_takes_the_steps_of_algorithm_3() -> None:
    strategy = GPThreDS(search="random_walk")
    start = strategy.init(np.random.default_rng(0).random((200, 2)), np.random.default_rng(0))
    root, boxed = Box.unit(2), start.boxed
    left, right = boxed.halves(root)
    leaf = boxed.halves(right)[0]
    yes, no = 0, SUB_PERFORMING

    def state_after(*verdicts: int) -> ThresholdState:
        return strategy.restore(start, [], {"seed": start.seed, "verdicts": verdicts})

    def place(*verdicts: int) -> tuple[Any, ...]:
        visit = state_after(*verdicts).visit
        return visit.stage, visit.path, visit.node

    assert place() == ("root", (root,), root)
    assert place(yes) == ("left", (root,), left)
    assert place(yes, no) == ("right", (root,), right)
    assert place(yes, no, no) == ("root", (root,), root), "the root is its own parent"
    assert place(yes, no, yes) == ("left", (root, right), leaf)
    assert place(yes, no, yes, no, no) == ("root", (root,), root)
    assert place(yes, no, yes, yes) == ("leaf", (root, right, leaf), leaf)
    assert place(yes, no, yes, yes, no) == ("left", (root, right), leaf), "a rejected leaf goes back to its parent"
    accepted = state_after(yes, no, yes, yes, yes)
    assert (accepted.visit.stage, accepted.visit.taken) == ("root", (leaf,))
    assert not set(accepted.visit.grid) & set(boxed.inside(leaf, np.arange(200)))
    ended = state_after(yes, no, yes, yes, yes, no)
    assert (ended.epoch.roots, ended.epoch.height, ended.epoch.found) == ((leaf,), 2, ())
    fallen = state_after(no)
    assert (fallen.epoch.roots, fallen.epoch.height) == ((root,), 1)


@SEARCHES
def test_visit_of_a_region_ends_at_the_same_step_as_by_brute_force(search: Search) -> None:
    arms, values, norm = smooth_problem(4)
    options: dict[str, Any] = {"norm_bound": norm, "regularization": 0.01, "noise_scale": 0.03, "c": 0.1}
    strategy = GPThreDS(RBF(0.3), **options, low=0.0, high=1.0, search=search, max_local_pulls=None, horizon=100)
    kinds = set()
    for before, arm, _ in play(strategy, arms, values, 100):
        state = before.observe([Observation(arm, float(values[arm]))])
        visit, p, pulled = state.visit, 0.25, arms_of_visit(state)
        n = len(pulled)
        r = len(state.visit.taken) + 1
        nodes = math.log(4 * 2 * 100 / 1e-3) / (2 * (p - 0.5) ** 2)
        strict = 1e-3 / (4 * 100 * r * (r + 1) * nodes)

        def beta(nu: float, n: int = n) -> float:
            return norm + 0.03 * math.sqrt(2 * (math.log(n) + 1 + math.log(1 / nu)))

        def is_capped(nu: float, grid: int = len(visit.grid), n: int = n, state: Any = state) -> bool:
            return bool(2 * 1.02 * beta(nu, n) * math.sqrt(grid / n) <= 0.1 * 2.0**-state.epoch.height)

        below, above, last = {
            "leaves": (1e-3,) * 3,
            "left": (p,) * 3,
            "right": (p,) * 3,
            "root": (strict, p, strict),
            "leaf": (strict if is_capped(p) else p, strict, strict),
        }[state.visit.stage]
        mean, deviation = dense_belief(
            RBF(0.3), arms, arms_of_visit(state), values[arms_of_visit(state)].tolist(), 0.01
        )
        lower, upper = (mean - beta(above) * deviation)[visit.grid], (mean + beta(below) * deviation)[visit.grid]
        if lower.max() >= state.epoch.threshold or is_capped(last):
            expected = visit.grid[int(np.argmax(lower))]
        elif upper.max() <= state.epoch.threshold - 0.1 * 2.0**-state.epoch.height:
            expected = SUB_PERFORMING
        else:
            expected = None
        assert strategy.verdict(state) == expected
        kinds.add((state.visit.stage, None if expected is None else expected >= 0))
    assert len(kinds) >= (2 if search == "direct" else 5)


def arms_of_visit(state: ThresholdState) -> list[int]:
    """The arms of the visit's pulls, one entry for each pull."""
    return np.repeat(np.arange(len(state.arms)), state.visit.pulls.counts).tolist()


def test_test_cap_follows_equation_4_without_a_limit() -> None:
    strategy = GPThreDS(low=-1.0, high=1.0, pruning_constant=1.0, max_local_pulls=None, noise_scale=0.0)
    start = strategy.init(np.random.default_rng(0).random((9, 1)), np.random.default_rng(0))
    state = start.observe([Observation(0, 0.0)])  # neither far above nor far below the threshold 0

    def is_capped(since: int) -> bool:
        return strategy.verdict(replace(state, visit=replace(state.visit, since=since))) is not None

    first = math.ceil((2 * 1.02 * 0.5 * math.sqrt(9) / 0.5) ** 2)
    assert first == 38
    assert [is_capped(since) for since in (1, first - 1, first, first + 1)] == [False, False, True, True]


def test_interval_rises_after_a_find_and_falls_without_one() -> None:
    strategy, root = GPThreDS(c=0.2, pruning_constant=0.4, threshold_constant=0.28), Box.unit(2)
    epoch = Epoch(3, 0.5, 1.2, 2, (root,))
    fallen = strategy.next_epoch(epoch)
    assert (fallen.low, fallen.high) == pytest.approx((0.15, 0.85))
    assert (fallen.height, fallen.roots) == (2, (root,))
    risen = strategy.next_epoch(replace(epoch, found=(root,)))
    assert risen.low == pytest.approx(0.85 - 0.28 / 4)
    assert (risen.high, risen.height) == (1.2, 3)
    assert strategy.margin(epoch) == pytest.approx(0.1)
    assert GPThreDS(c=0.2).margin(epoch) == pytest.approx(0.05)
    assert GPThreDS(c=0.2, holder_exponent=0.5).next_epoch(replace(epoch, found=(root,))).low == pytest.approx(0.65)


@SEARCHES
def test_pulls_concentrate_on_a_hill(search: Search) -> None:
    axis = np.linspace(0, 1, 25)
    arms = np.array([(x, y) for x in axis for y in axis])
    values = np.exp(-8 * ((arms - (0.3, 0.7)) ** 2).sum(axis=1))
    strategy = GPThreDS(norm_bound=1.0, noise_scale=0.01, low=0.5, high=1.2, max_local_pulls=20, search=search)
    pulled = [arm for _, arm, _ in play(strategy, arms, values, 300, noise=0.1)]
    regrets = 1.0 - values[pulled]
    assert regrets[-60:].mean() < 0.5 * (1.0 - values).mean()


@SEARCHES
def test_long_run_with_failures_is_restored_from_its_records(search: Search) -> None:
    arms, values, norm = smooth_problem(9)
    strategy = GPThreDS(RBF(0.3), norm_bound=norm, low=float(values.max()) - 1, high=float(values.max()), search=search)
    rng, verdicts = np.random.default_rng(0), 0
    live = restored = strategy.init(arms, np.random.default_rng(5))
    for number in range(150):
        (pick,) = choice(strategy.ask(live, (), 1)).picks
        observation = Observation(
            pick.arm, None if number % 11 == 7 else float(values[pick.arm] + 0.1 * rng.standard_normal())
        )
        live = strategy.tell(live, [observation], rng)
        restored = strategy.restore(restored, [observation], strategy.recorded(live))
        assert restored == live
        verdicts += len(live.verdicts)
    assert verdicts > 10


@SEARCHES
def test_whole_domain_replaces_boxes_whose_arms_all_failed(search: Search) -> None:
    arms, values, norm = smooth_problem(2)
    strategy = GPThreDS(
        RBF(0.3), norm_bound=norm, low=float(values.max()) - 1, high=float(values.max()) + 0.2, search=search
    )
    *_, (_, _, state) = play(strategy, arms, values, 150)
    assert state.epoch.roots != (Box.unit(2),)
    lost = [arm for arm in range(40) if boxes_with(state, state.epoch.roots, arm)]
    state = strategy.tell(state, [Observation(arm, None) for arm in lost], np.random.default_rng(0))
    assert set(state.available.tolist()) == set(range(40)) - set(lost)
    assert state.epoch.roots == (Box.unit(2),)
    assert isinstance(strategy.ask(state, (), 1), Choose)


def test_grid_is_rebuilt_if_all_its_arms_failed() -> None:
    arms = np.random.default_rng(0).random((50, 2))
    strategy = GPThreDS(grid_points=4)
    state = strategy.init(arms, np.random.default_rng(0))
    first = state.visit.grid.tolist()
    state_after = strategy.tell(state, [Observation(arm, None) for arm in first], np.random.default_rng(0))
    assert state_after.verdicts == ()
    assert len(state_after.visit.grid)
    assert not set(state_after.visit.grid.tolist()) & set(first)


def test_posterior_is_that_of_all_pulls() -> None:
    arms, values, _ = smooth_problem(1)
    strategy = GPThreDS(RBF(0.3), low=-1.0, high=1.0)
    *_, (_, _, state) = play(strategy, arms, values, 40)
    pulled = np.repeat(np.arange(40), state.pulls.counts).tolist()
    mean, deviation = dense_belief(RBF(0.3), arms, pulled, values[pulled].tolist(), 0.01)
    believed = strategy.posterior(state)
    np.testing.assert_allclose(believed.mean, mean, atol=1e-8)
    np.testing.assert_allclose(believed.variance * 0.01, deviation**2, atol=1e-8)
    width = rkhs_width(0.5, 0.1, math.log(40), 1e-3)
    np.testing.assert_allclose(believed.ucb, mean + width * deviation, atol=1e-5)
