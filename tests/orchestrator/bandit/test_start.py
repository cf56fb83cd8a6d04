"""How a search begins: warm starts, existing data, and picks that cover the space."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bbkb.objectives.coding import MOST_ONE_HOT
from bbkb.objectives.parameters import Choice, Range, Space
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.posterior import exact_posterior
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Kernel
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel
from bbkb.orchestrator.bandit.sparse.state import LEAST_RISE, Peak, initial_state
from bbkb.orchestrator.bandit.start.coverage import (
    EACH,
    MOST_FAILED,
    NO_LEVEL,
    ON_PLATEAU,
    PLATEAU,
    LevelPicker,
    Levels,
    is_coverage_due,
)
from bbkb.orchestrator.bandit.start.warm_start import (
    DataStart,
    RandomStart,
    SpreadStart,
    UncertaintyStart,
    WeightedDictionary,
    begin_sparse,
    bless,
    leverage_scores,
)
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick
from tests.orchestrator.bandit.conditional_space import ARMS, CANDIDATES, KINDS, WAYS
from tests.orchestrator.bandit.conftest import Problem
from tests.orchestrator.bandit.sequential_runs import choice


def model(seed: int = 0, count: int = 40, regularization: float = 0.1) -> SparseModel:
    return SparseModel(RBF(0.5), np.random.default_rng(seed).random((count, 2)), regularization)


def exact_variance(of: SparseModel, arms: Sequence[int]) -> np.ndarray:
    pulls = Pulls.none(len(of.arms)).add(arms, np.zeros(len(arms)))
    return exact_posterior(of.kernel, of.arms, pulls, of.regularization)[1]


@given(seed=st.integers(0, 10**6))
def test_uncertainty_sampling_takes_the_arm_of_largest_exact_variance_each_time(
    make_problem: Callable[..., Problem], seed: int
) -> None:
    problem = make_problem(seed).model
    arms = UncertaintyStart(max_pulls=12).draw(problem, np.random.default_rng(0))
    assert len(arms) == 12
    for step, arm in enumerate(arms):
        variance = exact_variance(problem, arms[:step])
        assert variance[arm] >= variance.max() * (1 - 1e-7)


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_uncertainty_sampling_stops_as_soon_as_no_variance_is_above_one_over_the_workers(workers: int) -> None:
    arms = UncertaintyStart(workers=workers, max_pulls=10_000).draw(model(), np.random.default_rng(0))
    assert exact_variance(model(), arms).max() <= 1 / workers
    assert exact_variance(model(), arms[:-1]).max() > 1 / workers


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_uncertainty_sampling_continues_after_known_pulls_as_if_it_had_made_them(repeats: int) -> None:
    start = UncertaintyStart(workers=8, max_pulls=10_000)
    whole = start.draw(model(), np.random.default_rng(0))
    known = list(whole[: len(whole) // 2]) + [whole[0]] * repeats
    after = start.draw_after(known, model())
    if not repeats:
        assert (*known, *after) == whole
    pulled = [*known, *after]
    assert exact_variance(model(), pulled).max() <= 1 / 8
    assert exact_variance(model(), pulled[:-1]).max() > 1 / 8
    assert start.draw_after(whole, model()) == ()


def test_uncertainty_sampling_stops_at_its_cap_and_pulls_at_least_once() -> None:
    assert len(UncertaintyStart(workers=10**6, max_pulls=5).draw(model(), np.random.default_rng(0))) == 5
    easy = model(regularization=1e3)  # σ² is below 1/P before the first pull
    assert len(UncertaintyStart(workers=2).draw(easy, np.random.default_rng(0))) == 1


def test_uncertainty_sampling_survives_duplicates_without_noise() -> None:
    duplicated = SparseModel(RBF(5.0), np.ones((6, 2)), 1e-8)
    assert len(UncertaintyStart(max_pulls=20).draw(duplicated, np.random.default_rng(0))) == 20


def test_random_arms_differ_as_long_as_there_are_enough() -> None:
    arms = RandomStart(40).draw(model(), np.random.default_rng(0))
    assert sorted(arms) == list(range(40))
    assert len(RandomStart(41).draw(model(), np.random.default_rng(0))) == 41


def test_random_arms_are_uniform() -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([RandomStart().draw(model(count=4), rng)[0] for _ in range(4000)], minlength=4)
    assert abs(counts - 1000).max() < 150  # five standard deviations


def test_existing_data_pull_nothing() -> None:
    assert DataStart().draw(model(), np.random.default_rng(0)) == ()


def test_information_gain_of_existing_pulls_bounds_the_log_determinant_and_is_mostly_close(
    make_problem: Callable[..., Problem],
) -> None:
    close = 0
    for seed in range(60):
        problem, rng = make_problem(seed).model, np.random.default_rng(seed)
        arms = rng.integers(len(problem.arms), size=40)
        existing = [Observation(int(arm), 0.5) for arm in arms]
        gain = begin_sparse(initial_state(problem, (0,)), existing, rng).information_gain
        gram = problem.kernel.cross(problem.arms[arms], problem.arms[arms])
        exact = np.linalg.slogdet(np.eye(40) + gram / problem.regularization)[1]
        dimension = np.trace(np.linalg.solve(gram + problem.regularization * np.eye(40), gram))
        assert exact - 1e-6 <= gain  # for any dictionary
        close += gain <= exact + 2 * dimension
    assert close >= 50  # a drawn dictionary may miss an arm that matters


@pytest.mark.parametrize(("pulls", "least", "most"), [(1, 1, 20), (1000, 60, 100)])
def test_arm_with_many_pulls_has_more_leverage(pulls: int, least: int, most: int) -> None:
    apart = SparseModel(RBF(0.01), np.linspace(0, 10, 100)[:, None], 100.0)  # ℓ = n/(n + λ), alone as they are
    observations = [Observation(arm, 0.0) for arm in range(100)] * pulls
    dictionary = begin_sparse(initial_state(apart, ()), observations, np.random.default_rng(0)).dictionary
    assert least <= len(dictionary) <= most


def test_dictionary_of_existing_pulls_is_drawn_by_leverage() -> None:
    many = SparseModel(RBF(1.0), np.random.default_rng(0).random((2000, 2)), 0.1)
    observations = [Observation(arm, 0.0) for arm in range(0, 2000, 2)]
    state = begin_sparse(initial_state(many, ()), observations, np.random.default_rng(0))
    assert len(state.dictionary) < 150
    assert (state.dictionary % 2 == 0).all()
    assert state.initial == ()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RandomStart(0), r"strategy\.warm_start\.pulls must be >= 1, got 0"),
        (lambda: UncertaintyStart(workers=0), r"warm_start\.workers must be a whole number >= 1 or left out, got 0"),
        (lambda: UncertaintyStart(max_pulls=0), r"strategy\.warm_start\.max_pulls must be >= 1, got 0"),
    ],
)
def test_start_without_pulls_is_rejected(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(("parameters", "pulls"), [(1, 8), (6, 8), (7, 9), (8, 10), (30, 10)])
def test_spread_start_may_depend_on_the_number_of_parameters(parameters: int, pulls: int) -> None:
    features = np.random.default_rng(0).random((64, parameters))
    layout = Arms.of(features, repeats=False, is_sequence=True).layout
    of, rng = SparseModel(RBF(0.5), features, 0.1), np.random.default_rng(0)
    assert SpreadStart(pulls=None).draw(of, rng, layout) == tuple(range(pulls))
    assert len(SpreadStart().draw(of, rng, layout)) == 16
    assert len(SpreadStart(pulls=None).draw(of, rng, Arms.of(features).layout)) == 16


class CountingKernel:
    """A kernel that counts its entries, and the size of the largest requested block."""

    def __init__(self, kernel: AnyKernel) -> None:
        self.kernel, self.entries, self.largest = kernel, 0, 0

    def cross(self, X: Floats, Y: Floats) -> Floats:
        self.entries += len(X) * len(Y)
        self.largest = max(self.largest, len(X) * len(Y))
        return self.kernel.cross(X, Y)

    def diagonal(self, X: Floats) -> Floats:
        return self.kernel.diagonal(X)


def points(count: int, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, d))


def one_pull_each(count: int) -> np.ndarray:
    return np.ones(count, np.intp)


def exact_scores(kernel: AnyKernel, rows: NDArray[np.float64], regularization: float) -> np.ndarray:
    gram = kernel.cross(rows, rows)
    return np.diag(np.linalg.solve(gram + regularization * np.eye(len(rows)), gram))


def estimated_scores(
    dictionary: WeightedDictionary, kernel: Kernel, rows: NDArray[np.float64], regularization: float
) -> np.ndarray:
    return leverage_scores(kernel, rows, rows[dictionary.members], dictionary.weights, regularization)


@pytest.mark.parametrize("regularization", [1.0, 0.1, 0.01])
def test_estimated_scores_are_within_a_factor_3_of_the_exact_ones(regularization: float) -> None:
    kernel, rows = RBF(2.0), points(800)
    dictionary = bless(kernel, rows, one_pull_each(800), regularization, np.random.default_rng(1))
    ratio = estimated_scores(dictionary, kernel, rows, regularization) / exact_scores(kernel, rows, regularization)
    assert ratio.min() >= 1 / 3
    assert ratio.max() <= 3


def test_dictionary_is_a_few_times_the_effective_dimension() -> None:
    kernel, rows = RBF(2.0), points(1500, d=2)
    dimension = exact_scores(kernel, rows, 0.1).sum()
    dictionary = bless(kernel, rows, one_pull_each(1500), 0.1, np.random.default_rng(0))
    assert 2 * dimension < len(dictionary.members) < 9 * dimension


def test_kernel_entries_grow_nearly_linearly_and_never_are_an_n_by_n_matrix() -> None:
    entries = {}
    for count in (2000, 4000, 8000):
        kernel = CountingKernel(RBF(2.0))
        bless(kernel, points(count, d=2), one_pull_each(count), 0.1, np.random.default_rng(0))
        entries[count] = kernel.entries
        assert kernel.largest < count**2 / 10
    assert entries[8000] < 8000**2 / 2
    for count in (2000, 4000):  # 2 would be linear, and 4 quadratic
        assert entries[2 * count] < 2.6 * entries[count]


@given(seed=st.integers(0, 10**6), exponent=st.floats(-8, 1))
def test_members_are_distinct_rows_ascending_with_positive_weights(
    make_problem: Callable[..., Problem], seed: int, exponent: float
) -> None:
    model, rng = make_problem(seed).model, np.random.default_rng(seed)  # with duplicates and near-duplicates
    counts = rng.integers(1, 6, size=len(model.arms))
    dictionary = bless(model.kernel, model.arms, counts, 10**exponent, rng)
    assert dictionary.members.tolist() == sorted(set(dictionary.members.tolist()))
    assert dictionary.members.min() >= 0
    assert dictionary.members.max() < len(model.arms)
    assert (dictionary.weights > 0).all()
    assert np.isfinite(estimated_scores(dictionary, model.kernel, model.arms, 10**exponent)).all()


def test_pulls_of_one_arm_are_one_row_with_a_count() -> None:
    kernel, distinct, counts = RBF(1.0), points(60, d=2), np.random.default_rng(3).integers(1, 9, size=60)
    repeated = np.repeat(distinct, counts, axis=0)
    exact = exact_scores(kernel, repeated, 0.05)[np.cumsum(counts) - 1]
    dictionary = bless(kernel, distinct, counts, 0.05, np.random.default_rng(0))
    ratio = estimated_scores(dictionary, kernel, distinct, 0.05) / exact
    assert ratio.min() >= 1 / 3
    assert ratio.max() <= 3


def test_equal_rows_need_few_atoms() -> None:
    rows = np.zeros((500, 3))
    dictionary = bless(RBF(1.0), rows, one_pull_each(500), 0.1, np.random.default_rng(0))
    assert len(dictionary.members) <= 8 * 1 + 2  # d_eff is below 1, so at most ⌈8 · (estimate of it)⌉ are drawn
    np.testing.assert_allclose(estimated_scores(dictionary, RBF(1.0), rows, 0.1), 1 / 500.1, rtol=1.0)


@pytest.mark.parametrize("regularization", [1e-8, 1.0, 1e4])
def test_single_row_is_the_dictionary(regularization: float) -> None:
    dictionary = bless(RBF(1.0), np.zeros((1, 2)), np.array([1]), regularization, np.random.default_rng(0))
    assert dictionary.members.tolist() == [0]


def test_same_generator_gives_the_same_dictionary() -> None:
    one, other = (bless(RBF(1.0), points(200), one_pull_each(200), 0.1, np.random.default_rng(5)) for _ in range(2))
    assert one.members.tolist() == other.members.tolist()
    assert one.weights.tolist() == other.weights.tolist()


@pytest.mark.parametrize(
    ("counts", "message"), [([1, 0], "a count >= 1 for each of its rows"), ([1], "got 1 counts of 2 rows")]
)
def test_impossible_arguments_are_rejected(counts: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bless(RBF(1.0), np.zeros((2, 1)), np.array(counts), 0.1, np.random.default_rng(0))


LEVELS = Levels.of(ARMS.features, ARMS.layout)


def strategy(**options: Any) -> BBKB:
    return BBKB(**with_preset(BBKB, options))


def search(chooser: BBKB, count: int, open_pulls: int = 3) -> tuple[Any, list[Pick]]:
    """The state after `count` results with others open, and all picks; the level b fails."""
    state, rng = chooser.init(ARMS, np.random.default_rng(0)), np.random.default_rng(1)
    picks: list[Pick] = []
    for done in range(count):
        while len(picks) < done + open_pulls:
            decision = choice(chooser.ask(state, [pick.arm for pick in picks[done:]], 1))
            picks += decision.picks
        arm = picks[done].arm
        reward = None if KINDS[arm] == "b" else float(KINDS[arm] == "a") + float(CANDIDATES.columns["x"][arm]) / 10
        state = chooser.tell(state, [Observation(arm, reward)], rng)
    return state, picks


def test_coverage_gets_its_share_of_picks_and_half_of_them_on_a_plateau() -> None:
    state = search(strategy(), 20)[0]
    rising = [is_coverage_due(state, open_pulls, 0.25) for open_pulls in range(8)]
    assert sum(rising) == 2
    flat = replace(state, peak=replace(state.peak, results=state.pulls.total - PLATEAU))
    assert sum(is_coverage_due(flat, open_pulls, 0.25) for open_pulls in range(8)) == 8 * ON_PLATEAU
    assert not is_coverage_due(flat, 0, 0.0)


@pytest.mark.parametrize(("rewards", "risen"), [([0.0, 1.0, 1.0 + LEAST_RISE / 4], 2), ([0.0, 1.0, 1.2], 3)])
def test_small_rise_is_a_plateau(rewards: list[float], risen: int) -> None:
    peak, pulls = Peak(), Pulls.none(len(rewards))
    for arm, reward in enumerate(rewards):
        pulls = pulls.add([arm], [reward])
        peak = peak.after(pulls)
    assert peak.results == risen


def test_level_that_can_be_evaluated_gets_its_quota() -> None:
    state, picks = search(strategy(coverage=0.25), 60)
    assert {pick.reason for pick in picks} == {"", "coverage"}
    counts = {kind: int(state.pulls.counts[kind == KINDS].sum()) for kind in "abc"}
    assert min(counts["a"], counts["c"]) >= 2 * EACH
    plain, without = search(strategy(coverage=0.0), 60)
    assert {pick.reason for pick in without} == {""}
    assert int(plain.pulls.counts[KINDS == "c"].sum()) < counts["c"]


@pytest.mark.parametrize("by_bound", [True, False])
def test_pick_has_the_best_bound_or_variance_of_its_level(by_bound: bool) -> None:
    chooser = strategy(coverage=0.25)
    state, picks = search(chooser, 24)
    open_pulls = [pick.arm for pick in picks[24:]]
    arms = np.flatnonzero((KINDS == "c") & (state.pulls.counts == 0))
    width = chooser.width_at(state)
    best = LevelPicker(state, width).best_arm(arms, open_pulls, by_bound=by_bound)
    pairs = [np.array([best, arm]) for arm in arms if arm != best]
    assert {LevelPicker(state, width).best_arm(pair, open_pulls, by_bound=by_bound) for pair in pairs} == {best}


def test_picker_updated_with_open_pulls_picks_like_a_new_one() -> None:
    chooser = strategy(coverage=0.25)
    state, picks = search(chooser, 24)
    open_pulls, width = [pick.arm for pick in picks[24:]], chooser.width_at(state)
    follower = LevelPicker(state, width)
    for number in range(30):
        arm = follower.lacking_arm(open_pulls)
        assert arm == LevelPicker(state, width).lacking_arm(open_pulls)
        open_pulls += [number % 7, number % 7] if arm is None else [arm, number]


def test_spaces_without_choices_have_the_same_picks() -> None:
    features = np.random.default_rng(3).random((200, 3))

    def picked(chooser: BBKB) -> list[int]:
        state, rng, arms = chooser.init(Arms.of(features), np.random.default_rng(0)), np.random.default_rng(1), []
        for _ in range(40):
            decision = choice(chooser.ask(state, [], 1))
            arms.append(decision.picks[0].arm)
            state = chooser.tell(state, [Observation(arms[-1], float(features[arms[-1]].sum()))], rng)
        return arms

    assert picked(strategy(coverage=0.25)) == picked(strategy(coverage=0.0))


def test_choice_for_coverage_alone_promises_the_gain_of_the_model() -> None:
    """Otherwise, the patience of `expected_gain_below` would restart at each such choice."""
    chooser, coverage_picks = strategy(), 0
    for count in range(20, 44, 4):
        state, _ = search(chooser, count)
        for open_arms in ([], [int(state.available[7])], state.available[:6].tolist()):
            decision, plain = chooser.ask(state, open_arms, 1), strategy(coverage=0.0).ask(state, open_arms, 1)
            assert isinstance(decision, Choose)
            assert isinstance(plain, Choose)
            assert decision.prospect is not None
            assert plain.prospect is not None
            assert decision.prospect.gain == pytest.approx(plain.prospect.gain, abs=1e-6)
            coverage_picks += decision.picks[0].reason == "coverage"
    assert coverage_picks


def results_until_the_edge(seed: int, most: int) -> int:
    """Return the number of results before a search evaluates the best region, at most `most`.

    The best region is level b with x above 0.9. Elsewhere, values fall with x, and those of level b
    are lower.
    """
    space: Space = {
        "kind": Choice(("a", "b")),
        "x": Range(0.0, 1.0),
        "y": Range(0.0, 1.0),
        "b_z": Range(0.0, 1.0, when={"kind": "b"}),
    }
    candidates = make_candidates(space, 400, "sobol", seed)
    arms = Arms.of(candidates.features, candidates.parameter_of, repeats=False, is_sequence=True)
    is_b = candidates.columns["kind"] == "b"
    x, y = (candidates.columns[name].astype(float) for name in "xy")
    is_best = is_b & (x > 0.9)
    rewards = np.where(is_best, 2.0, -x - (y - 0.5) ** 2 - 0.5 * is_b)
    chooser = strategy()
    state, rng = chooser.init(arms, np.random.default_rng(seed)), np.random.default_rng(1)
    for count in range(most):
        arm = choice(chooser.ask(state, [], 1)).picks[0].arm
        if is_best[arm]:
            return count
        state = chooser.tell(state, [Observation(arm, float(rewards[arm]))], rng)
    return most


@pytest.mark.parametrize("seed", [1, 3, 6, 8])
def test_coverage_finds_the_good_edge_of_a_poor_level(seed: int) -> None:
    """With picks by bound only, these searches need 27 results, more than 60, 27 and 31."""
    assert results_until_the_edge(seed, most=25) < 25


def test_levels_are_those_of_the_choices_and_none_for_an_absent_choice() -> None:
    assert KINDS.tolist() == [("a", "b", "c")[level] for level in LEVELS.of_arms[:, 0]]
    expected = [NO_LEVEL if way is None else ("up", "down").index(way) for way in WAYS]
    assert LEVELS.of_arms[:, 1].tolist() == expected


def test_quota_grows_with_the_numbers_that_exist_in_the_level() -> None:
    assert LEVELS.quotas[0].tolist() == [2 * EACH, 3 * EACH, 2 * EACH]
    assert LEVELS.quotas[1].tolist() == [3 * EACH, 3 * EACH]


def test_level_that_lacks_the_largest_share_of_its_quota_is_next() -> None:
    arms, nothing = np.arange(len(KINDS)), np.empty(0, np.intp)
    by_kind = {kind: np.flatnonzero(kind == KINDS) for kind in "abc"}
    pulled = np.concatenate((by_kind["a"][:4], by_kind["b"][: 6 * EACH], by_kind["c"][:2]))
    lacking, count = LEVELS.lacking(pulled, nothing, np.setdiff1d(arms, pulled))
    assert (set(KINDS[lacking].tolist()), count) == ({"c"}, 2)
    assert not np.isin(lacking, pulled).any()
    enough = np.concatenate([by_kind[kind][: 12 * EACH] for kind in "abc"])
    assert not len(LEVELS.lacking(enough, nothing, np.setdiff1d(arms, enough))[0])


def test_many_levels_need_one_evaluation_each_wherever_the_bound_is_largest() -> None:
    space: Space = {"kind": Choice(tuple(range(MOST_ONE_HOT + 20))), "x": Range(0.0, 1.0)}
    candidates = make_candidates(space, 600, "sobol", 0)
    arms = Arms.of(candidates.features, candidates.parameter_of, repeats=False, is_sequence=True)
    kinds, x = candidates.columns["kind"], candidates.columns["x"].astype(float)
    levels, everything = Levels.of(arms.features, arms.layout), np.arange(len(kinds))
    lacking, count = levels.lacking(everything[:300], everything[:0], everything[300:])
    assert set(lacking.tolist()) == set(np.flatnonzero(~np.isin(kinds, kinds[:300])).tolist())
    assert not count
    assert not len(levels.lacking(everything[:-1], everything[:0], everything[-1:])[0])

    evaluated: list[int] = []
    chooser, rng = strategy(), np.random.default_rng(1)
    state = chooser.init(arms, np.random.default_rng(0))
    for _ in range(80):  # level 7 has the best values; most of the first ten levels are worse than many others
        pick = choice(chooser.ask(state, [], 1)).picks[0]
        assert pick.reason != "coverage" or kinds[pick.arm] not in kinds[evaluated]
        evaluated.append(pick.arm)
        reward = float(kinds[pick.arm] == 7) - float(kinds[pick.arm]) / 40 - (x[pick.arm] - 0.3) ** 2
        state = chooser.tell(state, [Observation(pick.arm, reward)], rng)
    assert len(set(kinds[evaluated].tolist())) >= 30


def test_level_in_which_everything_failed_needs_no_more_nor_do_choices_within_it() -> None:
    failing = np.flatnonzero(KINDS == "b")[:MOST_FAILED]
    others = np.concatenate([np.flatnonzero(kind == KINDS)[: 2 * EACH] for kind in "ac"])
    pulled = np.concatenate((failing, others))
    eligible = np.setdiff1d(np.arange(len(KINDS)), pulled)
    assert not len(LEVELS.lacking(pulled, failing, eligible)[0])
    assert set(KINDS[LEVELS.lacking(pulled, failing[1:], eligible)[0]].tolist()) == {"b"}
