"""Kernel columns over all arms, and upper bounds on them from an earlier posterior."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.kernels import RBF, AnyKernel, Linear, Matern32, Matern52
from bbkb.orchestrator.bandit.pulls import Pulls
from bbkb.orchestrator.bandit.sparse import upper_bounds
from bbkb.orchestrator.bandit.sparse.all_arms import WIDTH, AllArms, KernelColumns, Points
from bbkb.orchestrator.bandit.sparse.posterior import SparseModel, SparsePosterior
from bbkb.orchestrator.bandit.sparse.upper_bounds import RATIO, Screen
from tests.examples import examples

FEATURES = np.random.default_rng(0).normal(size=(50, 3))
KERNEL = Matern52(0.8)
EVERY = np.arange(len(FEATURES))


class Counting:
    """The kernel, and the number of entries that were computed."""

    def __init__(self) -> None:
        self.computed = 0

    def cross(self, X: Floats, Y: Floats) -> Floats:
        self.computed += len(X) * len(Y)
        return KERNEL.cross(X, Y)

    def diagonal(self, X: Floats) -> Floats:
        return KERNEL.diagonal(X)


def points(*arms: int) -> Points:
    return Points(np.array(arms, np.intp), FEATURES[np.array(arms, np.intp)])


def columns_with_room_for(count: int, kernel: AnyKernel = KERNEL) -> KernelColumns:
    return KernelColumns(kernel, FEATURES, max_bytes=count * 8 * len(FEATURES))


@pytest.mark.parametrize("capacity", [0, 1, 3, 7, 100])
def test_columns_are_the_same_bits_with_any_memory_limit(capacity: int) -> None:
    columns = columns_with_room_for(capacity)
    assert columns.capacity == capacity
    rng = np.random.default_rng(1)
    earlier = [points()]  # the same object may be asked for again after its columns had to go
    for _ in range(200):
        earlier.append(points(*rng.integers(50, size=rng.integers(0, 6))))
        columns_asked = earlier[-1 - int(rng.integers(min(len(earlier), 4)))]
        asked = slice(10, 31) if rng.random() < 0.5 else rng.integers(50, size=7)
        rows = columns.rows(asked, columns_asked)
        np.testing.assert_array_equal(rows, KERNEL.cross(FEATURES[asked], columns_asked.features))
        assert rows.flags.c_contiguous
        assert len(columns._slots) <= capacity
        assert columns._columns.shape[1] <= capacity


def test_cached_columns_are_unchanged_when_the_array_grows() -> None:
    features = np.random.default_rng(2).normal(size=(20 * WIDTH, 2))
    columns = KernelColumns(KERNEL, features)
    widths = set()
    for number in range(0, 5 * WIDTH, 20):
        arms = np.arange(number, number + 20)
        columns.rows(slice(None), Points(arms, features[arms]))
        widths.add(columns._columns.shape[1])
    assert len(widths) >= 3
    every = np.random.default_rng(3).permutation(5 * WIDTH)
    again = columns.rows(np.arange(100), Points(every, features[every]))
    np.testing.assert_array_equal(again, KERNEL.cross(features[:100], features[every]))


def test_cached_column_is_not_computed_again() -> None:
    counting = Counting()
    columns = KernelColumns(counting, FEATURES)
    for asked in (points(3, 8), points(8, 3), points(3), points(3, 8)):
        columns.rows(slice(0, 50), asked)
        columns.rows(EVERY, asked)
    assert counting.computed == 2 * 50


def test_least_recently_used_column_is_evicted_first() -> None:
    counting = Counting()
    columns = columns_with_room_for(3, cast(Any, counting))
    for asked in (points(1, 2, 3), points(1), points(4)):  # 4 replaces 2
        columns.rows(EVERY, asked)
    assert counting.computed == 4 * 50
    columns.rows(EVERY, points(1, 3, 4))
    assert counting.computed == 4 * 50
    columns.rows(EVERY, points(2))
    assert counting.computed == 5 * 50


def test_columns_beyond_the_capacity_are_computed_and_evict_none() -> None:
    counting = Counting()
    columns = columns_with_room_for(3, cast(Any, counting))
    columns.rows(EVERY, points(1, 2))
    columns.rows(np.array([5, 6]), points(3, 4, 5, 6))
    assert counting.computed == 2 * 50 + 2 * 4
    columns.rows(EVERY, points(1, 2))
    assert counting.computed == 2 * 50 + 2 * 4


SEEDS = st.integers(0, 10**6)
NONE = np.empty(0, np.intp)
WIDTHS = (0.0, 1e-3, 0.1, 1.0, 10.0)
RELATIONS = ["later", "earlier", "unrelated", "redrawn", "neighbours", "nudged", "equal"]


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each sweep over the arms that computed a reference."""
    counts: list[int] = []
    refer = AllArms._refer

    def count_and_refer(self: AllArms, *arguments: Any) -> Any:
        counts.append(1)
        return refer(self, *arguments)

    monkeypatch.setattr(AllArms, "_refer", count_and_refer)
    return counts


def awkward_model(rng: np.random.Generator) -> SparseModel:
    """Duplicates, near-duplicates, collinear points, a zero; λ down to 1e-8."""
    d, count = int(rng.integers(1, 5)), int(rng.integers(4, 40))
    arms = (rng.random((count, d)), np.outer(np.linspace(0, 1, count), rng.normal(size=d)))[rng.integers(2)]
    some = arms[: count // 3]
    arms = np.vstack((arms, some, some + 10.0 ** rng.uniform(-12, -3), np.zeros((1, d))))
    kernel = (RBF, Matern32, Matern52, Linear)[rng.integers(4)]
    scaled = kernel(float(10 ** rng.uniform(-1, 1.3)), float(rng.uniform(0.5, 2)))
    return SparseModel(scaled, arms, float(10 ** rng.uniform(-8, 0)))


def two_posteriors(seed: int, relation: str) -> tuple[SparsePosterior, SparsePosterior]:
    """Return two posteriors of one model: the reference, and another one in this `relation` to
    it."""
    rng = np.random.default_rng(seed)
    model = awkward_model(rng)
    count, true = len(model.arms), np.sin(3 * model.arms.sum(axis=1))

    def add_pulls(pulls: Pulls, most: int) -> Pulls:
        arms = rng.integers(count, size=rng.integers(1, most))
        return pulls.add(arms, true[arms] + 0.01 * rng.normal(size=len(arms)))

    def drawn(pulls: Pulls) -> np.ndarray:
        return np.sort(rng.choice(pulls.arms, size=rng.integers(1, len(pulls.arms) + 1), replace=False))

    pulls = add_pulls(Pulls.none(count), 2 * count)
    old = model.fit(pulls, drawn(pulls))
    if relation in ("later", "earlier"):
        after = add_pulls(pulls, 5 if rng.random() < 0.7 else 2 * count)
        new = model.fit(after, drawn(after))
        return (old, new) if relation == "later" else (new, old)
    if relation == "unrelated":
        other = add_pulls(Pulls.none(count), 2 * count)
        return old, model.fit(other, drawn(other))
    if relation == "redrawn":
        return old, model.fit(pulls, drawn(pulls))
    if relation == "neighbours":  # atoms are replaced by their (near-)duplicates
        distances = ((model.arms[:, None] - model.arms) ** 2).sum(axis=2) + np.diag(np.full(count, np.inf))
        nearest = distances.argmin(axis=1)
        return old, model.fit(
            pulls, np.unique(np.where(rng.random(len(old.basis)) < 0.5, old.basis, nearest[old.basis]))
        )
    if relation == "nudged":
        sums = pulls.reward_sums * (1 + 10.0 ** rng.uniform(-14, -5) * rng.normal(size=count))
        return old, model.fit(Pulls.of(pulls.counts, sums), old.basis)
    return old, model.fit(pulls, old.basis)


def screen_arms(screen: Screen, posterior: SparsePosterior, width: float, blocked: Indices = NONE) -> Any:
    return screen.upper(posterior.model.all_arms, posterior.fit, [(0, width)], blocked)


def values_of_all_arms(bounds: Any, count: int) -> np.ndarray:
    arms, values = bounds.remaining.take(-np.inf, count)
    assert bounds.remaining.top == -np.inf
    every = np.full(count, -np.inf)
    every[arms] = values
    return every


def exact_upper(posterior: SparsePosterior, width: float) -> np.ndarray:
    mean, variance, _ = posterior.moments(np.arange(len(posterior.model.arms)))
    return mean + width * np.sqrt(variance)


@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_hold_for_every_arm_after_any_change_since_the_reference(relation: str, sweeps: list[int]) -> None:
    @settings(max_examples=examples(150))
    @given(seed=SEEDS, width=st.sampled_from(WIDTHS))
    def check(seed: int, width: float) -> None:
        old, new = two_posteriors(seed, relation)
        count, screen = len(old.model.arms), old.model.screen
        screen_arms(screen, old, width)
        sweeps.clear()
        bounds = screen_arms(screen, new, width)
        scores = exact_upper(new, width)
        assert (bounds.tighten(np.arange(count))[0] >= scores).all()
        assert bounds.remaining.top >= scores.max()
        assert (values_of_all_arms(bounds, count) >= scores).all()
        if not sweeps:
            prior = new.model.diagonal / new.model.regularization
            # but for rounding, against the prior
            assert (new.variance <= RATIO * old.variance * (1 + 1e-6) + 1e-8 * prior).all()

    check()


@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_after_many_changes_need_no_new_sweep(relation: str, sweeps: list[int]) -> None:
    without_sweep = 0
    for seed in range(30):
        old, new = two_posteriors(seed, relation)
        width = WIDTHS[seed % len(WIDTHS)]
        screen_arms(old.model.screen, old, width)
        sweeps.clear()
        screen_arms(old.model.screen, new, width)
        without_sweep += not sweeps
    # otherwise the bounds of an older reference would hardly be tested
    assert without_sweep >= 30 * (0.1 if relation in ("unrelated", "earlier") else 0.25)


@given(seed=SEEDS)
def test_fresh_reference_gives_the_scores_up_to_rounding(seed: int) -> None:
    old, _ = two_posteriors(seed, "redrawn")
    model = old.model
    bounds = screen_arms(model.screen, old, 1.0)
    # near-singular dictionaries lose up to 1e-6 of the prior's variance
    allowed = 1e-6 + 1e-3 * np.sqrt(model.diagonal.max() / model.regularization)
    assert (values_of_all_arms(bounds, len(model.arms)) <= exact_upper(old, 1.0) + allowed).all()


@given(seed=SEEDS, count=st.integers(3, 12), d=st.integers(1, 6))
def test_ratio_and_distance_are_those_of_the_operators_in_feature_space(seed: int, count: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    model = SparseModel(Linear(), rng.normal(size=(count, d)), float(10 ** rng.uniform(-3, 0)))

    def drawn() -> tuple[SparsePosterior, np.ndarray, np.ndarray]:
        """A posterior with its M and θ: the linear kernel's features are the arms' own."""
        arms = rng.integers(count, size=rng.integers(2, 20))
        pulls = Pulls.none(count).add(arms, rng.normal(size=len(arms)))
        dictionary = np.sort(rng.choice(count, size=rng.integers(1, count + 1), replace=False))
        span = np.linalg.svd(model.arms[dictionary])[2][: np.linalg.matrix_rank(model.arms[dictionary])]
        inside = model.arms @ span.T @ span
        M = model.regularization * np.eye(d) + (inside.T * pulls.counts) @ inside
        return model.fit(pulls, dictionary), M, np.linalg.solve(M, inside.T @ pulls.reward_sums)

    (old, M_old, theta_old), (new, M_new, theta_new) = drawn(), drawn()
    screen_arms(model.screen, old, 1.0)
    expected = np.linalg.eigvals(np.linalg.solve(M_new, M_old)).real.max()  # M₀ ⪯ ρM from this ρ on
    bounds = screen_arms(model.screen, new, 1.0)
    reference = model.screen._reference
    assert reference is not None
    is_certified = reference.fit is old.fit
    assert is_certified == (expected * (1 + 1e-9) <= RATIO)
    if not is_certified:
        return
    difference = theta_new - theta_old
    distance = np.sqrt(difference @ M_old @ difference)
    before, slope = old.moments(np.arange(count)), distance + np.sqrt(RATIO)
    values = values_of_all_arms(bounds, count)
    np.testing.assert_allclose(values, before[0] + slope * np.sqrt(before[1]), rtol=1e-3, atol=1e-3)


def posterior_on_a_line(pulls_each: int, arms: Iterable[int] = range(40)) -> SparsePosterior:
    model = SparseModel(RBF(0.05), np.linspace(0, 1, 40)[:, None], 0.1)
    return refit(model, pulls_each, arms)


def refit(model: SparseModel, pulls_each: int, arms: Iterable[int] = range(40)) -> SparsePosterior:
    pulled = [arm for arm in arms for _ in range(pulls_each)]
    return model.fit(Pulls.none(40).add(pulled, np.zeros(len(pulled))), np.array(arms))


@pytest.mark.parametrize(("ratio", "is_certified"), [(1.3, True), (1.9, True), (2.2, False), (300.0, False)])
def test_sweep_follows_if_the_ratio_is_not_certified(ratio: float, is_certified: bool, sweeps: list[int]) -> None:
    old = posterior_on_a_line(30 * 10)
    new = refit(old.model, int(30 * 10 / ratio))  # so well known that σ̃² is one over the pulls
    screen = old.model.screen
    screen_arms(screen, old, 1.0)
    bounds = screen_arms(screen, new, 1.0)
    assert len(sweeps) == (1 if is_certified else 2)
    if not is_certified:
        np.testing.assert_allclose(values_of_all_arms(bounds, 40), exact_upper(new, 1.0), rtol=1e-3)
    screen_arms(screen, old, 1.0)  # results only lower the variances
    assert len(sweeps) == (1 if is_certified else 2)


def test_upper_bounds_allow_work_on_single_arms_until_it_costs_as_much_as_a_sweep(sweeps: list[int]) -> None:
    posterior = posterior_on_a_line(2)
    screen = posterior.model.screen
    screen_arms(screen, posterior, 1.0)
    later = refit(posterior.model, 3)
    for _ in range(3):
        screen_arms(screen, later, 1.0)
    assert len(sweeps) == 1  # asking costs nothing
    bounds = screen_arms(screen, later, 1.0)
    bounds.tighten(np.arange(int(39 / upper_bounds.COST)))
    screen_arms(screen, later, 1.0)
    assert len(sweeps) == 1
    bounds.tighten(np.arange(int(10 / upper_bounds.COST)))
    screen_arms(screen, later, 1.0)
    assert len(sweeps) == 2
    screen_arms(screen, later, 1.0)  # and the count starts again
    assert len(sweeps) == 2


@given(seed=SEEDS)
def test_blocked_arms_are_never_taken_and_the_others_once(seed: int) -> None:
    old, new = two_posteriors(seed, "later")
    count, rng = len(old.model.arms), np.random.default_rng(seed)
    blocked = rng.permutation(count)[: rng.integers(0, count)]
    screen_arms(old.model.screen, old, 1.0)
    bounds, taken = screen_arms(old.model.screen, new, 1.0, blocked), []
    while bounds.remaining.top > -np.inf:
        arms, values = bounds.remaining.take(bounds.remaining.top, 3)
        assert bounds.remaining.top <= values.min()
        taken += arms.tolist()
    assert sorted(taken) == sorted(set(range(count)) - set(blocked.tolist()))


def test_prior_may_be_the_reference_and_be_screened() -> None:
    posterior = posterior_on_a_line(2)
    model = posterior.model
    prior = model.fit(Pulls.none(40), NONE)
    for first, second in ((prior, posterior), (posterior, prior)):
        screen = Screen(model.kernel, float(model.diagonal.max()))
        screen_arms(screen, first, 1.0)
        assert (values_of_all_arms(screen_arms(screen, second, 1.0), 40) >= exact_upper(second, 1.0)).all()
