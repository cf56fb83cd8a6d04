"""Repeated evaluations of the best arms: if values are noisy, and to find out whether they are exact."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.arrays import Floats, Indices
from bbkb.orchestrator.bandit.model.outputs import mean_rewards
from bbkb.orchestrator.bandit.sparse.state import NEGLIGIBLE_NOISE, PATIENCE, Peak, SparseState
from bbkb.orchestrator.bandit.sparse.verification import (
    OWN_PULLS,
    RECOMMENDED_OWN_PULLS,
    WIDTH,
    Estimates,
    OpenArms,
    _measured_noise,
    estimate,
    is_verification_due,
    may_verify,
)
from bbkb.orchestrator.bandit.start.coverage import is_coverage_due
from bbkb.orchestrator.bandit.strategies.bbkb import BBKB
from bbkb.orchestrator.bandit.strategies.presets import COVERAGE, VERIFY, with_preset
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Pick
from tests.orchestrator.bandit.sequential_runs import arms_of, choice

GRID = np.stack(np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 20)), axis=-1).reshape(-1, 2)
ARMS = Arms.of(GRID)
NONE = np.empty(0, np.intp)


def truth(arm: int) -> float:
    return -float(np.sum((GRID[arm] - 0.4) ** 2))


def strategy(**options: Any) -> BBKB:
    return BBKB(**with_preset(BBKB, options))


def searching(chooser: BBKB, noise: float, arms: Arms = ARMS) -> Iterator[tuple[SparseState, list[Pick]]]:
    """The state after each batch of 4 results, and all picks so far."""
    state, rng = chooser.init(arms, np.random.default_rng(0)), np.random.default_rng(1)
    picks: list[Pick] = []
    while True:
        decision = choice(chooser.ask(state, [], 4))
        picks += decision.picks
        told = [Observation(pick.arm, truth(pick.arm) + noise * rng.standard_normal()) for pick in decision.picks]
        state = chooser.tell(state, told, rng)
        yield state, picks


def search(chooser: BBKB, count: int, noise: float, arms: Arms = ARMS) -> tuple[SparseState, list[Pick]]:
    """The state after `count` results in batches of 4, and all picks."""
    return next((state, picks) for state, picks in searching(chooser, noise, arms) if len(picks) >= count)


def test_quarter_of_the_picks_repeats_the_best_arms_if_values_are_noisy() -> None:
    state, picks = search(strategy(), 80, noise=0.3)
    assert may_verify(state)
    after_start = picks[16:]
    repeated = [pick for pick in after_start if pick.reason == "verification"]
    assert len(repeated) == pytest.approx(VERIFY * len(after_start), abs=4)
    pulls = Counter(pick.arm for pick in picks if pick.reason != "verification")
    assert set(Counter(pulls.values())) == {1}
    estimates = Estimates.of(state)
    rank = estimates.means.argsort()[::-1].argsort()
    assert {pick.arm for pick in repeated[-3:]} <= set(estimates.arms[rank < 8].tolist())


@pytest.mark.parametrize("deviation", [0.0, 0.3])
@pytest.mark.parametrize("is_deterministic", [None, True, False])
def test_best_arm_is_pulled_twice_to_find_out_whether_rewards_are_deterministic(
    is_deterministic: bool | None, deviation: float
) -> None:
    """Each arm's own effect looks like noise. Arms are not repeated for an estimate."""
    rng, chooser = np.random.default_rng(5), strategy()
    values = np.array([truth(arm) for arm in range(len(GRID))]) + 0.3 * rng.standard_normal(len(GRID))
    state = chooser.init(Arms.of(GRID, repeats=False, is_deterministic=is_deterministic), rng)
    told: list[Observation] = []
    while len(told) < 80:
        for pick in choice(chooser.ask(state, [], 4)).picks:
            told.append(Observation(pick.arm, values[pick.arm] + deviation * rng.standard_normal()))
            if pick.reason:
                before = told[: len(told) // 4 * 4 - 4 * (len(told) % 4 == 0)]
                best = max(before, key=lambda one: one.reward or 0.0)
                assert pick.reason == "verification"
                assert pick.arm == best.arm
        state = chooser.tell(state, told[-4:], rng)
    assert len(told) - len(state.pulls.arms) == state.pulls.repeats == (is_deterministic is None)
    assert state.is_deterministic == (is_deterministic if is_deterministic is not None else not deviation)
    if state.is_deterministic:
        assert chooser.recommend(state) is None
    else:
        assert state.calibration is not None
        assert state.calibration.fitted.noise > NEGLIGIBLE_NOISE


def test_repeats_are_left_to_the_model_without_the_option() -> None:
    assert all(not pick.reason for pick in search(strategy(verify=0.0), 60, 0.3)[1])


def check_one_by_one(state: SparseState, batch: Choose) -> None:
    """Check that single picks, with the picks before them pending, are those of the batch."""
    pending: list[int] = []
    for expected in batch.picks:
        decision = choice(strategy().ask(state, pending, 1))
        assert (decision.picks[0].arm, decision.picks[0].reason) == (expected.arm, expected.reason)
        pending.append(expected.arm)


def test_picks_one_by_one_are_those_of_a_batch() -> None:
    chooser = strategy()
    state, _ = search(chooser, 40, noise=0.3)
    batch = choice(chooser.ask(state, [], 12))
    check_one_by_one(state, batch)


def test_verification_and_coverage_are_never_due_at_the_same_pick() -> None:
    state, _ = search(strategy(), 20, noise=0.3)
    new = np.setdiff1d(np.arange(len(GRID)), state.pulls.arms).tolist()
    due = [(is_verification_due(state, new[:n], VERIFY), is_coverage_due(state, n, COVERAGE)) for n in range(40)]
    assert sum(verifies for verifies, _ in due) == 10
    assert not any(verifies and covers for verifies, covers in due)


@pytest.mark.parametrize("noise", [0.3, 0.001])
def test_estimates_include_a_gaussian_effect_of_each_arm(noise: float) -> None:
    """Its variance is what the fit mistakes for noise, given repeats of one arm."""
    state, rng = strategy().init(ARMS, np.random.default_rng(0)), np.random.default_rng(2)
    once = [Observation(arm, truth(arm) + 0.3 * rng.standard_normal()) for arm in range(0, len(GRID), 8)]
    state = strategy().tell(state, once, rng)
    best = int(state.pulls.arms[np.argmax(mean_rewards(state.pulls))])
    value = float(state.pulls.reward_sums[best])
    state = state.observe([Observation(best, value + noise * rng.standard_normal()) for _ in range(40)])
    estimates = Estimates.of(state)
    fitted, scale = state.model.regularization, state.knowledge.scale
    own = max(estimates.noise / OWN_PULLS, fitted - estimates.noise)
    assert (own > 0.5 * fitted) == (noise < 0.01)
    for place, arm in enumerate(estimates.arms.tolist()):
        count = int(state.pulls.counts[arm])
        mean = float(state.posterior.mean[arm])
        own_mean = float(scale.scores(np.array([state.pulls.reward_sums[arm] / count]))[0])
        precision = 1.0 / own + count / estimates.noise  # of the effect, N(0, own), after `count` residuals
        posterior_mean = mean + count / estimates.noise * (own_mean - mean) / precision
        assert estimates.means[place] == pytest.approx(posterior_mean, abs=1e-9)


def test_displayed_estimate_includes_the_noise_of_repeats_and_the_models_errors() -> None:
    """Against an exact Gaussian process with the measured noise, and explicit left-out arms."""
    state, _ = search(strategy(), 80, noise=0.3)
    arms = state.pulls.arms
    counts, kernel = state.pulls.counts[arms], state.model.kernel.cross(GRID[arms], GRID[arms])
    scores = state.knowledge.scale.scores(state.pulls.reward_sums[arms] / counts)
    low = state.model.regularization
    noise = _measured_noise(state)
    means, variances = exact(kernel, counts, scores, low)
    errors = []
    for best in np.argsort(-means)[: max(8, len(arms) // 4)].tolist():
        others = np.delete(np.arange(len(arms)), best)
        inverse = np.linalg.inv(kernel[np.ix_(others, others)] + np.diag(low / counts[others]))
        offset = inverse.sum(axis=0) @ scores[others] / (inverse.sum() + 1.0)
        left_out = offset + kernel[best, others] @ inverse @ (scores[others] - offset)
        variance = 1.0 - kernel[best, others] @ inverse @ kernel[others, best] + low / counts[best]
        errors.append((scores[best] - left_out) ** 2 / variance)
    means, variances = exact(kernel, counts, scores, noise)
    for place in np.argsort(-means)[:5].tolist():
        weight = counts[place] / (counts[place] + RECOMMENDED_OWN_PULLS)
        mean = means[place] + weight * (scores[place] - means[place])
        own_variance = noise / (counts[place] + RECOMMENDED_OWN_PULLS)
        deviation = np.sqrt(max(1.0, np.mean(errors)) * (own_variance + (1.0 - weight) ** 2 * variances[place]))
        ends = state.knowledge.scale.rewards(mean + deviation * np.array([-1.0, 0.0, 1.0]))
        assert estimate(state, int(arms[place])) == pytest.approx((ends[1], (ends[2] - ends[0]) / 2), rel=0.05)


def exact(kernel: Floats, counts: Indices, scores: Floats, noise: float) -> tuple[Floats, Floats]:
    """Means and variances (n,) of the pulled arms with the profiled constant mean."""
    inverse = np.linalg.inv(kernel + np.diag(noise / counts))
    offset = inverse.sum(axis=0) @ scores / (inverse.sum() + 1.0)
    means = offset + kernel @ inverse @ (scores - offset)
    return means, 1.0 - np.einsum("ij,jk,ki->i", kernel, inverse, kernel)


def test_repeats_show_noise_that_the_fit_does_not_see() -> None:
    state, _ = search(strategy(), 60, noise=0.0)
    best = int(state.pulls.arms[np.argmax(mean_rewards(state.pulls))])
    rng = np.random.default_rng(2)
    before = estimate(state, best)
    noisy = state.observe([Observation(best, truth(best) + spread) for spread in 0.1 * rng.standard_normal(8)])
    after = estimate(noisy, best)
    assert before is not None
    assert after is not None
    assert _measured_noise(state) == state.model.regularization
    assert _measured_noise(noisy) > 2.0 * noisy.model.regularization
    assert after[1] > before[1]


@pytest.mark.parametrize(("arms", "is_shown"), [(2, False), (4, True)])
def test_estimate_needs_more_than_two_means(arms: int, is_shown: bool) -> None:
    rng, chooser = np.random.default_rng(4), strategy()
    state = chooser.init(Arms.of(np.linspace(0.1, 0.9, arms)[:, None]), rng)
    for _ in range(10):
        state = chooser.tell(state, [Observation(arm, arm + rng.standard_normal()) for arm in range(arms)], rng)
    assert (estimate(state, 0) is not None) == is_shown


def test_huge_rewards_leave_the_measured_noise_finite() -> None:
    state, _ = search(strategy(), 40, noise=0.3)
    best = int(state.pulls.arms[np.argmax(mean_rewards(state.pulls))])
    wild = state.observe([Observation(best, reward) for reward in (1e300, -1e300, 1e300)])
    shown = estimate(wild, best)
    assert shown is not None
    assert np.isfinite([_measured_noise(wild), *shown]).all()


def test_truth_is_within_two_deviations_of_the_recommended_estimate_in_most_searches() -> None:
    """Two thirds of the values at 60 of 200 random points in 6 dimensions are noise. A deviation of
    the fitted noise alone held 7 of these 16 searches."""
    inside = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        points = rng.random((200, 6))
        truths = -np.sum((points - 0.4) ** 2, axis=1)
        chooser, noise = strategy(), 1.4 * truths.std()
        state, told = chooser.init(Arms.of(points), np.random.default_rng(seed)), 0
        while told < 60:
            arms = arms_of(chooser.ask(state, [], 4))
            state = chooser.tell(state, [Observation(a, truths[a] + noise * rng.standard_normal()) for a in arms], rng)
            told += len(arms)
        arm = chooser.recommend(state)
        if arm is not None and (shown := chooser.estimate(state, arm)) is not None:
            inside.append(abs(truths[arm] - shown[0]) <= 2.0 * shown[1])
    assert len(inside) >= 8
    assert np.mean(inside) >= 0.8


def test_contender_has_the_largest_bound_until_the_best_is_separated() -> None:
    def of(means: list[float], counts: list[int]) -> Estimates:
        return Estimates(np.arange(5, 5 + len(means)), np.array(counts), np.array(means), 0.4, 0.1)

    assert of([1.0, 0.9], [4, 4]).contender((), NONE) == 5
    assert of([1.0, 0.9], [8, 1]).contender((), NONE) == 6
    assert of([1.0, 0.95], [4, 4]).contender((5, 5, 5), NONE) == 6
    assert of([1.0, 0.95], [4, 4]).contender((2, 7, 5, 9, 5, 5), NONE) == 6
    gap = WIDTH * (np.sqrt(0.4 / (4 + OWN_PULLS)) + np.sqrt(0.4 / (4 + OWN_PULLS)))
    assert of([1.0, 0.99 - gap], [4, 4]).contender((), NONE) is None
    assert of([1.0], [4]).contender((), NONE) is None


def test_contender_is_never_blocked() -> None:
    estimates = Estimates(np.arange(3), np.array([4, 4, 4]), np.array([1.0, 0.9, 0.8]), 0.4, 0.1)
    assert estimates.contender((), np.array([0])) == 1
    assert estimates.contender((), np.array([0, 2])) is None
    assert estimates.contender((), np.arange(9)) is None


def test_best_arm_is_known_if_its_lower_bound_exceeds_the_upper_bound_of_a_new_arm() -> None:
    estimates = Estimates(np.array([3, 5, 8]), np.array([4, 4, 4]), np.array([1.0, 2.0, 0.5]), 0.01, 0.36)
    assert estimates.best(NONE) == 5
    assert estimates.best(np.array([5])) == 3
    assert estimates.best(np.arange(9)) is None
    for mean in (0.81, 0.82):  # 2 − 1.75 √(0.01/(4 + 0.01/0.36)) − 1.75 √(0.0325 + 0.36) = 0.816
        assert estimates.exceeds(5, mean, 0.0325) == (mean < 0.816)
    assert estimates.shows_own_effects
    assert not Estimates(NONE, NONE, np.empty(0), 0.4, 0.1).shows_own_effects


def test_all_picks_explore_until_the_patience_ends_then_a_logarithmic_number() -> None:
    peak = Peak(reward=1.0, results=30, spread=1.0)
    explored = [peak.explorations(picks) for picks in range(30, 20_001)]
    steps = np.diff(explored)
    assert set(steps.tolist()) == {0, 1}
    assert steps[:PATIENCE].all()
    for horizon in (300, 1000, 5000, 20_000):
        since = horizon - 30
        assert explored[since] - 30 == int(PATIENCE * (1.0 + np.log(since / PATIENCE)))


def long_search(chooser: BBKB, count: int, deviation: float) -> tuple[SparseState, list[Pick], Floats]:
    """A search among rows whose values hardly depend on their features, like a data set's."""
    rng = np.random.default_rng(3)
    values = 0.3 * (GRID @ np.array([1.0, 0.5])) + 0.2 * rng.standard_normal(len(GRID))
    state, picks = chooser.init(ARMS, np.random.default_rng(0)), list[Pick]()
    while len(picks) < count:
        decision = choice(chooser.ask(state, [], 4))
        picks += decision.picks
        told = [Observation(one.arm, values[one.arm] + deviation * rng.standard_normal()) for one in decision.picks]
        state = chooser.tell(state, told, rng)
    return state, picks, values


def test_nearly_exact_values_with_large_own_effects_are_exploited_once_the_best_is_known() -> None:
    state, picks, values = long_search(strategy(), 240, 0.001)
    exploited = [pick.arm for pick in picks if pick.reason == "exploitation"]
    regrets = (values.max() - values[[pick.arm for pick in picks]]) / (values.max() - values.mean())
    assert len(exploited) > 60
    assert chooser_best(state) == exploited[-1]
    assert regrets[-60:].mean() < 0.3 * regrets[:60].mean()


def chooser_best(state: SparseState) -> int:
    return int(state.pulls.finished_arms[np.argmax(Estimates.of(state).means)])


def test_exploration_ends_in_a_long_search_with_noise() -> None:
    """Fewer picks than the proven number explore, whatever the noise."""
    state, picks, _ = long_search(strategy(), 380, 0.5)
    exploring = sum(pick.reason != "exploitation" for pick in picks)
    rises = state.peak.results
    assert exploring <= state.peak.explorations(380) <= rises + PATIENCE * (1 + np.log(380 / PATIENCE))


@pytest.mark.parametrize("batch", [1, 4])
def test_arm_that_succeeds_once_and_then_always_fails_is_not_repeated(batch: int) -> None:
    chooser = strategy()
    state, rng = chooser.init(ARMS, np.random.default_rng(0)), np.random.default_rng(1)
    pulled, failed = set[int](), set[int]()
    for _ in range(80 // batch):
        decision = choice(chooser.ask(state, [], batch))
        told = []
        for arm in [pick.arm for pick in decision.picks]:
            assert arm not in failed
            told.append(Observation(arm, None if arm in pulled else truth(arm) + 0.3 * rng.standard_normal()))
        failed |= {observation.arm for observation in told if observation.reward is None}
        pulled |= {observation.arm for observation in told}
        state = chooser.tell(state, told, rng)
    assert failed


@pytest.mark.parametrize("log_prior", [None, -np.arange(len(GRID)) / 100.0])
def test_promised_gain_equals_the_one_without_verification(log_prior: Floats | None) -> None:
    reasons = Counter[str]()
    of_pulled = 0
    for state, picks in itertools.islice(searching(strategy(), 0.5, Arms.of(GRID, log_prior=log_prior)), 4, 14):
        for pending in ([], [picks[-1].arm, 7, 7, 211], list(range(100, 130))):
            decision, plain = strategy().ask(state, pending, 1), strategy(verify=0.0).ask(state, pending, 1)
            assert isinstance(decision, Choose)
            assert isinstance(plain, Choose)
            assert decision.prospect is not None
            assert plain.prospect is not None
            assert decision.prospect.gain == pytest.approx(plain.prospect.gain, abs=1e-6)
            reasons[decision.picks[0].reason] += 1
            of_pulled += plain.picks[0].arm in {*state.pulls.arms.tolist(), *pending}
    assert set(reasons) == {"", "verification"}
    assert of_pulled


def test_arm_that_was_set_aside_promises_no_gain() -> None:
    chooser = strategy()
    state, _ = search(chooser, 40, 0.5)
    for arm in state.pulls.arms.tolist():
        state = chooser.tell(state, [Observation(arm, None)], np.random.default_rng(0))
    decision = choice(chooser.ask(state, [], 1))
    assert decision.prospect is not None
    largest = state.knowledge.prospect(float(np.delete(chooser.posterior(state).ucb, state.set_aside).max()))
    assert decision.prospect.gain == pytest.approx(largest.gain, abs=1e-6)


def test_retired_and_failed_arms_are_neither_chosen_nor_counted_as_left() -> None:
    chooser = strategy()
    state, _ = search(chooser, 40, 0.3)
    pulled = len(state.pulls.arms)
    assert OpenArms.of(state, (), VERIFY).left == len(GRID) - pulled
    never = np.setdiff1d(np.arange(len(GRID)), state.pulls.arms).tolist()
    retired = chooser.extend(state, GRID[:300] / 2.0, never[:250])
    assert OpenArms.of(retired, (), VERIFY).left == len(GRID) + 300 - 250 - pulled
    told = [Observation(never[300], None), Observation(int(state.pulls.arms[0]), None)]
    failed = chooser.tell(retired, told, np.random.default_rng(0))
    pending = [never[301], never[300]]
    assert OpenArms.of(failed, pending, VERIFY).left == len(GRID) + 300 - 250 - pulled - 2


def test_arms_repeat_with_a_reason_when_all_were_chosen_also_within_a_batch() -> None:
    arms = Arms.of(GRID[::8])
    state, _ = search(strategy(), 30, 1.0, arms)
    left = OpenArms.of(state, (), VERIFY).left
    assert 0 < left < 30
    batch = choice(strategy().ask(state, [], 60))
    assert len(batch.picks) == 60
    new = [pick.arm for pick in batch.picks if not pick.reason]
    assert len(set(new)) == len(new) == left
    last = max(place for place, pick in enumerate(batch.picks) if not pick.reason)
    assert {pick.reason for pick in batch.picks[last + 1 :]} == {"exhausted"}
    check_one_by_one(state, batch)


@pytest.mark.parametrize("noise", [0.01, 0.6])
def test_repeats_correct_the_fitted_noise(noise: float) -> None:
    """The fit mistakes differences between neighbors for noise; repeats of the best arm correct it."""
    state, rng = strategy().init(ARMS, np.random.default_rng(0)), np.random.default_rng(2)
    once = [Observation(arm, truth(arm) + 0.6 * rng.standard_normal()) for arm in range(0, len(GRID), 8)]
    state = strategy().tell(state, once, rng)
    best = int(state.pulls.arms[np.argmax(mean_rewards(state.pulls))])
    value = float(state.pulls.reward_sums[best])
    repeated = state.observe([Observation(best, value + noise * rng.standard_normal()) for _ in range(40)])
    assert may_verify(state)
    assert may_verify(repeated) == (noise > 0.1)
